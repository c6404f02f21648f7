#include "measure/cpu/noise.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace ridge {

Disturbance disturbance_now() {
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
  return now;
}

std::vector<std::string> disturbances_between(const Disturbance& before, const Disturbance& after,
                                              int threads) {
  std::vector<std::string> lines;
  const double total = after.total - before.total;
  const double stolen = total > 0 ? (after.steal - before.steal) / total : 0;
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

double taken_by_others(const Disturbance& before, const Disturbance& after, double own_s) {
  const double total = after.total - before.total;
  if (total <= 0) return 0;
  const double own = own_s * static_cast<double>(::sysconf(_SC_CLK_TCK));
  const double others = after.busy - before.busy + after.steal - before.steal - own;
  return std::clamp(others / total, 0.0, 1.0);
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
