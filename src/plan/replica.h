// One replica of a configuration as the simulator takes it: step times, rules and memory.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "plan/fleet.h"
#include "predict/predict.h"

namespace ridge {

struct Replica {
  std::shared_ptr<const StepClock> clock;  // none where the model does not fit
  ServingPolicy policy;
  int pages = 0;  // of the KV cache; 0: the model does not fit

  Fleet fleet(int replicas, RoutingRule routing) const {
    return {clock.get(), policy, pages, replicas, routing};
  }
  double kv_tokens() const { return double(pages) * policy.page_tokens; }
};

// The policy of the request's stack with `settings` ("max_num_seqs=64") applied. A replica takes
// tp * pp devices; its step times are tabulated for requests of up to `longest` tokens. Throws
// Error for bad settings and plans that cannot be.
Replica make_replica(const Request& request, std::string_view settings, double longest);
ServingPolicy replica_policy(const Request& request, std::string_view settings);

}  // namespace ridge
