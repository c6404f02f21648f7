// How a step is divided among the stages of a pipeline.
//
//   stage 0   | a | b | c |
//   stage 1       | a | b | c |      S stages and m micro-batches: S + m - 1 turns
//
// A turn takes at least as long as reading the stage's weights, which every micro-batch reads
// again. So a small step (decode) is fastest whole, and a large one (prompts) as S micro-batches.
// The engine divides a step so, and the predictor times what it divided.
#pragma once

#include <span>
#include <vector>

#include "step/plan.h"
#include "step/step.h"

namespace ridge {

// Index of the sequence after each micro-batch; the last is tokens.size(). `tokens`: of each
// sequence. At most one micro-batch for each stage, cut between sequences. A turn of t tokens takes
// max(1, t / turn_tokens) times as long as reading the weights. Every rank comes to the same
// division.
std::vector<int> micro_batch_ends(std::span<const double> tokens, int stages, double turn_tokens);

// The micro-batches of a step; one where the plan has no stages, or does not divide.
std::vector<std::vector<Sequences>> micro_batches(std::span<const Sequences> batch,
                                                  const Plan& plan);

}  // namespace ridge
