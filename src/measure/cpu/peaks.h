// Peak arithmetic per format and instruction set.
#pragma once

#include "measure/cpu/timing.h"
#include "measure/reading.h"

namespace ridge {

// "peak.fp32.AVX2" and so on for everything the CPU has, all threads of the team at once. The
// fastest of each format carries the path of the machine's number. `clock` (Hz) only serves the
// words; `missing` gains what could not be tried.
std::vector<Reading> measure_peaks(ThreadTeam& team, const Sampling& sampling, double clock,
                                   const StepProgress& progress, std::vector<std::string>& missing);

// "core.fp32": the widest instruction set on a team of one.
Reading measure_core_peak(ThreadTeam& one, const Sampling& sampling, double clock);

}  // namespace ridge
