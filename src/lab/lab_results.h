// Results of `ridge lab --json` as a file, and those of the last whole run.
#pragma once

#include <string>

#include "base/json.h"

namespace ridge {

// Throws Error where the file cannot be read or does not hold results.
Json read_results(const std::string& path);

// The results of the last `ridge lab all` in the user's folder, for the page. A run whose results
// cannot be kept (no home, a full disk) is still a run: nothing is thrown.
void keep_results(const Json& results);
// Empty where none were kept.
std::string kept_results_path();

}  // namespace ridge
