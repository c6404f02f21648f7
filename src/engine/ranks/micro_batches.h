// How a step is divided among the stages of a pipeline.
//
//   stage 0   | a | b | c |
//   stage 1       | a | b | c |      S stages and m micro-batches: S + m - 1 turns
//
// A turn takes at least as long as reading the stage's weights, which every micro-batch reads
// again. So a small step (decode) is fastest whole, and a large one (prompts) as S micro-batches.
#pragma once

#include <span>
#include <vector>

#include "engine/runner.h"

namespace ridge {

// What a stage takes for so many tokens, in units of reading its weights once.
using TurnTime = double (*)(double tokens);

// Index of the slice after each micro-batch; the last is batch.size(). At most one micro-batch for
// each stage, cut between slices. Every rank comes to the same division.
std::vector<int> micro_batch_ends(std::span<const Slice> batch, int stages, TurnTime turn_time);

}  // namespace ridge
