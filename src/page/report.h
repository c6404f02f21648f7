// A report: the page with its answers inside, one file that needs neither server nor network.
#pragma once

#include <optional>
#include <string>

#include "page/api.h"

namespace ridge {

// `config` holds options by the page's names ("batch", "target", "seen-batch"). Throws Error where
// an option is wrong, the configuration cannot be predicted, or the build has no page.
// `explanation` is what ridge explain says of files; without it the numbers in `config` are
// explained. `lab` is lab_view() of results; without it the report has no lab panel.
std::string report_html(const ApiOptions& config, const std::string& made,
                        const std::optional<Json>& explanation = std::nullopt,
                        const std::optional<Json>& lab = std::nullopt);

}  // namespace ridge
