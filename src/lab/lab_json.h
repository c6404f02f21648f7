// Results of experiments as JSON (docs/json.md) and as one standalone page.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "lab/lab.h"

namespace ridge {

struct LabRun {
  const Experiment* experiment = nullptr;
  LabResult result;
  double seconds = 0;  // that it took
};

// Of a whole run: where, when, how disturbed, how well predictions and measurements agree.
struct LabReport {
  std::string device;  // "AMD EPYC, 2 cores" or the GPU's name
  std::string date;
  bool quick = false;
  std::vector<std::string> conditions;
  std::vector<LabRun> runs;
};

Agreement agreement_of(const LabReport& report);
Json to_json(const LabReport& report);
std::string lab_html(const LabReport& report);

}  // namespace ridge
