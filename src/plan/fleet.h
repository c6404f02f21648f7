// Replicas of a model behind a router, simulated.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "plan/service.h"
#include "serving/simulation.h"

namespace ridge {

enum class RoutingRule : uint8_t {
  round_robin,
  least_loaded,  // the fewest tokens to compute
  prefix_aware,  // the same, with what the replica's cache spares of this prompt taken off
};
std::string_view routing_name(RoutingRule routing);  // "round-robin"
RoutingRule parse_routing(std::string_view name);    // throws OptionError

struct Fleet {
  const StepClock* clock = nullptr;  // of one replica; outlives the simulation
  ServingPolicy policy;
  int pages = 0;  // KV pages of one replica
  int replicas = 1;
  RoutingRule routing = RoutingRule::round_robin;
  // Disaggregated: so many of the replicas compute prompts, the others decode, and the keys and
  // values of a prompt travel between them. 0: every replica does both.
  int prefill_replicas = 0;
  double transfer_s_per_token = 0;
};

struct FleetRun {
  std::vector<ServedRequest> requests;  // as given
  SimulationSummary total;              // of all replicas: sums, and the largest of each peak
};

// Open loop, requests by arrival (a disaggregated fleet has no other); with `clients` above 0 a
// closed loop, in which each client sends the next request of the list when its last one is
// answered. A request that one replica's pages cannot hold is refused. Deterministic. Replicas run
// in threads where the router does not look at them and `threads` allows it.
FleetRun simulate_fleet(const Fleet& fleet, std::span<const SimulatedRequest> requests,
                        int clients = 0, bool threads = false);

}  // namespace ridge
