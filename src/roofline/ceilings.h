// The ceilings of a machine under a plan and a stack: reciprocal rates, ready to be multiplied with
// an operator's Work.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cost/collective.h"
#include "machine/machine.h"
#include "model/model.h"
#include "roofline/stack.h"
#include "step/plan.h"

namespace ridge {

struct MatchedKernels;

// A stack's efficiencies as factors on the times at full rate.
struct Factors {
  std::array<double, kOpKindCount> compute{}, memory{}, ramp{};
};

// A machine, plan and stack turned into reciprocals, so that timing an operator is a handful of
// multiplications.
struct Ceilings {
  std::array<double, kDTypeCount> flop_s{};  // seconds per operation, never 0
  double vector_s = 0;
  // Where only GEMMs in bf16 run in a CPU's tiles: seconds per operation of the rest, and what
  // those take beyond the peak. 0: no such CPU.
  double untiled_s = 0, tile_factor = 0;
  double memory_s = 0;  // per byte of the level that holds the working set
  std::string memory_name;
  double cache_s = 0;  // per byte, cache to compute units; 0: unknown
  double host_s = 0;
  double link_s = 0, link_latency = 0;  // per byte and direction, within a node
  bool link_direct = true;              // peers reach each other's memory
  LinkMethod link_method = LinkMethod::kernels;
  RankLink rank_link;                         // of Ridge's own ranks
  double network_s = 0, network_latency = 0;  // between nodes
  int devices_per_node = 1;
  double launch_s = 0;  // per kernel on the device: the edge of a graph, a CPU's barrier
  // Per kernel on the host, which launches ahead and only bounds the rate.
  double host_launch_s = 0;
  Factors factors;
  std::vector<std::pair<double, Factors>> small_steps;  // up to so many tokens, from small to large
  double link_factor = 1, link_extra_s = 0;  // the stack's share of the rate; added per message
  bool pads = true;  // the stack's GEMMs are padded to tiles; vector-only machines need none
  double step_s = 0;
  double low = 1, high = 1;                       // the band of what no fit covers
  std::shared_ptr<const MatchedKernels> kernels;  // the stack's fits for this machine, if any
  std::shared_ptr<const CpuKernels> cpu;          // the stack's figures for this CPU, if any
  double cores = 1;                               // of a CPU
  std::array<DType, kDTypeCount> runs_as{};       // fp8 on a machine without fp8 runs as bf16
  std::array<double, kDTypeCount> peak{};         // operations/s after that choice; 0: unknown
  double bandwidth = 0;                           // bytes/s of that level
  std::vector<std::string> notes;                 // what was unknown and what was done about it

  // Of an operator of a step of so many tokens; 0: no step in particular.
  const Factors& factors_of(double tokens) const;
};

// With the host's work per step for this model; without a model there is none. Throws Error if the
// machine's memory bandwidth is unknown.
Ceilings make_ceilings(const System& system, const Plan& plan, const Stack& stack,
                       const Model* model = nullptr);

// The stack's host costs for a model of this kind.
const HostCosts& host_costs(const Stack& stack, const Model& model);

// Share of a step's reads that the last-level cache answers, where steps read `bytes` over and
// over. GPUs: all or nothing, since their kernels' figures include what their L2 keeps.
double cached_share(const Machine& machine, double bytes);

// Where a cache holds what a step reads, or part of it, the step streams from both.
void place_working_set(Ceilings& ceilings, const Machine& machine, double bytes);

}  // namespace ridge
