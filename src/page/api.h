// The JSON API: a path and options in, JSON out. Without HTTP, so that the report asks it too.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/work_limit.h"
#include "diagnose/explain_options.h"

namespace ridge {

using ApiOptions = std::map<std::string, std::string>;

enum class OptionSet : uint8_t {
  none,
  request,  // those of `ridge predict`
  explain,  // request and observation
  tiles,
  plan,
};

struct ApiOptionHelp {
  const char* name;
  const char* help;
};

struct ApiEndpoint {
  const char* path;  // "/api/predict"
  const char* summary;
  OptionSet set;
  const char* extra;                          // one more option; "" where there is none
  const char* extra_help;                     // what it means
  Json (*answer)(const ApiOptions& options);  // null: `search` answers
  std::span<const ApiOptionHelp> more = {};   // further options
  // Asks `cancelled` from several threads.
  Json (*search)(const ApiOptions& options, const Cancelled& cancelled) = nullptr;
};
std::span<const ApiEndpoint> api_endpoints();
const ApiEndpoint* find_api_endpoint(std::string_view path);  // nullptr: none

// The options an endpoint takes: name and help.
std::vector<std::pair<std::string, std::string>> options_of(const ApiEndpoint& endpoint);

// Answers, or throws Error; OptionError where one option is at fault. What takes long (`search`)
// ends with an Error where nobody waits for it any more.
Json answer(const ApiEndpoint& endpoint, const ApiOptions& options,
            const Cancelled& cancelled = {});

// What the options of /api/explain ask. Throws as answer() does.
ExplainOptions explain_options_of(const ApiOptions& options);

// The API described as OpenAPI 3.1.
Json openapi_json();

}  // namespace ridge
