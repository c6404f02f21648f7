// The expected time of one mixture-of-experts block on one rank: routing, permutation, two grouped
// GEMMs, combination.
#pragma once

#include "cost/moe.h"
#include "roofline/kernels/params.h"
#include "roofline/kernels/traits.h"

namespace ridge {

// How the (token, expert) pairs of a batch fall on the experts of the busiest rank.
struct ExpertLoad {
  double pairs = 0;   // rows this rank computes
  double active = 0;  // local experts with at least one row
  static constexpr int kTileSizes = 5;
  static constexpr double kTile[kTileSizes] = {16, 32, 64, 128, 256};
  std::array<double, kTileSizes> tiles{};  // row tiles of each size, padding included
};
// Experts dealt evenly: every expert gets the same number of rows.
ExpertLoad balanced_load(double tokens, double top_k, double experts, double ranks);
// Loads drawn from a power law of the given exponent and the busiest rank taken, as benchmark
// collectors do it: mean over a few fixed draws.
ExpertLoad power_law_load(double tokens, double top_k, double experts, double ranks,
                          double exponent);
// Independent choices, the popularity of the r-th expert as r^-skew; the busiest rank decides.
ExpertLoad routed_load(const Routing& routing, double tokens, double ranks);

// A block and the conditions under which its kernels run.
struct MoeCall : ExpertBlock {
  double reuse_bytes = 1e18;  // bytes touched between two uses of the same weights
  ExpertLoad load{};
};

struct MoeParams {
  double t0 = 25e-6;
  double compute = 0.7;
  double memory = 0.75;
  double feed = 40;
  double fill = 200;
  double wave = 0.5;
  double overlap = 3;
  double l2 = 1, l2_speed = 2;
  double pass = 3;       // times a routed row of hidden width passes device memory
  double token = 1e-9;   // seconds per token of routing and sorting
  double expert = 1e-8;  // seconds per local expert
  double small = 0.05;
  double throttle = 0.1;  // see power_share
  double throttle_s = 5e-4;
  double smallest = 16;  // smallest row tile the kernels have
  double largest = 128;  // and the largest
  double busy = 0.6;
  static std::span<const Field<MoeParams>> fields();
};
double moe_seconds(const MoeCall& call, const GpuTraits& gpu, const MoeParams& params);

}  // namespace ridge
