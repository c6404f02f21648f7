// Results of `ridge lab --json` as a file, and those of the last whole run on each device.
#pragma once

#include <string>

#include "base/json.h"
#include "lab/lab.h"

namespace ridge {

// Throws Error where the file cannot be read or does not hold results.
Json read_results(const std::string& path);

// The device that results are of: their field "backend", cpu where they have none.
LabDevice device_of_results(const Json& results);

// The results of the last `ridge lab all` on their device in the user's folder, for the page. A run
// whose results cannot be kept (no home, a full disk) is still a run: nothing is thrown.
void keep_results(const Json& results);
// Of a device, or of whichever ran last. Empty where none were kept.
std::string kept_results_path(LabDevice device);
std::string kept_results_path();

}  // namespace ridge
