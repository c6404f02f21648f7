// Limits of a server that never gives up a client of a test, however slow the machine is.
#pragma once

#include "http/http.h"

namespace ridge {

inline constexpr std::chrono::hours kNever{1};  // no test takes so long

inline HttpLimits patient_limits(HttpLimits limits = {}) {
  limits.header = limits.read = limits.body_grace = limits.idle = limits.stall = kNever;
  return limits;
}

}  // namespace ridge
