// What `ridge measure` shows and where its files go: the table, the drift, the pictures.
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
std::string measured_today();  // "2026-11-15"
// The user's file of this name among the machine files; makes the folder. Throws Error.
std::string measured_file(const std::string& name);
// Staircases of bandwidth and latency over the working set, and the measured roofline, in one
// document.
std::string report_svg(const Report& report);

}  // namespace ridge
