// A quick look at this machine's memory and clock: good to a few per cent in a fifth of a second.
// `ridge measure` does it thoroughly.
#pragma once

#include <optional>

#include "machine/detect.h"

namespace ridge {

// All cores sum a buffer that is in no cache for about 150 ms; then all run a chain of dependent
// additions, one a clock. What could not be tried (too little free memory, no threads allowed) is
// left out.
std::optional<CpuProbe> probe_cpu();
// Memory that it holds at most.
double probe_bytes();

}  // namespace ridge
