#include "roofline/ceilings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "roofline/kernel_times.h"

namespace ridge {
namespace {

// A type the machine has no units for runs in the next wider one it has.
std::vector<DType> stand_ins(DType dtype) {
  switch (dtype) {
    case DType::fp4:
      return {DType::fp4, DType::fp8, DType::bf16, DType::fp16, DType::fp32};
    case DType::fp8:
      return {DType::fp8, DType::bf16, DType::fp16, DType::fp32};
    case DType::int4:
      return {DType::int4, DType::int8, DType::bf16, DType::fp16, DType::fp32};
    case DType::int8:
      return {DType::int8, DType::bf16, DType::fp16, DType::fp32};
    case DType::bf16:
      return {DType::bf16, DType::fp16, DType::fp32};
    case DType::fp16:
      return {DType::fp16, DType::bf16, DType::fp32};
    case DType::tf32:
      return {DType::tf32, DType::fp32};
    default:
      return {dtype};
  }
}

// A machine that publishes no peak at all is taken for a vector machine: fp32 at this many
// operations per byte of memory bandwidth, the median of the atlas's machines without matrix units
// (7 for Fermi to 45 for Zen 5).
constexpr double kVectorIntensity = 28;

bool has_peak(const Machine& machine) {
  return std::any_of(std::begin(machine.peak), std::end(machine.peak),
                     [](const Maybe& peak) { return peak.has_value(); });
}

// The fp32 rate of a machine that has none published. A multiplier's area grows with the square of
// its operands' width, so units known for a narrower type would do fp32 at that ratio.
double assumed_fp32(const Machine& machine) {
  double peak = 0;
  for (int i = 0; i < kDTypeCount; ++i) {
    const double narrower = dtype_bits(static_cast<DType>(i)) / 32.0;
    if (!machine.peak[i] || narrower > 1) continue;
    peak = std::max(peak, *machine.peak[i] * narrower * narrower);
  }
  return peak > 0 ? peak : kVectorIntensity * machine.memory().read_bandwidth.value_or(0);
}

// Vector units do at most twice fp32 in 16 bits (avx512_bf16, avx512_fp16) and four times in int8
// (VNNI); what a CPU has beyond that are tiles.
Maybe without_tiles(const Machine& machine, DType dtype) {
  const Maybe peak = machine.peak_of(dtype), fp32 = machine.peak_of(DType::fp32);
  if (!peak || !fp32 || dtype_bits(dtype) > 16) return peak;
  return std::min(*peak, *fp32 * 32 / dtype_bits(dtype));
}

// Without a dot product of bytes, 8-bit weights are multiplied in 16 bits: two products in the lane
// of an fp32 one.
Maybe cpu_peak(const Machine& machine, DType dtype, const Stack& stack) {
  const bool tiles = stack.cpu_tiles == CpuTiles::all ||
                     (stack.cpu_tiles == CpuTiles::bf16_gemms && dtype == DType::bf16);
  const Maybe peak = tiles ? machine.peak_of(dtype) : without_tiles(machine, dtype);
  if (peak || dtype != DType::int8 || !machine.peak_of(DType::fp32)) return peak;
  return 2 * *machine.peak_of(DType::fp32);
}

// Every rate is finite: work that takes no time would promise any speed.
void set_peaks(Ceilings& c, const Machine& machine, const Stack& stack) {
  const double fp32 = machine.peak_of(DType::fp32).value_or(assumed_fp32(machine));
  c.vector_s = 1 / fp32;
  const bool cpu = machine.kind == MachineKind::cpu;
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    c.runs_as[i] = dtype;
    const double wider = std::max(1.0, dtype_bits(dtype) / 32.0);
    c.flop_s[i] = wider * wider / fp32;  // unless one of the following has a peak
    for (DType candidate : stand_ins(dtype)) {
      const Maybe peak = cpu ? cpu_peak(machine, candidate, stack) : machine.peak_of(candidate);
      if (peak) {
        c.runs_as[i] = candidate;
        c.peak[i] = *peak;
        c.flop_s[i] = 1 / *peak;
        break;
      }
    }
  }
  const Maybe bf16 = without_tiles(machine, DType::bf16);
  if (cpu && stack.cpu_tiles == CpuTiles::bf16_gemms && bf16 &&
      *bf16 < machine.peak_of(DType::bf16)) {
    c.untiled_s = 1 / *bf16;
    c.tile_factor = 1 / stack.cpu_tile_compute;
  }
  if (c.peak[static_cast<int>(DType::bf16)] == 0) {
    c.notes.push_back(fmt::format(
        "{}: no published 16-bit or fp32 peak; {} of fp32 is assumed from its {}", machine.name,
        pretty_flop_rate(fp32), has_peak(machine) ? "narrower types" : "memory bandwidth"));
  }
}

void set_memory(Ceilings& c, const Machine& machine, const Plan& plan) {
  const Level& memory = machine.memory();
  if (!memory.read_bandwidth) {
    throw Error("{}: the bandwidth of {} is unknown, so nothing can be predicted{}", machine.name,
                memory.name, machine.notes.empty() ? "" : ". " + machine.notes);
  }
  c.bandwidth = *memory.read_bandwidth;
  c.memory_s = 1 / c.bandwidth;
  c.memory_name = memory.name;
  const Level* cache = machine.cache();
  if (cache && cache->read_bandwidth) c.cache_s = 1 / *cache->read_bandwidth;
  if (const Level* host = machine.level("host"); host && host->read_bandwidth) {
    c.host_s = 1 / *host->read_bandwidth;
  } else if (plan.offload > 0) {
    throw Error("{}: its link to a host is unknown, so offloaded weights cannot be timed",
                machine.name);
  }
}

// Where a link's latency is unknown: one microsecond over NVLink (round trips measure 0.7-1.5 us),
// seven over PCIe (the smallest all-reduce of two L40S), five between nodes (RDMA writes 2-5 us).
constexpr double kLinkLatency = 1e-6;
constexpr double kPcieLatency = 7e-6;
constexpr double kNetworkLatency = 5e-6;

// Without peer-to-peer a message is written to host memory and read from there: its bytes move
// twice, and each step waits for two transfers and the flag between them. Two GeForce cards took 39
// us for an all-reduce of 10 KB, two steps (NCCL issue 1530: 42 us for 8 B among eight). Copies
// reach a third of the link (nccl-tests issue 74: 10 of 31.5 GB/s on A40), the kernels of
// collectives, which poll host memory, much less: 1.9 of 26 GB/s for 20 MB on one host. The factor
// on the roof of half the link lies between the two.
constexpr double kStagedLatency = 16e-6;
constexpr double kStagedCopies = 2;
constexpr double kStagedFactor = 4;

bool is_pcie(const Link& link) { return link.name.starts_with("PCIe"); }

// The fastest link that joins as many devices.
const Link* link_among(const Machine& machine, int devices) {
  const Link *fastest = nullptr, *widest = nullptr;
  for (const Link& link : machine.links) {
    if (!link.bandwidth) continue;
    if (link.max_devices >= devices && (!fastest || *link.bandwidth > *fastest->bandwidth)) {
      fastest = &link;
    }
    if (!widest || link.max_devices > widest->max_devices) widest = &link;
  }
  return fastest ? fastest : widest;
}

void set_link(Ceilings& c, const Machine& machine, const Link& link) {
  c.link_s = 1 / *link.bandwidth;
  c.link_latency = link.latency.value_or(is_pcie(link) ? kPcieLatency : kLinkLatency);
  c.link_direct = link.p2p.value_or(true);
  c.link_method = link_method(link.name);
  const double copy_s = link.copy_bandwidth ? 1 / *link.copy_bandwidth : 0;
  c.rank_link = {c.link_latency, c.link_s, copy_s, link.exchanges, link.messages};
  if (c.link_direct) return;
  c.link_s *= kStagedCopies;
  c.link_latency = link.latency.value_or(kStagedLatency);
  c.link_factor = kStagedFactor;
  c.notes.push_back(fmt::format("{} has no peer-to-peer over {}: messages pass through host memory",
                                machine.name, link.name));
}

void set_links(Ceilings& c, const System& system, const Plan& plan) {
  const Machine& machine = system.device;
  c.devices_per_node = system.devices_per_node;
  if (plan.devices() <= 1) return;
  const Level* host = machine.level("host");
  const Link* link = link_among(machine, std::min(plan.devices(), system.devices_per_node));
  if (link) {
    set_link(c, machine, *link);
  } else if (host && host->read_bandwidth) {
    c.link_s = 1 / *host->read_bandwidth;
    c.link_latency = kNetworkLatency;
    c.notes.push_back(fmt::format("{} has no peer link: devices communicate through the host ({})",
                                  machine.name, "host"));
  } else if (system.devices_per_node > 1) {
    throw Error("{}: no link between devices is known, so a node cannot be predicted",
                machine.name);
  }
  if (system.nodes > 1) {
    const Level* network = machine.level("network");
    if (!network || !network->read_bandwidth) {
      throw Error("{}: its network bandwidth is unknown, so several nodes cannot be predicted",
                  machine.name);
    }
    c.network_s = 1 / *network->read_bandwidth;
    c.network_latency = network->latency.value_or(kNetworkLatency);
  }
}

void set_launch(Ceilings& c, const Machine& machine, const Plan& plan, const Stack& stack) {
  if (!stack.counts_launches) return;
  if (machine.kind == MachineKind::cpu) {
    c.launch_s = machine.launch.persistent.value_or(stack.cpu_launch);
    return;
  }
  c.launch_s = machine.launch.graph.value_or(stack.graph_launch);
  if (!plan.graphs) c.host_launch_s = machine.launch.stream.value_or(stack.stream_launch);
}

Factors make_factors(const Efficiencies& kinds, bool cpu) {
  Factors f;
  for (int i = 0; i < kOpKindCount; ++i) {
    f.compute[i] = 1 / kinds[i].compute;
    f.memory[i] = 1 / kinds[i].memory;
    // Ramps are what filling thousands of GPU lanes costs; a core's pipeline fills in nanoseconds.
    f.ramp[i] = cpu ? 0 : kinds[i].ramp;
  }
  return f;
}

// The stack's figures for the CPU's instruction set, where it has them.
void set_cpu_kernels(Ceilings& c, const Machine& machine, const Stack& stack) {
  c.cores = machine.units.value_or(1);
  for (const CpuKernels& kernels : stack.cpu) {
    if (kernels.isa != machine.isa) continue;
    c.cpu = std::make_shared<const CpuKernels>(kernels);
    c.low = kernels.low;
    c.high = kernels.high;
  }
}

// Whether the stack was fitted on a machine like this one. A field that either side leaves empty
// does not count.
bool is_home(const StackHome& home, const Machine& machine) {
  const auto same = [](std::string_view wanted, std::string_view has) {
    return wanted.empty() || has.empty() || wanted == has;
  };
  return (!home.cpu || machine.kind == MachineKind::cpu) && same(home.vendor, machine.vendor) &&
         same(home.architecture, machine.architecture);
}

bool at_home(const StackHome& home, const System& system, const Plan& plan) {
  return is_home(home, system.device) && (home.devices == 0 || plan.devices() <= home.devices);
}

Stack with_backend(Stack stack, const Machine& machine) {
  for (const StackBackend& backend : stack.backends) {
    if (!is_home(backend.home, machine)) continue;
    stack.kinds = backend.kinds;
    stack.graph_launch = backend.graph_launch;
    break;
  }
  return stack;
}

}  // namespace

