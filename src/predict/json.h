// Predictions as JSON. docs/json.md documents every field.
#pragma once

#include "base/json.h"
#include "predict/predict.h"

namespace ridge {

Json to_json(const Request& request, const Prediction& prediction);

}  // namespace ridge
