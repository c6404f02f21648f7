// An endpoint with a fixed number of clients, simulated: mean times where the closed form of
// predict/endpoint.h does not know how prompts meet.
#pragma once

#include "predict/predict.h"
#include "serving/policy.h"

namespace ridge {

// The policy that the request's stack runs by default on this machine, with the load's settings.
ServingPolicy endpoint_policy(const Request& request, const Load& load);

// Every client sends load.rounds requests (10 where the load does not say). Replicas are alike, so
// one is simulated with its share of the clients.
EndpointEstimate simulate_endpoint(const Request& request, const Load& load);

}  // namespace ridge
