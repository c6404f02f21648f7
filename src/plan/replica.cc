#include "plan/replica.h"

#include "predict/step_times.h"

namespace ridge {

ServingPolicy replica_policy(const Request& request, std::string_view settings) {
  const Maybe memory = request.system.device.memory().total_capacity();
  ServingPolicy policy =
      memory ? policy_of(request.stack.name, *memory) : policy_of(request.stack.name);
  apply_settings(policy, settings);
  return policy;
}

Replica make_replica(const Request& request, std::string_view settings, double longest) {
  Request alone = request;
  alone.plan.dp = 1;
  check_request(alone);
  Replica replica;
  replica.policy = replica_policy(request, settings);
  replica.pages = replica.policy.pages > 0 ? replica.policy.pages
                                           : kv_pages(request, replica.policy.page_tokens);
  if (replica.pages < 1) {
    replica.pages = 0;
    return replica;
  }
  replica.clock = std::make_shared<StepTimes>(request, replica.policy.max_sequences,
                                              replica.policy.max_tokens, longest);
  return replica;
}

}  // namespace ridge
