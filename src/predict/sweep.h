// A sweep as JSON small enough to draw: one line a point instead of a whole prediction.
#pragma once

#include <vector>

#include "base/json.h"
#include "predict/request.h"

namespace ridge {

// {sweep: [names], axes: [{name, labels}], points: [{<axis>: label, ttft_s, tpot_s, ...}]}. A point
// is on the Pareto front when no other that fits has more tokens/s per user and per device.
Json sweep_json(const RequestGrid& grid, const std::vector<Prediction>& results);

}  // namespace ridge
