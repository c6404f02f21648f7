// How right the predictor is: measured rows against expected times, by group.
#pragma once

#include <array>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "roofline/kernel_fits.h"

namespace ridge {

// Errors in percent of the measured time. Bias is the median of measured / predicted: above 1 the
// prediction is too fast.
struct ScoreStats {
  size_t rows = 0;
  double mape = 0, median = 0, p90 = 0, bias = 1;
  double naive_mape = 0;       // of the datasheet roofline on the same rows
  size_t outside_physics = 0;  // measured faster than the roof: warm caches, or bad data
  double in_band = 0;          // share of rows within the prediction's 80 % band
};

struct ScoreStratum {
  std::string name;
  ScoreStats stats;
};

struct ScoreGroup {
  std::string op, gpu, framework, dtype;
  bool defective = false;  // the data's notes say so: scored apart, in no total
  double distance = 0;     // of the farthest fit used; 0: fitted on this kind of rows
  ScoreStats stats;
  std::vector<ScoreStratum> strata;
};

struct Scoreboard {
  std::vector<ScoreGroup> groups;            // sorted
  std::map<std::string, ScoreStats> totals;  // by op, row-weighted over sound groups
  std::map<std::string, ScoreStats> apart;   // the same over defective groups
  std::vector<std::string> ignored;          // files of tables that are not kernels
};

// Scores every table below a folder with `threads` workers. What cannot be read is reported line
// by line through `complain` (never concurrently) and left out. Throws Error for a missing folder.
Scoreboard score_silicon(const std::string& folder, const KernelFits& fits, int threads,
                         const std::function<void(const std::string&)>& complain);

}  // namespace ridge
