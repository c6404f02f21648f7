#include "engine/account/roof_system.h"

#include <algorithm>

#include "base/error.h"
#include "machine/atlas.h"
#include "machine/nvml.h"

namespace ridge {
namespace {

// The name of the level that a step's weights come from.
std::string level_of(const System& system, const Runner& runner) {
  const Level* cache = system.device.cache();
  const bool cached = cache != nullptr && cache->total_capacity() &&
                      runner.weights().bytes <= *cache->total_capacity();
  return cached ? cache->name : system.device.memory().name;
}

}  // namespace

System with_read_rate(System system, const Runner& runner, double rate) {
  const std::string name = level_of(system, runner);
  for (Level& level : system.device.levels) {
    if (level.name == name && rate > 0) level.read_bandwidth = rate;
  }
  return system;
}

System cpu_roof_system(Runner& runner) {
  const System system = find_system("this");
  double best = system.device.level(level_of(system, runner))->read_bandwidth.value_or(0);
  constexpr int kPasses = 4;  // the first may find the caches cold
  for (int pass = 0; pass < kPasses; ++pass) best = std::max(best, runner.read_rate());
  return with_read_rate(system, runner, best);
}

System cuda_system() {
  const std::vector<GpuFound> gpus = detect_gpus();
  if (gpus.empty() || gpus.front().machine.empty()) {
    throw Error("no machine of the atlas describes {}: --atlas DIR with a file of ridge measure",
                gpus.empty() ? std::string("this GPU") : gpus.front().name);
  }
  return find_system(gpus.front().machine);
}

Stack engine_stack(const System& system) {
  return find_stack(system.device.kind == MachineKind::cpu ? "ridge" : "ridge-cuda");
}

}  // namespace ridge
