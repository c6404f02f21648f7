// A quick look at this machine's memory and clock: good to a few per cent in a fifth of a second.
// `ridge measure` does it thoroughly.
#pragma once

#include <optional>

#include "machine/detect.h"

namespace ridge {

// All cores sum a buffer several times the last cache, for about `seconds`; then all run a chain
// of dependent additions, one a clock. nullopt where there is not enough free memory to try.
std::optional<CpuProbe> probe_cpu(double seconds = 0.15);

}  // namespace ridge
