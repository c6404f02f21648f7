// (Work, Machine, Stack) -> how long, and which ceiling decides.
//
// An operator is as slow as its slowest ceiling: matrix units, vector units, device memory, each
// cache, the host link, the links between devices. The roof takes each at its full rate; the
// expected time takes the stack's share of each and adds what starting kernels costs.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cost/work.h"
#include "machine/machine.h"
#include "roofline/stack.h"
#include "step/plan.h"

namespace ridge {

struct CalibratedKernels;

enum class Wall : uint8_t {
  compute,
  memory,
  launch,
  interconnect,
  host_link,
  capacity,
  power,
  kCount
};
inline constexpr int kWallCount = static_cast<int>(Wall::kCount);
std::string_view wall_name(Wall wall);

// Seconds on each ceiling that can take time (capacity and power cannot).
inline constexpr int kTimedWalls = 5;
using WallTimes = std::array<double, kTimedWalls>;

// A stack's efficiencies as factors on the times at full rate.
struct Factors {
  std::array<double, kOpKindCount> compute{}, memory{}, ramp{};
};

// A machine, plan and stack turned into reciprocals, so that timing an operator is a handful of
// multiplications.
struct Ceilings {
  std::array<double, kDTypeCount> flop_s{};  // seconds per operation; 0: peak unknown
  double vector_s = 0;
  double memory_s = 0;  // per byte of the level that holds the working set
  std::string memory_name;
  double cache_s = 0;  // per byte, cache to compute units; 0: unknown
  double host_s = 0;
  double link_s = 0, link_latency = 0;        // per byte and direction, within a node
  double network_s = 0, network_latency = 0;  // between nodes
  int devices_per_node = 1;
  double launch_s = 0;      // per kernel
  bool launch_adds = true;  // graph edges add; eager launches run ahead and only bound the rate
  Factors factors;
  std::vector<std::pair<double, Factors>> small_steps;  // up to so many tokens, from small to large
  double link_factor = 1, link_extra_s = 0;  // the stack's share of the rate; added per message
  bool pads = true;  // the stack's products are padded to tiles; vector-only machines need none
  double step_s = 0;
  double low = 1, high = 1;                          // the band of what no fit covers
  std::shared_ptr<const CalibratedKernels> kernels;  // the stack's fits for this machine, if any
  std::array<DType, kDTypeCount> runs_as{};          // fp8 on a machine without fp8 runs as bf16
  std::array<double, kDTypeCount> peak{};            // operations/s after that choice; 0: unknown
  double bandwidth = 0;                              // bytes/s of that level
  std::vector<std::string> notes;                    // what was unknown and what was done about it

  // Of an operator of a step of so many tokens; 0: no step in particular.
  const Factors& factors_of(double tokens) const;
};

// For a model of `layers` layers (the host's work per step may grow with them). Throws Error if the
// machine's memory bandwidth is unknown.
Ceilings make_ceilings(const System& system, const Plan& plan, const Stack& stack, int layers = 0);

// When everything a step reads fits the last cache, the cache is what it streams from.
void place_working_set(Ceilings& ceilings, const Machine& machine, double bytes);

struct Estimate {
  double roof_s = 0, expected_s = 0, low_s = 0, high_s = 0;
  Wall wall = Wall::memory, next_wall = Wall::compute;
  WallTimes on{};  // expected seconds on each ceiling
};
// Of one execution of the operator.
Estimate estimate(const Op& op, const Ceilings& ceilings);

// A whole step: operators run one after the other.
struct StepEstimate {
  double roof_s = 0, expected_s = 0, low_s = 0, high_s = 0;
  double flops = 0, bytes = 0;  // per device; of all pipeline stages, which take turns
  WallTimes on{};               // all operators' seconds on each ceiling
  WallTimes decided{};          // expected seconds of the operators each wall decides
  Wall wall = Wall::memory, next_wall = Wall::compute;
  double mfu = 0, mbu = 0;  // of the expected time; 0 where the peak is unknown

  double intensity() const { return bytes > 0 ? flops / bytes : 0; }
};
StepEstimate estimate_step(std::span<const Op> ops, const Ceilings& ceilings, DType math);

// Several steps in sequence (the chunks of a prefill).
void append(StepEstimate& sum, const StepEstimate& step, const Ceilings& ceilings, DType math);

// The roof of a machine at one intensity: min(peak, intensity * bandwidth), operations/s.
double attainable(double peak, double bandwidth, double intensity);

}  // namespace ridge
