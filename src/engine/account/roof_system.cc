#include "engine/account/roof_system.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "machine/atlas.h"
#include "machine/nvml.h"
#include "roofline/ceilings.h"

namespace ridge {
namespace {

// What plain reads of a device's weights pass over. Of a pipeline a device stands for one of each
// stage (with_ranks).
double read_bytes(const Runner& runner) {
  return std::max(runner.weights().bytes, runner.repacked_bytes()) / runner.plan().tp;
}

// The name of the level that most of a step's weights come from.
std::string level_of(const System& system, const Runner& runner) {
  const Machine& machine = system.device;
  return cached_share(machine, read_bytes(runner)) > 0.5 ? machine.cache()->name
                                                         : machine.memory().name;
}

}  // namespace

System with_ranks(System system, const Plan& plan, const RankPlacement& ranks, int sharing) {
  if (ranks.ranks <= 1) return system;
  Machine& machine = system.device;
  system.devices_per_node = ranks.ranks;
  if (ranks.link) {
    machine.links = {*ranks.link};  // among all of them, wherever they are
  } else if (const Level* network = machine.level("network"); network && network->read_bandwidth) {
    system.devices_per_node = ranks.per_host;
    system.nodes = (ranks.ranks + ranks.per_host - 1) / ranks.per_host;
  }
  if (sharing <= 1) return system;
  machine.name += fmt::format("/{}", sharing);
  const auto divide = [](Maybe& value, double by) {
    if (value) value = *value / by;
  };
  divide(machine.units, sharing);
  for (Maybe& peak : machine.peak) divide(peak, sharing);
  for (Maybe& peak : machine.sustained) divide(peak, sharing);
  for (Level& level : machine.levels) {
    if (level.scope == Scope::unit) {
      level.instances /= sharing;
      divide(level.read_bandwidth, sharing);
    } else if (level.scope == Scope::device) {
      divide(level.read_bandwidth, std::min(plan.tp, sharing));
      divide(level.capacity, double(sharing) / plan.pp);
    }
  }
  return system;
}

System with_read_rate(System system, const Runner& runner, double rate_of_all) {
  if (rate_of_all <= 0) return system;
  const double rate = rate_of_all / runner.plan().tp;
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
  const RankPlacement ranks = runner.place_ranks();
  const System system = with_ranks(find_system("this"), runner.plan(), ranks, ranks.per_host);
  double best = 0;
  constexpr int kPasses = 4;  // the first may find the caches cold
  for (int pass = 0; pass < kPasses; ++pass) best = std::max(best, runner.read_rate());
  const System read = with_read_rate(system, runner, best);
  const auto rate = [name = level_of(system, runner)](const System& of) {
    return of.device.level(name)->read_bandwidth.value_or(0);
  };
  // What one stage of a pipeline reads alone is not known from the whole machine's bandwidth.
  return runner.plan().pp > 1 || rate(read) > rate(system) ? read : system;
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

System cuda_roof_system(Runner& runner) {
  const System system = cuda_system();
  RankPlacement ranks = runner.place_ranks();
  ranks.link.reset();  // of their CPU processes: sums travel between GPUs
  const auto gpus = static_cast<int>(detect_gpus().size());
  return with_ranks(system, runner.plan(), ranks, (ranks.per_host + gpus - 1) / gpus);
}

Stack engine_stack(const System& system) {
  return find_stack(system.device.kind == MachineKind::cpu ? "ridge" : "ridge-cuda");
}

}  // namespace ridge
