#include "live/machine_load.h"

#include <fmt/format.h>

namespace ridge {

MachineLoad::MachineLoad() : last_(disturbance_now()) {}

double MachineLoad::others() {
  const Disturbance now = disturbance_now();
  const double share = taken_by_others(last_, now);
  last_ = now;
  return share;
}

std::string load_json(double others) {
  return fmt::format("{{\"others\":{:.1f},\"busy\":{}}}", others, others >= MachineLoad::kBusy);
}

}  // namespace ridge
