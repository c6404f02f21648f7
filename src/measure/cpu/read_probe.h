// A quick look at this machine's memory and clock: good to a few per cent in a fifth of a second.
// `ridge measure` does it thoroughly.
#pragma once

#include <optional>

#include "machine/detect.h"

namespace ridge {

// All cores sum a buffer several times the last cache for about 150 ms; then all run a chain of
// dependent additions, one a clock. What could not be tried (too little free memory, no threads
// allowed) is left out.
std::optional<CpuProbe> probe_cpu();

}  // namespace ridge
