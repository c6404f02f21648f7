// Launches steps: the scheduler plans one, the predictor times it, the runner starts it.
#pragma once

#include <vector>

#include "engine/runner/profile.h"
#include "engine/runner/runner.h"
#include "serving/active_requests.h"
#include "serving/engine_reports.h"
#include "serving/scheduler.h"
#include "serving/step_in_flight.h"
#include "serving/step_predictor.h"
#include "serving/step_sampler.h"

namespace ridge {

// The parts of an engine that its launcher and its lander work on; they outlive both.
struct EngineParts {
  Runner& runner;
  Scheduler& scheduler;
  ActiveRequests& requests;
  StepSampler& sampler;
  EngineReports& reports;
};

class StepLauncher {
 public:
  // `predictor` may be null: steps carry no prediction then. `drafts`: sequences are drafted for.
  StepLauncher(const EngineParts& parts, StepPredictor* predictor, bool drafts)
      : parts_(parts), predictor_(predictor), drafts_(drafts) {}

  // Plans the next step in `step`, whose memory is used again, and launches it. False where nothing
  // can run now. `alone`: no step is in flight.
  bool launch(StepInFlight& step, bool alone);
  // Times of the operators of the step that was profiled last; empty where the runner queues steps.
  const Profile& operators() const { return operators_; }

 private:
  void report_planned(const ScheduledStep& planned);
  void predict(StepInFlight& step);
  void run(StepInFlight& step);

  EngineParts parts_;
  StepPredictor* predictor_;
  bool drafts_;
  std::vector<Slice> slices_;
  std::vector<Sequences> batch_;  // the step for the predictor
  Profile operators_;
};

}  // namespace ridge
