// Reasons to doubt a measurement on a GPU; measure/cpu/noise.h has those of the processors.
#pragma once

#include <string>

namespace ridge {

// A GPU at one moment, as NVML shows it. Where NVML does not tell, nothing is known.
struct GpuMoment {
  double clock = 0;    // of the SMs, Hz; 0: unknown
  std::string limits;  // what holds the clock down: "heat (software) and the power limit"
  int processes = 0;   // that compute on it, this one among them
};
// Of the first device; defined in cuda/.
GpuMoment gpu_moment();

// Heat and slowdowns of the hardware, other processes, and a clock that anything holds below 90 %
// of `full_clock` (0: unknown), before an experiment or after it; empty: none was seen.
std::string gpu_doubt(const GpuMoment& before, const GpuMoment& after, double full_clock);

}  // namespace ridge
