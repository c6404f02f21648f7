// The host's share of a stack's time, fitted to measured endpoints.
#pragma once

#include <string>

namespace ridge {

// Fits step, layer, prompt_step, first and burst of every stack to the endpoints below `data` (half
// the configurations, scored on the other half, then all), prints the scores and, with a folder,
// writes the numbers into its <stack>.json.
void fit_endpoints(const std::string& data, const std::string& write);

}  // namespace ridge
