// Requests through the scheduler that serves, step by step on the calling thread: with a runner and
// its real times, or with predicted times and the same schedule.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/runner/runner.h"
#include "lab/lab_engine.h"
#include "serving/scheduler.h"

namespace ridge {

struct LabRequest {
  std::vector<Token> prompt;
  int output = 1;   // tokens; nothing else ends it
  int arrival = 0;  // the step before which it arrives
};

struct LabServed {
  std::vector<Token> tokens;
  std::vector<double> at_s;  // when each token was there, since the first step began
  double arrival_s = 0;

  double first_s() const { return at_s.front() - arrival_s; }
  double longest_gap_s() const;
};

struct LabServing {
  double seconds = 0;
  int steps = 0;
  int preemptions = 0;  // sequences that lost their pages and were computed again
  std::vector<LabServed> requests;
  long drafted = 0, accepted = 0;  // drafts behind a rejected one decide nothing: not counted
};

// Greedy. `requests` in order of arrival. Drafts are made inside the scheduler: their time counts.
LabServing serve_measured(Scheduler& scheduler, std::span<const LabRequest> requests,
                          Runner& runner);
// The schedule does not depend on the tokens drawn, so it is the same with step times alone.
using LabStepSeconds = std::function<double(std::span<const Sequences>)>;
LabServing serve_predicted(Scheduler& scheduler, std::span<const LabRequest> requests,
                           const LabStepSeconds& seconds);

// A schedule as a function of the way to time it: made anew for each use.
using LabSchedule = std::function<LabServing(const LabStepSeconds* seconds)>;
// Three predicted runs (fast end, expected, slow end of each step's band), then measured ones.
struct ServingComparison {
  LabServing low, expected, high;
  std::vector<LabServing> measured;  // repeats, by their seconds
  std::string doubt;                 // of all measured runs

  const LabServing& typical() const { return measured[measured.size() / 2]; }
  // For any number of a run: its band, and the point once it is measured.
  using Value = std::function<double(const LabServing&)>;
  LabBand band(const Value& value) const;
  LabPoint point(double x, const Value& value) const;
};
// A number of a run that will become a point, to be announced before anything is measured.
struct ServingValue {
  std::string name;
  ServingComparison::Value of;
};

// Scheduler options within the runner's bounds, with the prefix cache on.
SchedulerOptions lab_scheduler_options(const Runner& runner);

// A model of random weights (bf16) that is served, its predictor, and a new scheduler and cache for
// each run.
class LabServer {
 public:
  LabServer(Lab& lab, const RunnerOptions& bounds);

  int vocab() const { return runner_->weights().architecture.vocab; }
  double bytes() const { return weights_held(lab_, *runner_); }
  SchedulerOptions options() const { return lab_scheduler_options(*runner_); }
  // The scheduler gets so many tokens of the cache from now on; 0: all.
  void limit_cache(int tokens) { cache_tokens_ = tokens; }
  // With predicted step times, or (null) measured ones.
  LabServing serve(std::span<const LabRequest> requests, const SchedulerOptions& options,
                   const LabStepSeconds* seconds);
  ServingComparison compare(const LabSchedule& schedule, std::span<const ServingValue> values);
  ServingComparison compare(std::span<const LabRequest> requests, const SchedulerOptions& options,
                            std::span<const ServingValue> values);

 private:
  Lab& lab_;
  std::unique_ptr<Runner> runner_;
  LabPredictor predictor_;
  int cache_tokens_ = 0;
};

}  // namespace ridge
