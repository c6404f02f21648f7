// The options that describe a prediction, on the command line: predict/request.h says what they
// mean.
#pragma once

#include <CLI/CLI.hpp>

#include "predict/request.h"

namespace ridge {

enum class EndpointOptions : bool { left_out, offered };  // --clients, --output

void add_request_options(CLI::App& command, RequestOptions& options,
                         EndpointOptions endpoint = EndpointOptions::offered);
// After parsing: throws Error where an option says something about experts and no model has any.
void check_experts(const CLI::App& command, std::span<const Request> requests);

}  // namespace ridge
