// Simulations and plans as JSON. docs/plan.md documents every field.
#pragma once

#include <span>
#include <string>

#include "base/json.h"
#include "load/trace.h"
#include "plan/replica.h"
#include "plan/whatif.h"

namespace ridge {

Json plan_json(const Plan& plan);
Json policy_json(const ServingPolicy& policy, int pages);
Json service_json(const ServiceSummary& service, const LatencyTargets& targets);

// One replay of a workload.
Json simulation_json(const Request& request, const Replica& replica, const FleetRun& run,
                     const ServiceSummary& service, const LatencyTargets& targets);

Json plan_answer_json(const PlanTask& task, const PlanAnswer& answer);
// The candidates as a table: what the text shows, in plain numbers.
Json plan_rows(const PlanTask& task, const PlanReport& report);

// Each request of a run as comma-separated values, in the order of the workload's file.
std::string requests_csv(const Trace& traffic, std::span<const ServedRequest> requests);

}  // namespace ridge
