// What `ridge plan` prints for a person.
#pragma once

#include <string>

#include "base/plot.h"
#include "load/trace.h"
#include "plan/replica.h"
#include "plan/whatif.h"

namespace ridge {

// "tp 4, 2 replicas"; "one device".
std::string layout_words(const Plan& plan, int replicas);

// A replay: the configuration, latencies, rates, and what ran and waited over time.
std::string simulation_text(const Request& request, const Replica& replica, const Trace& traffic,
                            const FleetRun& run, const ServiceSummary& service,
                            const LatencyTargets& targets);

// The candidates, the cheapest that meets the targets, what breaks it, and how to launch it.
std::string plan_text(const PlanTask& task, const PlanAnswer& answer);
// Fleets that meet the targets, by cost and time to first token.
Plot plan_front_plot(const PlanReport& report);

}  // namespace ridge
