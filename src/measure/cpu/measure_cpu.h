// Everything `ridge measure` finds out about the CPU.
#pragma once

#include "measure/reading.h"

namespace ridge {

struct CpuOptions {
  Effort effort = Effort::quick;
  std::string disk_folder;  // empty: the disk is left out
};

// What cannot be tried (no memory, no threads, no huge pages) is listed in `missing`.
Report measure_cpu(const CpuOptions& options, const StepProgress& progress);

}  // namespace ridge