const Factors& Ceilings::factors_of(double tokens) const {
  for (const auto& [most, small] : small_steps) {
    if (tokens > 0 && tokens <= most) return small;
  }
  return factors;
}

const HostCosts& host_costs(const Stack& stack, const Model& model) {
  bool experts = false;
  for (const LayerGroup& group : model.groups) {
    if (group.layer.mixer.kind == MixerKind::mla) return stack.host(HostKind::latent);
    experts = experts || group.layer.has_moe();
  }
  return stack.host(experts ? HostKind::experts : HostKind::dense);
}

Ceilings make_ceilings(const System& system, const Plan& plan, const Stack& named,
                       const Model* model) {
  const Stack stack = with_backend(named, system.device);
  Ceilings c;
  set_peaks(c, system.device, stack);
  set_memory(c, system.device, plan);
  set_links(c, system, plan);
  set_launch(c, system.device, plan, stack);
  const bool cpu = system.device.kind == MachineKind::cpu;
  c.factors = make_factors(stack.kinds, cpu);
  const std::string weights = plan.weights ? plan.weights->name
                              : model      ? main_weight_format(*model).name
                                           : "";
  for (const StepEfficiencies& step : stack.steps) {
    const Efficiencies& kinds = step.of(weights);
    c.small_steps.emplace_back(step.tokens, make_factors(kinds, cpu));
  }
  // Without matrix units (16-bit no faster than fp32) nothing is padded to whole tiles.
  const Maybe fp32 = system.device.peak_of(DType::fp32);
  const double half = c.peak[static_cast<int>(DType::bf16)];
  c.pads = stack.counts_launches && fp32 && half > 2 * *fp32;
  c.link_factor /= stack.link;
  c.link_extra_s = stack.link_latency;
  if (model != nullptr && !cpu) {
    const HostCosts& host = host_costs(stack, *model);
    c.step_s = host.step + host.layer * model->layers() * std::log2(plan.tp);
  }
  c.low = stack.low;
  c.high = stack.high;
  if (cpu) set_cpu_kernels(c, system.device, stack);
  auto kernels = stack.calibrated ? match_kernels(system.device, stack) : std::nullopt;
  if (kernels) c.kernels = std::make_shared<const MatchedKernels>(std::move(*kernels));
  if (stack.calibrated && !kernels) {
    c.notes.push_back(
        fmt::format("no kernels of {} were fitted for machines like {}: its default "
                    "efficiencies are used",
                    stack.name, system.device.name));
  } else if (!at_home(stack.home, system, plan)) {
    c.notes.push_back(
        fmt::format("stack {} was fitted on {}: its times on other machines are extrapolated",
                    stack.name, stack.home.name));
  }
  return c;
}

