// Detection of the CPU: hwloc for cores and caches, /proc for the rest.
#include "machine/detect.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>

#include "base/memory_limit.h"

namespace ridge {
namespace {

std::string slurp(const std::string& path) {  // files of /proc have no size: read to the end
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Maybe number_in(const std::string& path) {
  const std::string text = slurp(path);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || value <= 0) return std::nullopt;
  return value;
}

struct CloseTopology {
  void operator()(hwloc_topology* topology) const { hwloc_topology_destroy(topology); }
};
using Topology = std::unique_ptr<hwloc_topology, CloseTopology>;

Topology load_topology() {
  hwloc_topology_t raw = nullptr;
  if (hwloc_topology_init(&raw) != 0) return nullptr;
  Topology topology(raw);
  if (hwloc_topology_load(raw) != 0) return nullptr;
  return topology;
}

// Caches as hwloc sees them, innermost first. The last one is shared by the device unless every
// core has its own.
std::vector<Level> cache_levels(hwloc_topology* topology, int cores) {
  const std::pair<hwloc_obj_type_t, const char*> kinds[] = {
      {HWLOC_OBJ_L1CACHE, "L1"}, {HWLOC_OBJ_L2CACHE, "L2"}, {HWLOC_OBJ_L3CACHE, "L3"}};
  std::vector<Level> levels;
  for (const auto& [type, name] : kinds) {
    const int count = hwloc_get_nbobjs_by_type(topology, type);
    if (count <= 0) continue;
    const hwloc_obj* first = hwloc_get_obj_by_type(topology, type, 0);
    if (!first || !first->attr || first->attr->cache.size == 0) continue;
    Level level;
    level.name = name;
    level.scope = count >= cores && type != HWLOC_OBJ_L3CACHE ? Scope::unit : Scope::device;
    level.capacity = static_cast<double>(first->attr->cache.size);
    level.instances = count;
    levels.push_back(level);
  }
  return levels;
}

std::string today() { return fmt::format("{:%Y-%m-%d}", fmt::gmtime(std::time(nullptr))); }

void set_measured(Machine& machine, Maybe& number, const std::string& path, const Measured& found) {
  number = found.value;
  machine.provenance[path] = {Origin::measured, found.how, found.spread, today()};
}

// cpufreq's maximum is the boost clock of one core; /proc/cpuinfo shows the clock of this moment,
// in a VM the nominal one. Both only stand in for a measured clock.
void set_clock(Machine& machine, const CpuInfo& info, const CpuProbe& probe) {
  if (probe.clock) {
    set_measured(machine, machine.clock, "clock", *probe.clock);
  } else if (const Maybe khz = number_in("/sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq")) {
    machine.clock = *khz * 1e3;
    machine.provenance["clock"] = {Origin::derived, "cpufreq maximum", {}, ""};
  } else if (info.mhz) {
    machine.clock = *info.mhz * 1e6;
    machine.provenance["clock"] = {Origin::derived, "/proc/cpuinfo", {}, ""};
  }
}

void set_peaks(Machine& machine, const CpuInfo& info) {
  const CpuRates rates = cpu_rates(info);
  machine.isa = rates.isa;
  const Maybe fp32 = rates.per_clock[static_cast<int>(DType::fp32)];
  if (!fp32) return;
  machine.lanes = *fp32 / 2;
  machine.provenance["lanes"] = {Origin::derived, "instruction set flags; " + rates.note, {}, ""};
  if (!machine.units || !machine.clock) return;
  for (int i = 0; i < kDTypeCount; ++i) {
    if (!rates.per_clock[i]) continue;
    machine.peak[i] = *machine.units * *rates.per_clock[i] * *machine.clock;
    const std::string path = fmt::format("peak.{}", dtype_name(static_cast<DType>(i)));
    machine.provenance[path] = {
        Origin::derived,
        fmt::format("{:g} cores x {:g} operations per clock ({}) x {:.2f} GHz", *machine.units,
                    *rates.per_clock[i], rates.note, *machine.clock / 1e9),
        {},
        ""};
  }
}

std::function<std::optional<CpuProbe>()>& cpu_probe() {
  static std::function<std::optional<CpuProbe>()> probe;
  return probe;
}

Machine detect() {
  Machine machine;
  machine.name = "this";
  machine.kind = MachineKind::cpu;
  machine.provenance[""] = {Origin::derived, "hwloc and /proc", {}, ""};
  const CpuInfo info = parse_cpuinfo(slurp("/proc/cpuinfo"));
  machine.title = info.model.empty() ? "this machine" : info.model;
  machine.vendor = info.vendor == "AuthenticAMD"   ? "AMD"
                   : info.vendor == "GenuineIntel" ? "Intel"
                                                   : info.vendor;
  const Topology topology = load_topology();
  int cores = topology ? hwloc_get_nbobjs_by_type(topology.get(), HWLOC_OBJ_CORE) : 0;
  if (cores <= 0) cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  machine.units = cores;
  if (topology) machine.levels = cache_levels(topology.get(), cores);
  const CpuProbe probe = (cpu_probe() ? cpu_probe()() : std::nullopt).value_or(CpuProbe{});
  set_clock(machine, info, probe);
  set_peaks(machine, info);
  if (probe.cache_bandwidth && !machine.levels.empty() && machine.levels.back().name == "L3") {
    set_measured(machine, machine.levels.back().read_bandwidth, "levels.L3.read_bandwidth",
                 *probe.cache_bandwidth);
  }
  Level memory;
  memory.name = "DRAM";
  memory.capacity = memory_limit();
  if (probe.read_bandwidth) {
    set_measured(machine, memory.read_bandwidth, "levels.DRAM.read_bandwidth",
                 *probe.read_bandwidth);
  } else if (!probe.no_read_bandwidth.empty()) {
    machine.notes = probe.no_read_bandwidth;
  }
  machine.levels.push_back(memory);
  return machine;
}

}  // namespace

void set_cpu_probe(std::function<std::optional<CpuProbe>()> probe) {
  cpu_probe() = std::move(probe);
}

Machine detect_this() {
  static std::once_flag once;
  static Machine machine;
  std::call_once(once, [] { machine = detect(); });
  return machine;
}

}  // namespace ridge
