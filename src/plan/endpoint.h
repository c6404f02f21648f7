// What the clients of a predicted endpoint see, request by request.
#pragma once

#include "base/json.h"
#include "plan/service.h"
#include "predict/predict.h"

namespace ridge {

// Simulates the endpoint that `request` asks for (clients or rate). Lengths vary by 20 % around the
// request's. The requests that fill the endpoint (each client's first, or with a rate the first
// tenth) are not counted. Rates are those of all replicas.
ServiceSummary simulate_service(const Request& request);

// The fields under "simulated" of a prediction (docs/json.md).
Json simulated_json(const ServiceSummary& summary);

}  // namespace ridge
