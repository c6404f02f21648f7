// `ridge measure --ranks`.
#pragma once

#include <string>

#include "measure/reading.h"

namespace ridge {

// Measures, shows and writes the machine file: `out`, or by default one beside those of the
// devices, which holds nothing but the link.
void run_measure_ranks(int ranks, Effort effort, const std::string& out, bool json);
// The same of GPU ranks (--device cuda).
void run_measure_gpu_ranks(int ranks, Effort effort, const std::string& out, bool json);

}  // namespace ridge
