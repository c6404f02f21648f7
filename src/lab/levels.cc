#include "lab/levels.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/units.h"
#include "measure/cpu/bandwidth.h"
#include "measure/cpu/peaks.h"

namespace ridge {
namespace {

// Bytes for memory, whatever the last cache is said to hold: a virtual machine may see the cache of
// the whole host. One that reports 32 MiB of L3 has a cache that ends at 141 MiB (`ridge measure`).
constexpr double kMemorySet = 512e6;
static_assert(kMemorySet < kMostProbed);

// Rates that change by less are within the bands of what they predict.
constexpr double kMostMemoryDrift = 0.15, kMostCacheDrift = 0.3, kMostPeakDrift = 0.1;

// Half of a core's own cache leaves room for the stack; a quarter of a shared one, because other
// guests of the host use it as well.
double part_in(const Machine& machine, const Level& level, int threads) {
  const bool is_memory = &level == &machine.memory();
  double bytes = 0;
  if (is_memory) {
    bytes = kMemorySet / threads;
  } else if (level.capacity && level.scope == Scope::unit) {
    bytes = *level.capacity / 2;
  } else if (level.capacity) {
    bytes = *level.total_capacity() / 4 / threads;
  }
  return std::floor(bytes / 4096) * 4096;
}

// Seconds of one start, the least of a few passes of many; 0: one thread starts nothing.
double fastest_start(const ThreadTeam& team, const std::function<void(int count)>& start) {
  constexpr int kStarts = 2000, kPasses = 5;
  if (team.size() == 1) return 0;
  double best = 1;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto began = std::chrono::steady_clock::now();
    start(kStarts);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    best = std::min(best, took.count() / kStarts);
  }
  return best;
}

}  // namespace

std::vector<LabLevel> lab_levels(const Machine& machine, int threads) {
  std::vector<LabLevel> levels;
  for (const Level& level : machine.levels) {
    if (level.scope != Scope::unit && level.scope != Scope::device) continue;
    const double part = part_in(machine, level, threads);
    if (part <= 0 || !level.read_bandwidth) continue;
    levels.push_back({level.name, *level.read_bandwidth, part});
  }
  return levels;
}

System with_share_of_peak(System system, int threads) {
  Machine& machine = system.device;
  if (!machine.units || threads >= *machine.units) return system;
  for (Maybe& peak : machine.peak) {
    if (peak) peak = *peak * threads / *machine.units;
  }
  return system;
}

LabRates read_rates(const Machine& machine, ThreadTeam& team, bool quick,
                    const std::function<void()>& between) {
  const int threads = team.size();
  const Sampling sampling{quick ? 3 : 5, 0.004, quick ? 0.06 : 0.12};
  const double largest = part_in(machine, machine.memory(), threads);
  LabRates rates;
  rates.read.resize(machine.levels.size());
  rates.fp32 = measure_core_peak(team, sampling, machine.clock.value_or(0)).high;
  rates.barrier = fastest_start(team, [&team](int count) {
    team.run([&](int) {
      for (int i = 0; i < count; ++i) team.barrier();
    });
  });
  rates.region = fastest_start(team, [&team](int count) {
    for (int i = 0; i < count; ++i) team.run([](int) {});
  });
  const WorkingSet set(team, largest * threads);
  if (!set) return rates;
  const auto best = [&](Access access, double part) {
    between();
    const Rates found = measure_bandwidth(team, set, part, access, kernel_sets().front(), sampling);
    return *std::max_element(found.bytes_per_s.begin(), found.bytes_per_s.end());
  };
  for (size_t i = 0; i < machine.levels.size(); ++i) {
    const Level& level = machine.levels[i];
    const double part = part_in(machine, level, threads);
    if (part <= 0 || (level.scope != Scope::unit && level.scope != Scope::device)) continue;
    rates.read[i] = best(Access::read, part);
  }
  rates.stores = {best(Access::update, largest), best(Access::copy, largest),
                  best(Access::triad, largest)};
  return rates;
}

System with_rates(System system, const LabRates& rates) {
  Machine& machine = system.device;
  if (rates.barrier > 0) machine.launch.persistent = rates.barrier;
  if (rates.region > 0) machine.launch.stream = rates.region;
  if (rates.fp32 > 0) machine.peak[static_cast<int>(DType::fp32)] = rates.fp32;
  for (size_t i = 0; i < machine.levels.size() && i < rates.read.size(); ++i) {
    Level& level = machine.levels[i];
    if (rates.read[i] > 0) level.read_bandwidth = rates.read[i];
  }
  return system;
}

std::string drift_between(const Machine& machine, const LabRates& before, const LabRates& after,
                          bool memory) {
  const auto apart = [](double a, double b) {
    return a > 0 && b > 0 ? std::max(a, b) / std::min(a, b) - 1 : 0.0;
  };
  for (size_t i = 0; memory && i < machine.levels.size() && i < before.read.size(); ++i) {
    const Level& level = machine.levels[i];
    const double most = &level == &machine.memory() ? kMostMemoryDrift
                        : &level == machine.cache() ? kMostCacheDrift
                                                    : 0;
    if (most == 0 || apart(before.read[i], after.read[i]) <= most) continue;
    return fmt::format("plain reads of {} changed from {} before the experiment to {} after it",
                       level.name, pretty_rate(before.read[i]), pretty_rate(after.read[i]));
  }
  if (apart(before.fp32, after.fp32) <= kMostPeakDrift) return "";
  return fmt::format("fp32 multiply-adds changed from {} before the experiment to {} after it",
                     pretty_flop_rate(before.fp32), pretty_flop_rate(after.fp32));
}

}  // namespace ridge
