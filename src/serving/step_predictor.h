// What the predictor expects of the steps that the engine runs.
#pragma once

#include <span>
#include <vector>

#include "machine/machine.h"
#include "roofline/roofline.h"
#include "roofline/stack.h"
#include "serving/scheduler.h"
#include "step/rank.h"
#include "step/step.h"

namespace ridge {

class StepPredictor {
 public:
  // `model` must outlive the predictor.
  StepPredictor(const Model& model, const Plan& plan, const System& system, const Stack& stack);

  StepEstimate estimate(std::span<const Sequences> batch);

 private:
  StepEstimate estimate_pipeline(std::span<const Sequences> batch);

  Rank rank_;
  Ceilings ceilings_;
  std::vector<Op> ops_;
};

// The step's sequences for the predictor: decodes as one group with their mean past, of which
// attention's work is linear, and every chunk of a prompt by itself.
void describe_step(const ScheduledStep& step, std::vector<Sequences>& to);

}  // namespace ridge
