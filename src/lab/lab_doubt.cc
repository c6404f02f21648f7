#include "lab/lab_doubt.h"

#include <fmt/format.h>

namespace ridge {

std::string gpu_doubt(const GpuMoment& before, const GpuMoment& after, double full_clock) {
  for (const GpuMoment* moment : {&before, &after}) {
    if (moment->processes > 1) return "another process uses the GPU";
    for (const char* hard : {"heat", "hardware slowdown", "power brake"}) {
      if (moment->limits.find(hard) == std::string::npos) continue;
      return "the GPU's clock is held down by " + moment->limits;
    }
  }
  if (!after.limits.empty() && after.clock > 0 && after.clock < 0.9 * full_clock) {
    return fmt::format("the GPU's clock is held at {:.2f} of {:.2f} GHz by {}", after.clock / 1e9,
                       full_clock / 1e9, after.limits);
  }
  return "";
}

}  // namespace ridge
