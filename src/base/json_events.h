// JSON without a tree: what parse_json() reads, as nlohmann's events.
#pragma once

#include <string_view>

#include "base/json.h"

namespace ridge {

// Throws as parse_json() does; parse_error() of `to` must throw its exception.
void parse_json_events(std::string_view text, std::string_view where, nlohmann::json_sax<Json>& to);

}  // namespace ridge
