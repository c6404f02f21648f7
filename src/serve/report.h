// A report: the page with its answers inside, one file that needs neither server nor network.
#pragma once

#include <string>

#include "serve/api.h"

namespace ridge {

// `config` holds options by the page's names ("batch", "target", "seen-batch"). Throws Error where
// an option is wrong, the configuration cannot be predicted, or the build has no page.
std::string report_html(const ApiOptions& config, const std::string& made);

}  // namespace ridge
