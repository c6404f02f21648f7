// The specification of a forward pass: one sequence, one token after the other, in double
// arithmetic on the stored weights. Slow and plain; every backend is held against it.
#pragma once

#include <span>
#include <vector>

#include "engine/weights/weights.h"

namespace ridge::reference {

// Logits [tokens][vocab]. Keys and values are kept unrounded.
std::vector<double> forward(const Weights& weights, std::span<const Token> tokens);

}  // namespace ridge::reference
