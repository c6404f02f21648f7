// Options of an API call as requests and numbers. A call may cost only so much work.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "page/api.h"
#include "predict/request.h"

namespace ridge {

// Throws Error where `each` predictions of every request take too many steps for one call.
void check_effort(std::span<const Request> requests, double each);

// Throws OptionError for one that is not in `known`.
void check_known_options(const ApiOptions& given, const std::vector<std::string>& known);

RequestOptions request_options_of(const ApiOptions& given);

// The request of a call that makes so many predictions of it. Throws Error.
Request request_of(const ApiOptions& given, double predictions);

// nullptr where the option is missing or empty.
const std::string* find_option(const ApiOptions& given, const char* name);
double number_option(const ApiOptions& given, const char* name, double otherwise);
// true, 1 or nothing behind the name; false, 0 or missing. Throws OptionError.
bool flag_option(const ApiOptions& given, const char* name);
// A whole number from `least` to `most`. Throws OptionError.
int whole_option(const ApiOptions& given, const char* name, int otherwise, int least, int most);

}  // namespace ridge
