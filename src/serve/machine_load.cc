#include "serve/machine_load.h"

#include <fmt/format.h>

namespace ridge {

MachineLoad::MachineLoad() : last_(machine_moment()) {}

double MachineLoad::others() {
  const MachineMoment now = machine_moment();
  const double share = taken_by_others(last_.machine, now.machine, now.own_s - last_.own_s);
  last_ = now;
  return share;
}

std::string load_json(double others) {
  return fmt::format("{{\"others\":{:.1f},\"busy\":{}}}", others, others >= MachineLoad::kBusy);
}

}  // namespace ridge
