#include "page/api_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "base/units.h"

namespace ridge {
namespace {

// What one call may cost, in forward passes lowered and timed (each tens of microseconds).
constexpr double kMaxSteps = 50000;

}  // namespace

void check_effort(std::span<const Request> requests, double each) {
  double steps = 0;
  for (const Request& r : requests) {
    const double chunk = r.clients ? endpoint_chunk(r, r.prompt) : r.plan.chunk;
    steps += each * (chunk > 0 ? r.prompt / chunk + 2 : 2);
  }
  if (steps > kMaxSteps) {
    throw Error("too much for one call: {} steps of at most {}; fewer points or larger chunks",
                pretty_count(steps), pretty_count(kMaxSteps));
  }
}

void check_known_options(const ApiOptions& given, const std::vector<std::string>& known) {
  for (const auto& [name, value] : given) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const std::vector<std::string> near = nearest_names(name, known);
    throw OptionError(name,
                      fmt::format("unknown option '{}'{}", name.substr(0, 64),
                                  near.empty() ? "" : "; did you mean " + near.front() + "?"));
  }
}

RequestOptions request_options_of(const ApiOptions& given) {
  RequestOptions options;
  for (const RequestOption& option : request_options()) {
    const auto found = given.find(option.name);
    if (found == given.end()) continue;
    if (option.value) {
      options.*option.value = found->second;
    } else {
      options.*option.flag = flag_option(given, option.name);
    }
  }
  return options;
}

Request request_of(const ApiOptions& given, double predictions) {
  Request request = make_request(request_options_of(given), Sources::names_only);
  check_effort({&request, 1}, predictions);
  return request;
}

const std::string* find_option(const ApiOptions& given, const char* name) {
  const auto found = given.find(name);
  return found == given.end() || found->second.empty() ? nullptr : &found->second;
}

double number_option(const ApiOptions& given, const char* name, double otherwise) {
  const std::string* text = find_option(given, name);
  return text ? parse_quantity(*text, "", name) : otherwise;
}

bool flag_option(const ApiOptions& given, const char* name) {
  const auto found = given.find(name);
  if (found == given.end()) return false;
  const std::string& value = found->second;
  if (value == "true" || value == "1" || value.empty()) return true;
  if (value == "false" || value == "0") return false;
  throw OptionError(name, fmt::format("{} is true or false, not '{}'", name, value.substr(0, 64)));
}

int whole_option(const ApiOptions& given, const char* name, int otherwise, int least, int most) {
  double value = 0;
  try {
    value = number_option(given, name, otherwise);
  } catch (const Error& error) {
    throw OptionError(name, error.what());
  }
  if (!(value >= least && value <= most) || value != std::floor(value)) {
    throw OptionError(name,
                      fmt::format("{} must be a whole number from {} to {}", name, least, most));
  }
  return static_cast<int>(value);
}

}  // namespace ridge
