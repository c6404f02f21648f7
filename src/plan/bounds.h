// What no schedule can beat: bounds that discard hopeless candidates before a simulation.
#pragma once

#include "load/trace.h"
#include "plan/replica.h"

namespace ridge {

struct PlanBounds {
  double ttft_s = 0;          // of the targets' percentile of the prompts, alone on the replica
  double itl_s = 0;           // of a sequence alone
  double requests_per_s = 0;  // of a replica with its largest batch, as a fluid
  double prefill_share = 0;   // of its time, for prompts that are not cached
};

// Prompts that may be cached count as free. The replica has pages.
PlanBounds plan_bounds(const Replica& replica, const Trace& traffic, double percentile);

}  // namespace ridge
