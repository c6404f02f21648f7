// What the reader of a command's figures must know about other users of the processors meanwhile.
#pragma once

#include <string>

#include "base/json.h"
#include "cli/engine_options.h"
#include "measure/cpu/noise.h"

namespace ridge {

// Why to doubt what the runner reached since `before`; empty: nothing was seen, or it is not known.
// It is known of one process on the CPU: the counters do not tell the processor time of other ranks
// from that of other users, and a GPU's figures hardly depend on either.
std::string doubt_since(const Disturbance& before, const EngineOptions& options,
                        const Runner& runner);

// "Other processes took 80 % of the processors while this was measured: ..." and a line feed;
// empty without a doubt.
std::string doubt_line(const std::string& doubt);

Json doubt_json(const std::string& doubt);  // null without one

}  // namespace ridge
