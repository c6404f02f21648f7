#include "serving/step_launcher.h"

namespace ridge {

bool StepLauncher::launch(StepInFlight& step, bool alone) {
  const ScheduledStep& planned = step.planned;
  ServingClock::time_point began;
  do {
    began = ServingClock::now();
    parts_.scheduler.next(step.planned);
    report_planned(planned);
    // Preempted sequences wait for the next step, which need not wait for anything.
  } while (planned.empty() && !planned.preempted.empty() && alone);
  if (planned.empty()) return false;
#ifndef NDEBUG
  parts_.scheduler.check_pages();
#endif
  step.report = {};
  predict(step);
  step.launched = ServingClock::now();
  step.planning_s = seconds_between(began, step.launched);
  if (!planned.copies.empty()) parts_.runner.copy_pages(planned.copies);
  run(step);
  parts_.sampler.request_rows(step, parts_.requests, drafts_);
  // While the device works.
  for (const ScheduledSlice& slice : planned.slices) {
    Generation& generation = parts_.requests.at(slice.id).generation;
    if (slice.samples && generation.has_mask()) generation.update_mask();
  }
  return true;
}

void StepLauncher::report_planned(const ScheduledStep& planned) {
  for (const auto& [id, cached] : planned.admitted) {
    ActiveRequest& request = parts_.requests.at(id);
    const ServingClock::time_point now = ServingClock::now();
    request.cached = cached;
    request.scheduled_s = seconds_between(request.arrived, now);
    parts_.reports.observer().on_prefix_lookup(int(request.prompt.size()), cached);
    parts_.reports.on_stage(request, RequestEvent::Stage::admitted, now);
  }
  for (const RequestId id : planned.preempted) {
    parts_.reports.on_stage(parts_.requests.at(id), RequestEvent::Stage::preempted,
                            ServingClock::now());
  }
}

void StepLauncher::predict(StepInFlight& step) {
  if (predictor_ == nullptr) return;
  describe_step(step.planned, batch_);
  const StepEstimate estimate = predictor_->estimate(batch_);
  step.report.predicted_s = estimate.expected_s;
  step.report.roof_s = estimate.roof_s;
  step.report.flops = estimate.flops;
  step.report.bytes = estimate.bytes;
  step.report.wall = estimate.wall;
}

// On CUDA steps are queued, and timing the operators of one would wait for it.
void StepLauncher::run(StepInFlight& step) {
  slices_.clear();
  for (const ScheduledSlice& slice : step.planned.slices) {
    slices_.push_back({step.planned.tokens_of(slice), slice.past, slice.pages, slice.logits});
  }
  Runner& runner = parts_.runner;
  step.profiled = predictor_ != nullptr && parts_.reports.observer().wants_profile();
  if (!step.profiled) return runner.run(slices_);
  step.batch = batch_;
  operators_.clear();
  if (runner.queues_steps()) return runner.run(slices_);
  runner.set_profile(&operators_);
  runner.run(slices_);
  runner.set_profile(nullptr);
}

}  // namespace ridge
