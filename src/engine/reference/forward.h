// The specification of a forward pass: one sequence, one token after the other, in double
// arithmetic on the stored weights. Slow and simple; every backend is compared with it.
#pragma once

#include <span>
#include <vector>

#include "engine/weights/weights.h"

namespace ridge::reference {

// Logits [tokens][vocab]. Keys and values are kept unrounded. router_gaps, where given: [tokens],
// how close the token's choice of experts was. It is the minimum over the layers, and over the
// choice of groups too, of (last chosen - first unchosen router logit) / root mean square of the
// router logits; infinity where no layer has experts.
std::vector<double> forward(const Weights& weights, std::span<const Token> tokens,
                            std::vector<double>* router_gaps = nullptr);

}  // namespace ridge::reference
