// The top logits of a row from those of its parts: ranks hold parts of the vocabulary.
#pragma once

#include <span>

#include "engine/sampling/top_logits.h"

namespace ridge {

// `parts` are what find_top_logits gave for consecutive parts of the row. The sums are those of the
// whole row to kSumError; everything else is bit for bit what the whole row gives.
TopLogits merge_top_logits(std::span<const TopLogits> parts, const TopLogitsRequest& request);

}  // namespace ridge
