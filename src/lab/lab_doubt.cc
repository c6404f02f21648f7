#include "lab/lab_doubt.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/units.h"

namespace ridge {
namespace {

constexpr double kMostStolen = 0.02, kMostOther = 0.1;
// Ticks are counted by sampling: fewer than this many of other processes may be counting error.
constexpr double kLeastTicks = 6;

double seconds_of(const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); }

}  // namespace

LabMoment lab_moment() {
  LabMoment moment;
  moment.machine = disturbance_now();
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  moment.own_s = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  return moment;
}

std::string doubt_between(const LabMoment& before, const LabMoment& after) {
  const Disturbance &a = before.machine, &b = after.machine;
  if (b.throttled > a.throttled) return "the control group's CPU quota stopped the process";
  const double total = b.total - a.total;
  if (total <= 0) return "";
  const double stolen = b.steal - a.steal;
  if (stolen >= kLeastTicks && stolen > kMostStolen * total) {
    return fmt::format("the hypervisor gave {} of the processor time to other guests",
                       pretty_percent(stolen / total));
  }
  const double own = (after.own_s - before.own_s) * double(sysconf(_SC_CLK_TCK));
  const double other = b.busy - a.busy - own;
  if (other >= kLeastTicks && other > kMostOther * total) {
    return fmt::format("other processes took {} of the processors", pretty_percent(other / total));
  }
  return "";
}

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