// Of a CPU's last cache: the rest holds activations, code and what other processes read.
constexpr double kCpuCacheShare = 0.75;

double cached_share(const Machine& machine, double bytes) {
  const Level* cache = machine.cache();
  if (!cache || !cache->read_bandwidth || !cache->total_capacity()) return 0;
  if (machine.kind != MachineKind::cpu) return bytes <= *cache->total_capacity() ? 1 : 0;
  const double sets = bytes / (kCpuCacheShare * *cache->total_capacity());
  if (sets <= 1) return 1;
  // A line that was read stays until a miss replaces it. With n lines, each of the misses until it
  // is read again replaces it with probability 1 / n: share = exp(-(1 - share) sets).
  double low = 0, high = 1;
  for (int i = 0; i < 20; ++i) {
    const double share = (low + high) / 2;
    (std::exp(-(1 - share) * sets) > share ? low : high) = share;
  }
  return low;
}

void place_working_set(Ceilings& c, const Machine& machine, double bytes) {
  const double share = cached_share(machine, bytes);
  constexpr double kLeast = 0.01;
  if (share < kLeast) return;
  const Level& cache = *machine.cache();
  c.memory_s = share / *cache.read_bandwidth + (1 - share) * c.memory_s;
  c.bandwidth = 1 / c.memory_s;
  if (share < 0.5) return;
  c.memory_name = cache.name;
  c.notes.push_back(share == 1 ? fmt::format("the step's whole working set fits {}", cache.name)
                               : fmt::format("{} holds {:.0f} % of what the step reads", cache.name,
                                             100 * share));
}

}  // namespace ridge
