// Results of experiments as JSON (docs/json.md) and as one standalone page.
#pragma once

#include <string>

#include "base/json.h"
#include "lab/lab_run.h"

namespace ridge {

// One experiment with its results; and without, for the list.
Json to_json(const LabRun& run);
Json to_json(const Experiment& experiment);
Json to_json(const LabReport& report);
std::string lab_html(const LabReport& report);

}  // namespace ridge
