// The cheapest fleet that meets latency targets for a traffic, and what it was preferred to.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "plan/candidates.h"
#include "plan/replica.h"
#include "plan/traffic.h"

namespace ridge {

struct PlanTask {
  Trace traffic;
  int clients = 0;  // above 0: a closed loop; the traffic's arrivals are not used
  LatencyTargets targets;
  double headroom = 0.2;  // targets also hold at (1 + headroom) times the rate or clients
  int max_machines = 64;
  RoutingRule routing = RoutingRule::round_robin;
  bool disaggregated = false;            // also with prompts and answers on different replicas
  std::string settings;                  // of the engine, see apply_settings
  std::map<std::string, double> prices;  // dollars per device and hour, by machine name
  double warm_up_share = 0.05;           // of the traffic's duration, not counted
  // Called now and then while fleets are simulated, from several threads: what it throws ends the
  // search. Empty: no limit.
  std::function<void()> check_limits;
};

// One candidate with as many machines as it needs. A machine is what --machine names, bought whole:
// 8xh100-sxm is a node of 8 devices.
struct PlanOutcome {
  Request request;  // a replica's layout
  Replica replica;
  bool disaggregated = false;
  int prefill_replicas = 0;  // of a disaggregated fleet
  double prefill_share = 0;  // of a replica's time that prompts take, by the bounds
  int machines = 0;          // 0: discarded by a bound
  ServiceSummary service;
  SimulationSummary load;
  std::optional<double> dollars_per_hour;
  bool meets = false;
  bool on_front = false;  // nothing costs less and answers faster
  std::string reason;     // why it does not meet the targets, or why it lost

  int replicas_per_machine() const;
  int replicas() const { return machines * replicas_per_machine(); }
  int devices() const { return machines * request.system.devices(); }
  std::optional<double> watts() const;  // at the boards' power limits
};

struct PlanReport {
  std::vector<PlanOutcome> outcomes;  // those that meet the targets first, cheapest first
  const PlanOutcome* best() const {
    return !outcomes.empty() && outcomes.front().meets ? &outcomes.front() : nullptr;
  }
};

// Candidates run on all cores, all with the same requests. `done` counts them for progress.
PlanReport search_plan(const PlanTask& task, const std::vector<Request>& candidates,
                       std::atomic<size_t>* done = nullptr);

// The fleet of an outcome under other traffic or with other machines.
struct PlanTrial {
  ServiceSummary service;
  SimulationSummary load;
  int prefill_replicas = 0;  // the best number of a disaggregated fleet
};
PlanTrial try_fleet(const PlanTask& task, const PlanOutcome& outcome, int machines,
                    const std::vector<SimulatedRequest>& requests, int clients);
// The fewest machines that meet the targets for these requests, found from a guess; 0: more than
// `most`.
int machines_needed(const PlanTask& task, const PlanOutcome& outcome,
                    const std::vector<SimulatedRequest>& requests, int clients, int guess,
                    int most);

// Less money first; without prices, fewer devices.
double plan_cost(const PlanOutcome& outcome);

}  // namespace ridge
