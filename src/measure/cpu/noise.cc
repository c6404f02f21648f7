#include "measure/cpu/noise.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <utility>

#include "base/units.h"

namespace ridge {
namespace {

constexpr double kMostStolen = 0.02, kMostOther = 0.1;
// Ticks are counted by sampling: fewer than this many of other processes may be counting error.
constexpr double kLeastTicks = 6;

double seconds_of(const timeval& t) { return double(t.tv_sec) + 1e-6 * double(t.tv_usec); }

std::function<Disturbance()>& readings() {
  static std::function<Disturbance()> source;
  return source;
}

// Clock ticks between two moments: of all processors, and what other guests of the host and other
// processes took of them.
struct Ticks {
  double total, guests, processes;
};
Ticks ticks_between(const Disturbance& before, const Disturbance& after) {
  const double own = (after.own_s - before.own_s) * double(sysconf(_SC_CLK_TCK));
  return {after.total - before.total, after.steal - before.steal, after.busy - before.busy - own};
}

}  // namespace

void set_disturbances(std::function<Disturbance()> source) { readings() = std::move(source); }

Disturbance disturbance_now() {
  if (readings()) return readings()();
  Disturbance now;
  std::ifstream stat("/proc/stat");
  std::string line;
  if (std::getline(stat, line)) {  // cpu user nice system idle iowait irq softirq steal ...
    std::istringstream words(line);
    std::string name;
    words >> name;
    double ticks = 0;
    for (int field = 0; field < 8 && words >> ticks; ++field) {
      now.total += ticks;
      if (field == 7) now.steal = ticks;
      if (field != 3 && field != 4 && field != 7) now.busy += ticks;
    }
  }
  std::ifstream quota("/sys/fs/cgroup/cpu.stat");
  for (std::string key; quota >> key;) {
    double value = 0;
    quota >> value;
    if (key == "nr_throttled") now.throttled = value;
  }
  std::ifstream load("/proc/loadavg");
  load >> now.load;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  now.own_s = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  return now;
}

std::vector<std::string> disturbances_between(const Disturbance& before, const Disturbance& after,
                                              int threads) {
  std::vector<std::string> lines;
  const Ticks ticks = ticks_between(before, after);
  const double stolen = ticks.total > 0 ? ticks.guests / ticks.total : 0;
  if (stolen > 0.005) {
    lines.push_back(fmt::format(
        "steal: the hypervisor gave {:.1f} % of the processor time to other guests", stolen * 100));
  }
  if (after.throttled > before.throttled) {
    lines.push_back(fmt::format("the control group's CPU quota stopped the process {:g} times",
                                after.throttled - before.throttled));
  }
  // Read before the threads of this measurement start: the load is of other processes.
  if (before.load > 0.5 * threads) {
    lines.push_back(fmt::format("{:.1f} processes were runnable on {} processors before the start",
                                before.load, threads));
  }
  return lines;
}

std::string doubt_between(const Disturbance& before, const Disturbance& after) {
  if (after.throttled > before.throttled)
    return "the control group's CPU quota stopped the process";
  const Ticks ticks = ticks_between(before, after);
  if (ticks.total <= 0) return "";
  if (ticks.guests >= kLeastTicks && ticks.guests > kMostStolen * ticks.total) {
    return fmt::format("the hypervisor gave {} of the processor time to other guests",
                       pretty_percent(ticks.guests / ticks.total));
  }
  if (ticks.processes >= kLeastTicks && ticks.processes > kMostOther * ticks.total) {
    return fmt::format("other processes took {} of the processors",
                       pretty_percent(ticks.processes / ticks.total));
  }
  return "";
}

double taken_by_others(const Disturbance& before, const Disturbance& after) {
  const Ticks ticks = ticks_between(before, after);
  if (ticks.total <= 0) return 0;
  return std::clamp((ticks.guests + ticks.processes) / ticks.total, 0.0, 1.0);
}

double chain_clock(ThreadTeam& team) {
  constexpr int kChain = 4'000'000;
  const auto chain = [](int index) {
    uint64_t value = static_cast<uint64_t>(index), step = 3;
    for (int i = 0; i < kChain / 8; ++i) {
      for (int unroll = 0; unroll < 8; ++unroll) {
        value += step;
        asm volatile("" : "+r"(value), "+r"(step));
      }
    }
  };
  double best = 0;
  for (int pass = 0; pass < 5; ++pass) {
    best = std::max(best, kChain / timed_pass(team, chain).seconds);
  }
  return best;
}

}  // namespace ridge
