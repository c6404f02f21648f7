// An endpoint that a request asks for, simulated: every request's times, where the closed form of
// predict/endpoint.h gives means and does not know how prompts meet.
#pragma once

#include <vector>

#include "predict/predict.h"
#include "serving/simulation.h"

namespace ridge {

struct SimulatedLoad {
  std::vector<SimulatedRequest> requests;
  SimulationResult run;
};

// Clients that send again when they are answered: load.rounds requests each (10 where the load does
// not say, fewer where that makes more than 50000). With a rate: requests that arrive at random.
// Replicas are alike, so one is simulated with its share of the load. The engine's policy is the
// stack's default.
SimulatedLoad simulate_load(const Request& request, const Load& load);

// Means of the same.
EndpointEstimate simulate_endpoint(const Request& request, const Load& load);

}  // namespace ridge
