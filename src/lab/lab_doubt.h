// Reasons to doubt a measurement: what else the machine did while it ran.
#pragma once

#include <string>

#include "measure/cpu/noise.h"

namespace ridge {

struct LabMoment {
  Disturbance machine;
  double own_s = 0;  // processor time of this process
};
LabMoment lab_moment();

// Throttling, other guests of the host and other processes, each above what a median forgives;
// empty: none was seen. Other processes count where they took a tenth of the processors.
std::string doubt_between(const LabMoment& before, const LabMoment& after);

}  // namespace ridge
