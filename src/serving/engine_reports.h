// What the engine tells its observer: steps, stages of requests, times of tokens, ends.
#pragma once

#include <vector>

#include "engine/runner/profile.h"
#include "serving/active_requests.h"
#include "serving/observer.h"
#include "serving/scheduler.h"
#include "serving/step_in_flight.h"

namespace ridge {

class EngineReports {
 public:
  explicit EngineReports(ServingObserver* observer)  // null: nobody observes
      : observer_(observer != nullptr ? observer : &nobody_) {}
  EngineReports(const EngineReports&) = delete;  // it may refer to its own nobody_
  ServingObserver& observer() { return *observer_; }

  // Requests.
  void on_stage(const ActiveRequest& request, RequestEvent::Stage stage,
                ServingClock::time_point at, EndReason end = EndReason::length);
  // The step that landed at `now` gave the request `count` tokens.
  void on_tokens(ActiveRequest& request, int count, ServingClock::time_point now);
  void on_end(ActiveRequest& request, EndReason reason, int preemptions);

  // A step that lands: begin_rows(), then add_row() for each of its slices, then on_step().
  void begin_rows() { rows_.clear(); }
  // Counts a slice in the step's report. Its tokens are to be filled in where it decodes.
  StepRow& add_row(const ScheduledSlice& slice, StepReport& report);
  // `operators`: times of the step's operators, where it was profiled.
  void on_step(StepInFlight& step, const Scheduler& scheduler, const Profile& operators);
  // Requests ended between steps.
  void on_ends(const Scheduler& scheduler);

 private:
  ServingObserver nobody_;
  ServingObserver* observer_;
  std::vector<StepRow> rows_;  // of the step that is landing
};

}  // namespace ridge
