// What becomes of a chosen fleet when the traffic changes.
#pragma once

#include <string>
#include <vector>

#include "plan/search.h"

namespace ridge {

// How much more load the fleet takes before a target is missed.
struct BreakingPoint {
  double factor = 1;   // times the rate or the clients that still meets all targets
  bool found = false;  // false: nothing breaks up to `factor`
  std::string target;  // what is missed beyond it: "TTFT"
  std::string wall;    // why: "KV cache full", "sequence limit", "prompts queue", "decode step"
};
inline constexpr double kMostLoad = 16;  // factors beyond it are not tried
BreakingPoint breaking_point(const PlanTask& task, const PlanOutcome& outcome);

// The machines that the same replica needs for changed traffic.
struct Sensitivity {
  std::string change;  // "prompts and answers x1.5"
  int machines = 0;    // 0: more than task.max_machines
  std::optional<double> dollars_per_hour;
  ServiceSummary service;  // of the present fleet under the change
};
std::vector<Sensitivity> sensitivities(const PlanTask& task, const PlanOutcome& outcome);

// Replicas over a long trace: how many each interval needs by itself, and how many must be up so
// that those of the next `start_up_s` seconds have started in time.
struct CapacityInterval {
  double begin_s = 0, end_s = 0;
  double requests_per_s = 0;
  int needed = 0;  // machines; 0: nothing arrives
  int up = 0;      // machines, started ahead
  bool met = true;
};
std::vector<CapacityInterval> capacity_curve(const PlanTask& task, const PlanOutcome& outcome,
                                             double interval_s, double start_up_s);

// Everything that `ridge plan` says. The parts below the report are about its best outcome.
struct PlanAnswer {
  PlanReport report;
  std::optional<BreakingPoint> breaks;
  std::vector<Sensitivity> changes;
  std::vector<CapacityInterval> curve;
};

// Dollars per device and hour at which the other outcome would cost what the best one does.
std::optional<double> break_even_price(const PlanOutcome& best, const PlanOutcome& other);

// The command that starts one replica, in the words of its stack; vLLM's where the stack
// has no server of its own.
std::string launch_command(const Request& request, const Replica& replica);

}  // namespace ridge
