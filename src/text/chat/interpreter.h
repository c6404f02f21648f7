// Runs a parsed chat template.
#pragma once

#include <ctime>
#include <string_view>
#include <utility>
#include <vector>

#include "text/chat/ast.h"
#include "text/chat/functions.h"

namespace ridge::jinja {

// The template's output for these variables. `now` is what strftime_now() formats, as local time.
// Throws Error "line N: ..." for errors, for raise_exception(), and where the template nests too
// deep or writes too much, and WorkLimitError where it takes too long.
Text run_template(const Block& program, std::vector<std::pair<std::string, Value>> variables,
                  std::time_t now, WorkLimit& work);

}  // namespace ridge::jinja
