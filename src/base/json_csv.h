// A list in JSON as comma-separated values.
#pragma once

#include <string>

#include "base/json.h"

namespace ridge {

// Objects with the same keys as RFC 4180 lines under a header; null is an empty field.
std::string json_csv(const Json& rows);

}  // namespace ridge
