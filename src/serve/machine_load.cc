#include "serve/machine_load.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <utility>

namespace ridge {
namespace {

double own_processor_time() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace

MachineLoad::MachineLoad() : last_(disturbance_now()), last_own_s_(own_processor_time()) {}

double MachineLoad::others() {
  const Disturbance now = disturbance_now();
  const double own_s = own_processor_time();
  const double share = taken_by_others(last_, now, own_s - last_own_s_);
  last_ = now;
  last_own_s_ = own_s;
  return share;
}

std::string load_json(double others) {
  return fmt::format("{{\"others\":{:.1f},\"busy\":{}}}", others, others >= MachineLoad::kBusy);
}

}  // namespace ridge
