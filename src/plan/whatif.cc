#include "plan/whatif.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "base/units.h"

namespace ridge {
namespace {

constexpr double kFullCache = 0.98;  // share of the pages: the next sequence finds none

std::string breaking_wall(const PlanTask& task, const PlanOutcome& outcome,
                          const PlanTrial& trial) {
  const double limit = outcome.replica.policy.max_sequences;
  if (trial.load.preemptions > 0 || trial.load.peak_kv_share > kFullCache) return "KV cache full";
  if (trial.load.mean_running > 0.95 * limit) return "sequence limit";
  return trial.service.missed(task.targets) == "TTFT" ? "prompts queue" : "decode step";
}

struct ScaledLoad {
  std::vector<SimulatedRequest> requests;
  int clients = 0;
};

ScaledLoad scaled_load(const PlanTask& task, const std::vector<SimulatedRequest>& requests,
                       double factor) {
  ScaledLoad load{requests, 0};
  if (task.clients > 0) {
    load.clients = std::max(1, int(std::lround(task.clients * factor)));
  } else {
    const double first = requests.front().arrival_s;
    for (SimulatedRequest& r : load.requests) r.arrival_s = first + (r.arrival_s - first) / factor;
  }
  return load;
}

}  // namespace

BreakingPoint breaking_point(const PlanTask& task, const PlanOutcome& outcome) {
  const std::vector<SimulatedRequest> requests =
      simulated_requests(task.traffic, outcome.replica.policy.page_tokens);
  BreakingPoint point;
  PlanTrial broken;
  const auto holds = [&](double factor) {
    const ScaledLoad load = scaled_load(task, requests, factor);
    PlanTrial trial = try_fleet(task, outcome, outcome.machines, load.requests, load.clients);
    const std::string missed = trial.service.missed(task.targets);
    if (missed.empty()) return true;
    point.found = true;
    point.target = missed;
    broken = std::move(trial);
    return false;
  };
  double low = 1 + task.headroom, high = 2 * low;  // a plan holds with its headroom
  while (high <= kMostLoad && holds(high)) {
    low = high;
    high *= 2;
  }
  point.factor = low;
  if (!point.found) return point;
  for (int i = 0; i < 5; ++i) {
    const double middle = std::sqrt(low * high);
    (holds(middle) ? low : high) = middle;
  }
  point.factor = low;
  point.wall = breaking_wall(task, outcome, broken);
  return point;
}

std::vector<Sensitivity> sensitivities(const PlanTask& task, const PlanOutcome& outcome) {
  struct Change {
    const char* name;
    Trace traffic;
    double clients = 1;
  };
  std::vector<Change> changes;
  changes.push_back({"prompts and answers x1.5", with_lengths(task.traffic, 1.5)});
  if (task.clients > 0) {
    changes.push_back({"clients x2", task.traffic, 2});
  } else {
    changes.push_back({"rate x2", with_rate(task.traffic, 2)});
    changes.push_back({"bursts x3 (every 30 s in 10 s)", with_bursts(task.traffic, 3)});
  }
  std::vector<Sensitivity> rows(changes.size());
  parallel_for(changes.size(), [&](size_t i) {
    const Change& change = changes[i];
    const std::vector<SimulatedRequest> requests =
        simulated_requests(change.traffic, outcome.replica.policy.page_tokens);
    const int clients = int(std::lround(task.clients * change.clients));
    rows[i].change = change.name;
    rows[i].service = try_fleet(task, outcome, outcome.machines, requests, clients).service;
    rows[i].machines =
        machines_needed(task, outcome, requests, clients, outcome.machines, task.max_machines);
    if (outcome.dollars_per_hour && rows[i].machines > 0) {
      rows[i].dollars_per_hour = *outcome.dollars_per_hour / outcome.machines * rows[i].machines;
    }
  });
  return rows;
}

std::vector<CapacityInterval> capacity_curve(const PlanTask& task, const PlanOutcome& outcome,
                                             double interval_s, double start_up_s) {
  const double first = task.traffic.rows.front().arrival_s;
  constexpr double kMostIntervals = 1e5;
  const double intervals = std::floor(task.traffic.duration_s() / interval_s);
  if (intervals >= kMostIntervals) {
    throw OptionError("interval", fmt::format("--interval {}: more than {:.0f} of them in {}",
                                              pretty_time(interval_s), kMostIntervals,
                                              pretty_time(task.traffic.duration_s())));
  }
  const auto count = size_t(intervals) + 1;
  std::vector<CapacityInterval> curve(count);
  PlanTask apart = task;
  apart.warm_up_share = 0;
  parallel_for(count, [&](size_t i) {
    CapacityInterval& interval = curve[i];
    interval.begin_s = first + interval_s * double(i);
    interval.end_s = interval.begin_s + interval_s;
    const Trace part = between(task.traffic, interval.begin_s, interval.end_s);
    if (part.rows.empty()) return;
    interval.requests_per_s = double(part.rows.size()) / interval_s;
    const std::vector<SimulatedRequest> requests =
        simulated_requests(with_rate(part, 1 + task.headroom), outcome.replica.policy.page_tokens);
    interval.needed = machines_needed(apart, outcome, requests, 0, 1, task.max_machines);
    interval.met = interval.needed > 0;
    if (!interval.met) interval.needed = task.max_machines;
  });
  const auto ahead = size_t(std::min(std::ceil(start_up_s / interval_s), kMostIntervals));
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = i; j <= std::min(i + ahead, count - 1); ++j) {
      curve[i].up = std::max(curve[i].up, curve[j].needed);
    }
  }
  return curve;
}

std::optional<double> break_even_price(const PlanOutcome& best, const PlanOutcome& other) {
  if (!best.dollars_per_hour || other.devices() == 0) return std::nullopt;
  return *best.dollars_per_hour / other.devices();
}

}  // namespace ridge
