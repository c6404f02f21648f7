// The host's share of a stack's time, fitted to measured endpoints.
#pragma once

#include <string>

namespace ridge {

// Fits the host costs of every stack and kind of model to the endpoints below `data`, prints the
// errors of the halves that were not fitted, and the numbers for all rows, as the stacks' files
// have them under "host".
void fit_endpoints(const std::string& data);

}  // namespace ridge
