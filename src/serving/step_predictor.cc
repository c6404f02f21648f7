#include "serving/step_predictor.h"

#include "step/lower.h"
#include "step/micro_batches.h"

namespace ridge {

StepPredictor::StepPredictor(const Model& model, const Plan& plan, const System& system,
                             const Stack& stack)
    : rank_(make_rank(model, plan)), ceilings_(make_ceilings(system, plan, stack, &model)) {
  // Weights that fit the last-level cache stay there from step to step.
  const Sequences one;
  lower(rank_, {&one, 1}, ops_);
  double streamed = 0;
  for (const Op& op : ops_) streamed += op.count * op.work.device_bytes();
  place_working_set(ceilings_, system.device, streamed);
}

StepEstimate StepPredictor::estimate(std::span<const Sequences> batch) {
  if (rank_.plan.pp > 1) return estimate_pipeline(batch);
  lower(rank_, batch, ops_);
  return estimate_step(ops_, ceilings_, rank_.math);
}

StepEstimate StepPredictor::estimate_pipeline(std::span<const Sequences> batch) {
  const auto parts = micro_batches(batch, rank_.plan);
  StepEstimate sum;
  for (const std::vector<Sequences>& part : parts) {
    lower(rank_, part, ops_);
    append(sum, estimate_step(ops_, ceilings_, rank_.math), ceilings_, rank_.math);
  }
  return pipelined(sum, rank_.plan.pp, parts.size());
}

void describe_step(const ScheduledStep& step, std::vector<Sequences>& to) {
  to.clear();
  Sequences decodes{.count = 0, .fresh = 0, .past = 0, .logits = 0};
  for (const ScheduledSlice& slice : step.slices) {
    if (slice.decodes) {
      decodes.count += 1;
      decodes.fresh += slice.count;
      decodes.past += slice.past;
      decodes.logits += slice.logits;
    } else {
      to.push_back({1, double(slice.count), double(slice.past), double(slice.logits)});
    }
  }
  if (decodes.count == 0) return;
  decodes.fresh /= decodes.count;
  decodes.past /= decodes.count;
  decodes.logits /= decodes.count;
  to.push_back(decodes);
}

}  // namespace ridge
