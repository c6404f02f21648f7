// What `ridge measure` shows: the table, the drift, the pictures.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "measure/compare.h"
#include "measure/reading.h"

namespace ridge {

void print_report(const Report& report);
void print_drift(const std::vector<Drift>& drifts, double tolerance);
nlohmann::json drift_json(const std::vector<Drift>& drifts);
// Staircases of bandwidth and latency over the working set, and the measured roofline, in one
// document.
std::string report_svg(const Report& report);

}  // namespace ridge
