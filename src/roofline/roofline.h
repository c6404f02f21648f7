// (Work, Machine, Stack) -> how long, and which ceiling decides.
//
// An operator is as slow as its slowest ceiling: matrix units, vector units, device memory, each
// cache, the host link, the links between devices. The roof takes each at its full rate; the
// expected time takes the stack's share of each and adds what starting kernels costs.
#pragma once

#include <array>
#include <span>
#include <string_view>

#include "cost/op.h"
#include "roofline/ceilings.h"

namespace ridge {

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

// A pipeline's step, from the sum of its micro-batches: each passes `stages` turns, and all of them
// together take stages + micro_batches - 1. Work stays as it is.
StepEstimate pipelined(StepEstimate sum, int stages, size_t micro_batches);

// The roof of a machine at one intensity: min(peak, intensity * bandwidth), operations/s.
double attainable(double peak, double bandwidth, double intensity);

}  // namespace ridge
