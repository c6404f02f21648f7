// The options that describe a prediction, on the command line: predict/request.h says what they
// mean.
#pragma once

#include <CLI/CLI.hpp>

#include "predict/request.h"

namespace ridge {

void add_request_options(CLI::App& command, RequestOptions& options);

}  // namespace ridge
