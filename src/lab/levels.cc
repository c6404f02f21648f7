#include "lab/levels.h"

#include <algorithm>
#include <cmath>

#include "measure/cpu/bandwidth.h"
#include "measure/cpu/latency.h"
#include "measure/cpu/peaks.h"

namespace ridge {
namespace {

// Bytes for memory, whatever the last cache is said to hold: a virtual machine may see the cache of
// the whole host. One that reports 32 MiB of L3 has a cache that ends at 141 MiB (`ridge measure`).
constexpr double kMemorySet = 512e6, kLargestRing = 128e6;
static_assert(kMemorySet + kLargestRing <= kMostProbed);

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

}  // namespace

std::vector<LabLevel> lab_levels(const Machine& machine, int threads) {
  std::vector<LabLevel> levels;
  for (const Level& level : machine.levels) {
    if (level.scope != Scope::unit && level.scope != Scope::device) continue;
    const double part = part_in(machine, level, threads);
    if (part <= 0 || !level.read_bandwidth) continue;
    levels.push_back({level.name, *level.read_bandwidth, level.latency.value_or(0), part});
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

StoreRates probe_stores(const Machine& machine, ThreadTeam& team, bool quick) {
  const double part = part_in(machine, machine.memory(), team.size());
  const WorkingSet set(team, part * team.size());
  if (!set) return {};
  const Sampling sampling{quick ? 3 : 7, 0.004, quick ? 0.06 : 0.25};
  const auto best = [&](Access access) {
    const Rates rates = measure_bandwidth(team, set, part, access, kernel_sets().front(), sampling);
    return *std::max_element(rates.bytes_per_s.begin(), rates.bytes_per_s.end());
  };
  return {best(Access::update), best(Access::copy), best(Access::triad)};
}

System with_probed_levels(System system, ThreadTeam& team, bool quick,
                          const std::function<void()>& between) {
  Machine& machine = system.device;
  const int threads = team.size();
  const Sampling sampling{quick ? 3 : 7, 0.004, quick ? 0.06 : 0.25};
  const double largest = part_in(machine, machine.memory(), threads);
  const WorkingSet set(team, largest * threads);
  const MappedBuffer ring_memory(size_t(std::min(largest, kLargestRing)));
  if (!set || !ring_memory) return system;
  ThreadTeam one(1);
  // The peak is derived from the clock, which a busy machine hides.
  Maybe& peak = machine.peak[static_cast<int>(DType::fp32)];
  const double core = measure_core_peak(one, sampling, machine.clock.value_or(0)).value;
  peak = std::max(peak.value_or(0), core * threads);
  for (Level& level : machine.levels) {
    const double part = part_in(machine, level, threads);
    if (part <= 0 || (level.scope != Scope::unit && level.scope != Scope::device)) continue;
    between();
    const Rates rates =
        measure_bandwidth(team, set, part, Access::read, kernel_sets().front(), sampling);
    const double best = *std::max_element(rates.bytes_per_s.begin(), rates.bytes_per_s.end());
    level.read_bandwidth = std::max(best, level.read_bandwidth.value_or(0));
    if (!level.latency) {
      const double bytes = std::min(part, double(ring_memory.size()));
      // The 10th percentile: other processes only ever add time.
      level.latency = measure_latency(one, ring_memory, bytes, sampling).low;
    }
  }
  return system;
}

}  // namespace ridge
