// /api/plan: options in, the JSON of `ridge plan --json` out, within bounds that a server can bear.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "page/api.h"

namespace ridge {

// Name and help of each option.
std::vector<std::pair<std::string, std::string>> plan_api_options();

// Throws OptionError, or Error where the search takes longer than its limit or nobody waits for it
// any more. One plan is made at a time: it uses all cores.
Json plan_answer_for(const ApiOptions& options, const Cancelled& cancelled = {});

}  // namespace ridge
