#include "roofline/kernels/collective.h"

#include <algorithm>

namespace ridge {
namespace {

constexpr Field<CollectiveParams> kCollectiveFields[] = {
    {"t0", &CollectiveParams::t0, 0.5e-6, 4e-4},
    {"rank", &CollectiveParams::rank, 1e-9, 2e-5},
    {"low_rate", &CollectiveParams::low_rate, 1e-3, 1.5},
    {"mid_t0", &CollectiveParams::mid_t0, 1e-8, 1e-4},
    {"mid_rate", &CollectiveParams::mid_rate, 1e-3, 1.5},
    {"bulk_t0", &CollectiveParams::bulk_t0, 1e-8, 4e-4},
    {"bulk_rate", &CollectiveParams::bulk_rate, 1e-3, 1.5},
    {"bulk_rank", &CollectiveParams::bulk_rank, 1e-9, 1e-4},
    {"low_ranks", &CollectiveParams::low_ranks, -1, 2},
    {"mid_ranks", &CollectiveParams::mid_ranks, -1, 2},
    {"bulk_ranks", &CollectiveParams::bulk_ranks, -1, 1},
    {"host", &CollectiveParams::host, 1e-8, 2e-4},
    {"blend", &CollectiveParams::blend, 1, 12},
};

}  // namespace

std::span<const Field<CollectiveParams>> CollectiveParams::fields() { return kCollectiveFields; }

double collective_kernel_seconds(const CollectiveCall& c, const GpuTraits& gpu,
                                 const CollectiveParams& p) {
  const double others = c.ranks - 1;
  // Bytes through the busiest link direction of one rank with a ring or direct exchange.
  const double bytes = c.bytes * others / c.ranks * (c.kind == Collective::all_reduce ? 2 : 1);
  const double start = p.t0 + p.rank * (others - 1);
  const double link_s = bytes / gpu.link;
  // Powers of one base share its logarithm; exp2 and log2 are half the price of pow.
  const double log_others = std::log2(others);
  const auto power = [&](double exponent) { return std::exp2(exponent * log_others); };
  const double low = start + link_s * power(p.low_ranks) / p.low_rate;
  const double mid = start + p.mid_t0 + link_s * power(p.mid_ranks) / p.mid_rate;
  const double bulk =
      start + p.bulk_t0 + p.bulk_rank * (others - 1) + link_s * power(p.bulk_ranks) / p.bulk_rate;
  // A soft minimum: near the switch points both protocols cost about the same.
  const double fastest = std::min({low, mid, bulk});
  const auto share = [&](double t) { return std::exp2(p.blend * std::log2(fastest / t)); };
  const double device =
      fastest * std::exp2(-std::log2(share(low) + share(mid) + share(bulk)) / p.blend);
  return smooth_max(device, p.host, 8);
}

}  // namespace ridge
