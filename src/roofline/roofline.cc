#include "roofline/roofline.h"

#include <algorithm>

#include "cost/collective.h"
#include "roofline/kernel_times.h"

namespace ridge {
namespace {

constexpr int index(Wall wall) { return static_cast<int>(wall); }

// The roof takes factor 1 and no extra latency; the stack adds to both.
double link_seconds(const Work& w, const Ceilings& c, double factor, double extra) {
  const double link = c.link_s * factor, network = c.network_s * factor;
  const double link_latency = c.link_latency + extra, network_latency = c.network_latency + extra;
  if (w.ranks * w.stride <= c.devices_per_node) {
    if (c.link_method != LinkMethod::kernels) {
      // Its figures are what collectives between ranks took, the software included.
      return collective_seconds(c.link_method, w.collective, w.message_bytes, w.ranks, c.rank_link);
    }
    return collective_seconds(w.collective, w.message_bytes, w.ranks, link, link_latency,
                              c.link_direct);
  }
  if (w.collective != Collective::all_reduce) {
    return collective_seconds(w.collective, w.message_bytes, w.ranks, network, network_latency);
  }
  // Across nodes: first among the ranks of a node, then each with its peers in other nodes.
  const int here = std::max(1, c.devices_per_node / w.stride);
  const int nodes = (w.ranks + here - 1) / here;
  return collective_seconds(Collective::reduce_scatter, w.message_bytes, here, link, link_latency) +
         collective_seconds(Collective::all_reduce, w.message_bytes / here, nodes, network,
                            network_latency) +
         collective_seconds(Collective::all_gather, w.message_bytes, here, link, link_latency);
}

}  // namespace

std::string_view wall_name(Wall wall) {
  static constexpr std::string_view kNames[] = {"compute",   "memory",   "launch", "interconnect",
                                                "host-link", "capacity", "power"};
  return kNames[index(wall)];
}

namespace {

// Launching aside: it comes on top.
double busiest(const WallTimes& on) {
  double most = 0;
  for (int i = 0; i < kTimedWalls; ++i) {
    if (i != index(Wall::launch)) most = std::max(most, on[i]);
  }
  return most;
}

// A fitted time says how long; the ceilings still say why. What they do not explain is the cost of
// starting and filling the machine. A kernel that found its data in a cache cannot pass the roof,
// and none is faster than the host launches it.
void take_fitted(Estimate& e, const KernelTime& fitted, double launch) {
  e.expected_s = std::max({e.roof_s, fitted.seconds, launch});
  e.low_s = std::max(e.roof_s, e.expected_s * fitted.band.low);
  e.high_s = e.expected_s * fitted.band.high;
  const double busy = busiest(e.on);
  const double scale = busy > e.expected_s ? e.expected_s / busy : 1;
  for (double& seconds : e.on) seconds *= scale;
  e.on[index(Wall::launch)] = e.expected_s - busy * scale;
}

// Arithmetic and reads of the CPU's kernels add up (kernels/cpu.h).
void take_cpu(Estimate& e, const CpuTime& time, const Ceilings& c, double start) {
  e.on[index(Wall::compute)] = time.compute;
  e.on[index(Wall::memory)] = time.memory;
  e.on[index(Wall::launch)] = time.start + start;
  e.expected_s = std::max(e.roof_s, time.compute + time.memory + time.start + start);
  e.low_s = std::max(e.roof_s, e.expected_s * c.low);
  e.high_s = e.expected_s * c.high;
}

void name_walls(Estimate& e) {
  int first = 0;
  for (int i = 1; i < kTimedWalls; ++i) {
    if (e.on[i] > e.on[first]) first = i;
  }
  int second = first == 0 ? 1 : 0;
  for (int i = 0; i < kTimedWalls; ++i) {
    if (i != first && e.on[i] > e.on[second]) second = i;
  }
  e.wall = static_cast<Wall>(first);
  e.next_wall = static_cast<Wall>(second);
}

}  // namespace

Estimate estimate(const Op& op, const Ceilings& c) {
  const Work& w = op.work;
  const int kind = static_cast<int>(op.kind);
  const Factors& f = c.factors_of(op.tokens);
  // Padding is a choice of today's kernels, so it burdens the expected time and not the roof.
  const bool gemm = op.kind == OpKind::matmul || op.kind == OpKind::expert_matmul;
  const bool tiles = c.untiled_s > 0 && op.math == DType::bf16;  // of a CPU, for GEMMs alone
  const double flop_s = tiles && !gemm ? c.untiled_s : c.flop_s[static_cast<int>(op.math)];
  const double vector = w.vector_flops * c.vector_s;
  const double compute = std::max(w.flops * flop_s, vector);
  const double padded = c.pads ? std::max(w.padded_flops * flop_s, vector) : compute;
  const double memory = std::max(w.device_bytes() * c.memory_s, w.chip_bytes * c.cache_s);
  const double host = w.host_bytes * c.host_s;
  const bool talks = op.kind == OpKind::collective;
  const double link = talks ? link_seconds(w, c, 1, 0) : 0;

  Estimate e;
  e.roof_s = std::max({compute, memory, host, link});
  e.on[index(Wall::compute)] = padded * (tiles && gemm ? c.tile_factor : f.compute[kind]);
  e.on[index(Wall::memory)] = memory * f.memory[kind];
  // Ridge's own ranks start no kernel for a collective: their link's figures hold all that it
  // takes.
  const bool starts = !talks || c.link_method == LinkMethod::kernels;
  const double start =
      starts ? w.launches * (c.launch_s + f.ramp[kind] + (c.cpu ? c.cpu->other_start : 0)) : 0;
  const double launch = w.launches * c.host_launch_s;
  e.on[index(Wall::launch)] = std::max(start, launch);
  e.on[index(Wall::interconnect)] = talks ? link_seconds(w, c, c.link_factor, c.link_extra_s) : 0;
  e.on[index(Wall::host_link)] = host;

  e.expected_s = std::max(busiest(e.on) + start, launch);
  e.low_s = std::max(e.roof_s, e.expected_s * c.low);
  e.high_s = e.expected_s * c.high;
  if (c.kernels) {
    if (const auto fitted = kernel_time(op, *c.kernels)) take_fitted(e, *fitted, launch);
  }
  if (c.cpu) {
    const CpuKernelRates rates{c.vector_s, c.memory_s, c.cores};
    if (const auto time = cpu_time(op, *c.cpu, rates))
      take_cpu(e, *time, c, w.launches * c.launch_s);
  }
  name_walls(e);
  return e;
}

namespace {

void summarise(StepEstimate& s, const Ceilings& c, DType math) {
  const auto largest = [](const WallTimes& times, int except) {
    int best = except == 0 ? 1 : 0;
    for (int i = 0; i < kTimedWalls; ++i) {
      if (i != except && times[i] > times[best]) best = i;
    }
    return best;
  };
  const int first = largest(s.decided, -1);
  s.wall = static_cast<Wall>(first);
  s.next_wall = static_cast<Wall>(largest(s.on, first));
  const double peak = c.peak[static_cast<int>(math)];
  s.mfu = peak > 0 && s.expected_s > 0 ? s.flops / (s.expected_s * peak) : 0;
  s.mbu = s.expected_s > 0 ? s.bytes / (s.expected_s * c.bandwidth) : 0;
}

}  // namespace

namespace {

bool same_message(const Op& a, const Op& b) {
  return a.work.collective == b.work.collective && a.work.ranks == b.work.ranks &&
         a.work.stride == b.work.stride && a.work.message_bytes == b.work.message_bytes;
}

}  // namespace

StepEstimate estimate_step(std::span<const Op> ops, const Ceilings& c, DType math) {
  StepEstimate s;
  const Op* talked = nullptr;  // the last collective: a layer's all-reduces are alike
  Estimate talk;
  for (const Op& op : ops) {
    const bool talks = op.kind == OpKind::collective;
    const Estimate e = talks && talked && same_message(op, *talked) ? talk : estimate(op, c);
    if (talks) {
      talked = &op;
      talk = e;
    }
    s.roof_s += op.count * e.roof_s;
    s.expected_s += op.count * e.expected_s;
    s.low_s += op.count * e.low_s;
    s.high_s += op.count * e.high_s;
    s.flops += op.count * (op.work.flops + op.work.vector_flops);
    s.bytes += op.count * op.work.device_bytes();
    for (int i = 0; i < kTimedWalls; ++i) s.on[i] += op.count * e.on[i];
    s.decided[index(e.wall)] += op.count * e.expected_s;
  }
  s.expected_s += c.step_s;
  s.low_s += c.step_s * c.low;
  s.high_s += c.step_s * c.high;
  s.on[index(Wall::launch)] += c.step_s;
  s.decided[index(Wall::launch)] += c.step_s;
  summarise(s, c, math);
  return s;
}

void append(StepEstimate& sum, const StepEstimate& step, const Ceilings& c, DType math) {
  sum.roof_s += step.roof_s;
  sum.expected_s += step.expected_s;
  sum.low_s += step.low_s;
  sum.high_s += step.high_s;
  sum.flops += step.flops;
  sum.bytes += step.bytes;
  for (int i = 0; i < kTimedWalls; ++i) {
    sum.on[i] += step.on[i];
    sum.decided[i] += step.decided[i];
  }
  summarise(sum, c, math);
}

StepEstimate pipelined(StepEstimate sum, int stages, size_t micro_batches) {
  const double parts = double(micro_batches);
  const double turns = (stages + parts - 1) / (stages * parts);
  for (double* seconds : {&sum.roof_s, &sum.expected_s, &sum.low_s, &sum.high_s}) {
    *seconds *= turns;
  }
  for (double& seconds : sum.on) seconds *= turns;
  for (double& seconds : sum.decided) seconds *= turns;
  return sum;
}

double attainable(double peak, double bandwidth, double intensity) {
  return std::min(peak, intensity * bandwidth);
}

}  // namespace ridge
