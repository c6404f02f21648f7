// Drift between two measurements of a machine: a health check for one host or a fleet.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "measure/reading.h"

namespace ridge {

struct Drift {
  std::string id;
  Dimension quantity;
  double before, after;
  double change;  // relative; positive is better: more bandwidth, less latency
  bool fell;      // worse by more than the tolerance
};

// One entry for each reading both have (by id, else by the machine's number they measure), worst
// first. Sizes and clocks are not ceilings and never fall. A reading in doubt in either run does
// not fall either: noise is no evidence.
std::vector<Drift> compare(const std::vector<Reading>& before, const std::vector<Reading>& after,
                           double tolerance);

}  // namespace ridge
