#include "roofline/kernels/moe.h"

#include <algorithm>
#include <random>
#include <vector>

namespace ridge {
namespace {

constexpr Field<MoeParams> kMoeFields[] = {
    {"t0", &MoeParams::t0, 2e-6, 4e-4},
    {"compute", &MoeParams::compute, 0.02, 1.3},
    {"memory", &MoeParams::memory, 0.1, 1.1},
    {"feed", &MoeParams::feed, 2, 400},
    {"fill", &MoeParams::fill, 4, 4000},
    {"wave", &MoeParams::wave, 0, 1},
    {"overlap", &MoeParams::overlap, 1, 12},
    {"l2", &MoeParams::l2, 0.05, 2},
    {"l2_speed", &MoeParams::l2_speed, 1, 10},
    {"pass", &MoeParams::pass, 0.1, 40},
    {"token", &MoeParams::token, 1e-12, 1e-6},
    {"expert", &MoeParams::expert, 1e-11, 1e-6},
    {"small", &MoeParams::small, 0, 0.18},
    {"throttle", &MoeParams::throttle, 0, 0.6},
    {"throttle_s", &MoeParams::throttle_s, 2e-5, 1e-2},
    {"smallest", &MoeParams::smallest, 8, 256, true},
    {"largest", &MoeParams::largest, 16, 512, true},
    {"busy", &MoeParams::busy, 0.05, 4},
};

void count_tiles(ExpertLoad& load, double rows, double weight) {
  if (rows <= 0) return;
  load.pairs += weight * rows;
  load.active += weight;
  for (int i = 0; i < ExpertLoad::kTileSizes; ++i)
    load.tiles[i] += weight * std::ceil(rows / ExpertLoad::kTile[i]);
}

// Expected largest of `count` standard normal numbers, within 4 % from 2 to 72
// (0.564, 1.029, 1.424, 1.766 for 2, 4, 8, 16).
double largest_of_normals(double count) {
  return 0.564 + 0.465 * std::pow(std::max(0.0, std::log2(count / 2)), 0.865);
}

}  // namespace

ExpertLoad balanced_load(double tokens, double top_k, double experts, double ranks) {
  ExpertLoad load;
  const double pairs = tokens * top_k, local = std::max(1.0, experts / ranks);
  const double low = std::floor(pairs / experts), extra = pairs - low * experts;
  // `extra` experts hold one row more; they are spread over the ranks.
  const double more = std::min(local, std::ceil(extra / ranks));
  count_tiles(load, low + 1, more);
  count_tiles(load, low, local - more);
  return load;
}

ExpertLoad routed_load(const Routing& routing, double tokens, double ranks) {
  ExpertLoad load;
  const double local = std::max(1.0, routing.experts / ranks);
  double active = std::min(local, distinct_experts(routing, tokens) / ranks);
  if (active <= 0) return load;
  double rows = tokens * routing.top_k / ranks;
  if (ranks > 1) {
    // The active experts of a rank are a binomial count, its rows a Poisson one. Endpoints show
    // twice the excess that chance gives the busiest rank: popular experts sit together.
    constexpr double kExcess = 2;
    const double deviations = kExcess * largest_of_normals(ranks);
    const double probability = active / local;
    active =
        std::min(local, active + deviations * std::sqrt(local * probability * (1 - probability)));
    rows = std::min(tokens * routing.top_k, rows + deviations * std::sqrt(rows));
  }
  count_tiles(load, rows / active, active);
  return load;
}

ExpertLoad power_law_load(double tokens, double top_k, double experts, double ranks,
                          double exponent) {
  constexpr int kDraws = 5;
  const auto count = static_cast<size_t>(experts);
  const auto local = std::max<size_t>(1, static_cast<size_t>(experts / ranks));
  const double pairs = tokens * top_k;
  // Support of the law: many rows, from one to most of the batch; few, around one.
  const double low = pairs > experts ? 1.0 : 0.01, high = pairs > experts ? 0.8 * tokens : 2.0;
  const double e = 1 - exponent, a = std::pow(low, e), b = std::pow(std::max(high, low), e);
  std::mt19937_64 engine(0x51d9);
  std::vector<double> rows(count);
  ExpertLoad load;
  for (int draw = 0; draw < kDraws; ++draw) {
    double sum = 0;
    for (double& row : rows) {
      const double u = (static_cast<double>(engine() >> 11) + 0.5) * 0x1p-53;
      row = std::pow(a + (b - a) * u, 1 / e);
      sum += row;
    }
    // Scaled to the batch; the fractions left by rounding go to the most loaded first.
    double left = pairs;
    std::vector<std::pair<double, size_t>> parts(count);
    for (size_t i = 0; i < count; ++i) {
      const double exact = rows[i] / sum * pairs;
      rows[i] = std::min(tokens, std::floor(exact));
      left -= rows[i];
      parts[i] = {-(exact - std::floor(exact)), i};
    }
    std::sort(parts.begin(), parts.end());
    while (left > 0.5) {
      bool placed = false;
      for (size_t j = 0; j < count && left > 0.5; ++j)
        if (rows[parts[j].second] < tokens) rows[parts[j].second] += 1, left -= 1, placed = true;
      if (!placed) break;
    }
    size_t best = 0;
    double best_rows = -1;
    for (size_t first = 0; first + local <= count; first += local) {
      double total = 0;
      for (size_t i = first; i < first + local; ++i) total += rows[i];
      if (total > best_rows) best_rows = total, best = first;
    }
    for (size_t i = best; i < best + local; ++i) count_tiles(load, rows[i], 1.0 / kDraws);
  }
  return load;
}

std::span<const Field<MoeParams>> MoeParams::fields() { return kMoeFields; }

double moe_seconds(const MoeCall& c, const GpuTraits& gpu, const MoeParams& p) {
  const double element_bytes = c.weight_bits / 8;
  const double rows = c.load.pairs, local = std::max(1.0, c.experts / c.ranks);
  const MatmulShape gemms[] = {expert_up(c, rows), expert_down(c, rows)};
  const double ideal_s = (gemms[0].flops() + gemms[1].flops()) / gpu.peak_of(c.math);
  const double sm_flop =
      gpu.peak_of(c.math) / gpu.sms * p.compute * power_share(ideal_s, p.throttle_s, p.throttle, 0);
  const double sm_feed = p.feed * gpu.clock;
  const double weights = c.load.active * (gemms[0].weight_bytes() + gemms[1].weight_bytes());
  const double fit = p.l2 * gpu.l2_bytes / std::max({1.0, std::min(c.reuse_bytes, 1e15), weights});
  const double fit2 = fit * fit, kept = fit2 * fit2 / (1 + fit2 * fit2);
  const double stream = (1 - kept * (1 - 1 / p.l2_speed)) / (gpu.stream * p.memory);

  double total = 0;
  for (const MatmulShape& gemm : gemms) {
    const double bytes_s = c.load.active * gemm.weight_bytes() * stream;
    double best = 1e30, best_sms = 0, best_mem = 0;
    for (int i = 0; i < ExpertLoad::kTileSizes; ++i) {
      const double tm = ExpertLoad::kTile[i];
      if (tm < p.smallest * 0.999 && i + 1 < ExpertLoad::kTileSizes) continue;
      if (tm > p.largest * 1.001 && best < 1e29) continue;
      for (double tn : {64.0, 128.0}) {
        const double ctas = c.load.tiles[i] * blocks(gemm.n, tn);
        const double halvings = (4 - i) + (tn < 128 ? 1 : 0);
        const double per_k = std::max(2 * tm * tn / (sm_flop * (1 - p.small * halvings)),
                                      (tm * c.in_bytes + tn * element_bytes) / sm_feed);
        const double share = ctas / gpu.sms;
        const double waves = share <= 1 ? 1 : share + p.wave * (round_up(share) - share);
        const double sms_s = waves * (gemm.k + p.fill) * per_k;
        const double mem = bytes_s / std::min(1.0, share / p.busy);
        if (std::max(sms_s, mem) < best)
          best = std::max(sms_s, mem), best_sms = sms_s, best_mem = mem;
      }
    }
    if (rows > 0) total += smooth_max(best_sms, best_mem, p.overlap);
  }
  const double pass_s = rows * (c.hidden + 0.5 * gemms[0].n) * 2 * p.pass / gpu.stream;
  return (p.t0 + p.token * c.tokens + p.expert * local) * gpu.tick + total + pass_s;
}

}  // namespace ridge
