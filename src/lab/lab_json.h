// Results of experiments as JSON (docs/json.md) and as one standalone page.
#pragma once

#include <string>

#include "base/json.h"
#include "lab/lab_run.h"

namespace ridge {

// One experiment with its results; and without, for the list of a device.
Json to_json(const LabRun& run);
Json to_json(const Experiment& experiment, LabDevice device);
Json to_json(const LabReport& report);
// Of experiments with results as to_json() wrote them: the field "agreement" of a report.
Json agreement_json(const Json& experiments);
std::string lab_html(const LabReport& report);

}  // namespace ridge
