// What the clients of a predicted endpoint see, request by request.
#pragma once

#include "base/json.h"
#include "plan/service.h"
#include "predict/predict.h"

namespace ridge {

// Simulates the endpoint that `request` asks for (clients or rate). With a rate the first tenth of
// the requests fills the endpoint and is not counted. Rates are those of all replicas.
ServiceSummary simulate_service(const Request& request);

// The fields under "simulated" of a prediction (docs/json.md).
Json simulated_json(const ServiceSummary& summary);

}  // namespace ridge
