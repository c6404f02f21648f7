// Lowering: a step -> the operators (Op) of one forward pass on one device.
//
// roofline/ times this list, and engine/account/ sums it up as the work that a run had to do. The
// engine's runners do not interpret the list. Each runner is written for its backend and times its
// own operators (Profile) under the names of this list and in its order.
// tests/engine/step_order_test.cc compares the two for every family the engine executes.
//
// A runner may differ from the list in these ways only:
//   - The list has one Op for a group of identical layers, with a count; a runner goes layer by
//     layer.
//   - On the CPU `sample` is missing (engine/sampling does it outside the step), and
//     `expert_gate_up`, `expert_down` repeat for each active expert.
//   - On CUDA a fused kernel is timed under the name of one of its operators: `attn_norm`,
//     `mlp_norm`, `final_norm`, `rope_cache` and `router` may be missing.
#pragma once

#include <span>
#include <vector>

#include "cost/op.h"
#include "step/rank.h"
#include "step/step.h"

namespace ridge {

// Replaces `ops` by the step's operators: all layers, whichever pipeline stage holds them, for the
// sequences of one replica (with pipeline stages: of one micro-batch).
void lower(const Rank& rank, std::span<const Sequences> batch, std::vector<Op>& ops);

}  // namespace ridge
