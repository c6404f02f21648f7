#include "roofline/kernels/gemm.h"

#include <algorithm>

namespace ridge {
namespace {

struct Tile {
  double m, n;
  double halvings;  // below 128 x 256
};
// What cuBLAS and CUTLASS instantiate. Small m: operands are swapped, so the tile's m side can be
// as narrow as the MMA's n side.
constexpr Tile kTiles[] = {{16, 64, 5},   {16, 128, 4},  {32, 64, 4},  {32, 128, 3},
                           {64, 64, 3},   {64, 128, 2},  {64, 256, 1}, {128, 64, 2},
                           {128, 128, 1}, {128, 256, 0}, {256, 128, 0}};

constexpr Field<GemmParams> kGemmFields[] = {
    {"t0", &GemmParams::t0, 0.3e-6, 4e-4},
    {"compute", &GemmParams::compute, 0.1, 1.3},
    {"memory", &GemmParams::memory, 0.3, 1.1},
    {"feed", &GemmParams::feed, 8, 400},
    {"fill", &GemmParams::fill, 4, 4000},
    {"wave", &GemmParams::wave, 0, 1},
    {"busy", &GemmParams::busy, 0.05, 4},
    {"split", &GemmParams::split, 0.1e-6, 20e-6},
    {"overlap", &GemmParams::overlap, 1, 12},
    {"l2", &GemmParams::l2, 0.1, 2},
    {"l2_speed", &GemmParams::l2_speed, 1, 8},
    {"quant", &GemmParams::quant, 0.02, 3},
    {"quant_row", &GemmParams::quant_row, 1e-12, 1e-8},
    {"quant_start", &GemmParams::quant_start, 1e-9, 1e-5},
    {"dispatch", &GemmParams::dispatch, 0, 2, true},
    {"single", &GemmParams::single, 0, 2e-5},
    {"throttle", &GemmParams::throttle, 0, 0.6},
    {"throttle_s", &GemmParams::throttle_s, 2e-5, 5e-3},
    {"decline", &GemmParams::decline, 0, 0.6},
    {"write", &GemmParams::write, 0.3, 5},
    {"small", &GemmParams::small, 0, 0.18},
};

// Kernels compiled for ranges of rows: narrow tiles to 64 rows, then 64, 128 and (wide) 256.
bool in_row_range(const Tile& tile, double m, int dispatch) {
  if (m <= 64) return tile.m <= 64 && tile.m >= std::min(m, 64.0) && tile.n <= 128;
  if (m <= 128) return tile.m == 64 && tile.n == 128;
  if (dispatch == 1 || m <= 256) return tile.m == 128 && tile.n == 128;
  return tile.m == 256;
}

}  // namespace

std::span<const Field<GemmParams>> GemmParams::fields() { return kGemmFields; }

double gemm_seconds(const GemmCall& s, const GpuTraits& gpu, const GemmParams& p) {
  const double element_bytes = s.weight_bits / 8;
  const double weights = s.weight_bytes();
  const double acts = s.input_bytes() + s.output_bytes();
  // Weights come from L2 where everything touched between two uses fits; activations were just
  // written by the operator before and count against it.
  const double fit = p.l2 * gpu.l2_bytes / (std::min(s.reuse_bytes, 1e15) + acts);
  const double fit2 = fit * fit, resident = fit2 * fit2 / (1 + fit2 * fit2);
  const double act_kept = std::min(1.0, p.l2 * gpu.l2_bytes / (acts + weights));
  const double moved = s.input_bytes() + s.output_bytes() * p.write;
  const double bytes_s = (weights * (1 - resident * (1 - 1 / p.l2_speed)) +
                          moved * (1 - act_kept * (1 - 1 / p.l2_speed))) /
                         (gpu.stream * p.memory);

  // Long kernels run into the power limit and lose clock.
  const double ideal_s = s.flops() / gpu.peak_of(s.math);
  const double sm_flop = gpu.peak_of(s.math) / gpu.sms * p.compute *
                         power_share(ideal_s, p.throttle_s, p.throttle, p.decline);
  const double sm_feed = p.feed * gpu.clock;
  const double per_sm = 1 / gpu.sms;
  const int dispatch = static_cast<int>(p.dispatch + 0.5);
  double best = 1e30, best_sms = 0, best_memory = 0, best_extra = 0;
  for (const Tile& tile : kTiles) {
    if (tile.m >= 32 && tile.m >= 2 * s.m) continue;  // a smaller one covers all rows
    if (tile.m < 64 && s.m > 8 * tile.m) continue;    // hardly ever chosen; this loop is the cost
    if (dispatch > 0 && !in_row_range(tile, s.m, dispatch)) continue;
    const double ctas = blocks(s.m, tile.m) * blocks(s.n, tile.n);
    const double per_k = std::max(2 * tile.m * tile.n / (sm_flop * (1 - p.small * tile.halvings)),
                                  (tile.m * s.in_bytes + tile.n * element_bytes) / sm_feed);
    double splits = 1, extra = 0;
    for (int pass = 0; pass < 2; ++pass) {
      const double total = ctas * splits * per_sm;
      const double waves = total <= 1 ? 1 : total + p.wave * (round_up(total) - total);
      const double sms_s = waves * (s.k / splits + p.fill) * per_k;
      const double memory_s = total < p.busy ? bytes_s * p.busy / total : bytes_s;
      const double t = std::max(sms_s, memory_s) + extra;
      if (t < best) {
        best = t;
        best_sms = sms_s;
        best_memory = memory_s;
        best_extra = extra;
      }
      if (dispatch > 0 || ctas >= gpu.sms || s.k < 512) break;
      splits = std::min(whole(gpu.sms / ctas), whole(s.k / 256));
      if (splits < 2) break;
      extra = p.split * gpu.tick + splits * s.m * s.n * 8 / (gpu.stream * p.l2_speed);
    }
  }
  best = smooth_max(best_sms, best_memory, p.overlap) + best_extra;
  double t = p.t0 * gpu.tick + best;
  if (s.quantize) {
    const double rows = round_up(s.m / gpu.sms);
    t += rows * p.quant_start * gpu.tick +
         std::max(s.m * s.k * (2 + s.in_bytes) / (gpu.stream * p.quant),
                  rows * s.k * p.quant_row * gpu.tick);
  }
  if (s.m <= 1) t += p.single * gpu.tick;
  return t;
}

}  // namespace ridge
