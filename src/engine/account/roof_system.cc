#include "engine/account/roof_system.h"

#include <algorithm>

#include "base/error.h"
#include "machine/atlas.h"
#include "machine/nvml.h"
#include "roofline/ceilings.h"

namespace ridge {
namespace {

// What plain reads of the weights pass over.
double read_bytes(const Runner& runner) {
  return std::max(runner.weights().bytes, runner.repacked_bytes());
}

// The name of the level that most of a step's weights come from.
std::string level_of(const System& system, const Runner& runner) {
  const Machine& machine = system.device;
  return cached_share(machine, read_bytes(runner)) > 0.5 ? machine.cache()->name
                                                         : machine.memory().name;
}

}  // namespace

System with_read_rate(System system, const Runner& runner, double rate) {
  if (rate <= 0) return system;
  const double share = cached_share(system.device, read_bytes(runner));
  const std::string name = level_of(system, runner);
  const Level* cache = system.device.cache();
  const double cache_s = share > 0 ? 1 / *cache->read_bandwidth : 0;
  const double memory_s = 1 / system.device.memory().read_bandwidth.value_or(rate);
  const double other = share > 0.5 ? (1 - share) * memory_s : share * cache_s;
  constexpr double kMost = 0.75;  // beyond, the other level's part hides this one's
  if (other * rate > kMost) return system;
  for (Level& level : system.device.levels) {
    if (level.name == name) {
      level.read_bandwidth = std::max(share, 1 - share) / (1 / rate - other);
    }
  }
  return system;
}

System cpu_roof_system(Runner& runner) {
  const System system = find_system("this");
  double best = 0;
  constexpr int kPasses = 4;  // the first may find the caches cold
  for (int pass = 0; pass < kPasses; ++pass) best = std::max(best, runner.read_rate());
  const System read = with_read_rate(system, runner, best);
  const auto rate = [name = level_of(system, runner)](const System& of) {
    return of.device.level(name)->read_bandwidth.value_or(0);
  };
  return rate(read) > rate(system) ? read : system;
}

System cuda_system() {
  const std::vector<GpuFound> gpus = detect_gpus();
  if (gpus.empty()) throw Error("no CUDA device was found: --device cpu runs everywhere");
  if (gpus.front().machine.empty()) {
    throw Error("no machine of the atlas describes {}: --atlas DIR with a file of ridge measure",
                gpus.front().name);
  }
  return find_system(gpus.front().machine);
}

Stack engine_stack(const System& system) {
  return find_stack(system.device.kind == MachineKind::cpu ? "ridge" : "ridge-cuda");
}

}  // namespace ridge
