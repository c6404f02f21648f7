#include "fit/fit.h"

#include <algorithm>
#include <cmath>

#include "fit/optimise.h"

namespace ridge {
namespace {

constexpr double kPull = 0.02;           // weight of the pull towards the defaults
constexpr double kCap = 1.5;             // errors beyond count as this: outliers must not steer
constexpr double kStructureGain = 0.96;  // another structure must lower the error to this share

// Numbers to and from the unit box.
template <typename P>
std::vector<double> to_box(const P& params) {
  std::vector<double> x;
  for (const Field<P>& f : P::fields()) {
    if (f.structural) continue;
    const double v = std::clamp(params.*f.member, f.low, f.high);
    x.push_back(f.low > 0 ? std::log(v / f.low) / std::log(f.high / f.low)
                          : (v - f.low) / (f.high - f.low));
  }
  return x;
}
template <typename P>
P from_box(const std::vector<double>& x, P params) {
  size_t i = 0;
  for (const Field<P>& f : P::fields()) {
    if (f.structural) continue;
    params.*f.member = f.low > 0 ? f.low * std::exp(x[i] * std::log(f.high / f.low))
                                 : f.low + x[i] * (f.high - f.low);
    ++i;
  }
  return params;
}

// Where the search starts: the default structure first, then the alternatives.
template <typename P>
std::vector<P> starts() {
  return {P{}};
}
template <>
std::vector<GemmParams> starts() {
  std::vector<GemmParams> out(3);
  out[1].dispatch = 1;
  out[2].dispatch = 2;
  return out;
}
template <>
std::vector<DecodeParams> starts() {
  std::vector<DecodeParams> out(4);
  out[1].window_groups = 0;
  out[2].group_most = 40;
  out[3].window_groups = 0;
  out[3].group_most = 40;
  return out;
}
template <>
std::vector<MoeParams> starts() {
  std::vector<MoeParams> out(5);
  out[1].smallest = 64;
  out[2].largest = 256;
  out[3].largest = 64;
  out[4].smallest = 64;
  out[4].largest = 256;
  return out;
}
template <>
std::vector<CollectiveParams> starts() {
  std::vector<CollectiveParams> out(2);
  out[1].host = 25e-6;
  return out;
}

double time_of(const FitRow& row, const GpuTraits& gpu, const GemmParams& p) {
  return gemm_seconds(std::get<GemmCall>(row.call), gpu, p);
}
double time_of(const FitRow& row, const GpuTraits& gpu, const PrefillParams& p) {
  return prefill_seconds(std::get<AttentionCall>(row.call), gpu, p);
}
double time_of(const FitRow& row, const GpuTraits& gpu, const DecodeParams& p) {
  return decode_seconds(std::get<AttentionCall>(row.call), gpu, p);
}
double time_of(const FitRow& row, const GpuTraits& gpu, const MoeParams& p) {
  return moe_seconds(std::get<MoeCall>(row.call), gpu, p);
}
double time_of(const FitRow& row, const GpuTraits& gpu, const CollectiveParams& p) {
  return collective_kernel_seconds(std::get<CollectiveCall>(row.call), gpu, p);
}

template <typename P>
P fit(const std::vector<const FitRow*>& all, const std::vector<GpuTraits>& gpus,
      const FitEffort& effort) {
  std::vector<const FitRow*> rows;
  const size_t stride = std::max<size_t>(1, all.size() / effort.rows);
  for (size_t i = 0; i < all.size(); i += stride) rows.push_back(all[i]);
  const std::vector<double> origin = to_box(P{});
  P base;
  const auto objective = [&](const std::vector<double>& x) {
    const P params = from_box(x, base);
    double sum = 0, pull = 0;
    for (const FitRow* row : rows) {
      const double ratio = time_of(*row, gpus[row->gpu], params) / row->seconds;
      sum += std::min(kCap, 0.5 * (std::fabs(ratio - 1) + std::fabs(std::log(ratio))));
    }
    for (size_t i = 0; i < x.size(); ++i) pull += (x[i] - origin[i]) * (x[i] - origin[i]);
    return sum / static_cast<double>(rows.size()) + kPull * pull / static_cast<double>(x.size());
  };
  Optimum best;
  P chosen;
  uint64_t seed = 1;
  for (const P& start : starts<P>()) {
    base = start;
    Optimum found = minimise(objective, to_box(start), 0.12, effort.evaluations / 3, seed);
    if (seed++ == 1 || found.value < best.value * kStructureGain) {
      best = std::move(found);
      chosen = base;
    }
  }
  base = chosen;
  best = minimise(objective, best.x, 0.06, effort.evaluations, seed);
  return from_box(best.x, base);
}

}  // namespace

KernelParams fit_params(KernelKind family, const std::vector<const FitRow*>& rows,
                        const std::vector<GpuTraits>& gpus, const FitEffort& effort) {
  switch (family) {
    case KernelKind::gemm:
      return fit<GemmParams>(rows, gpus, effort);
    case KernelKind::context_attention:
    case KernelKind::context_mla:
      return fit<PrefillParams>(rows, gpus, effort);
    case KernelKind::generation_attention:
    case KernelKind::generation_mla:
      return fit<DecodeParams>(rows, gpus, effort);
    case KernelKind::moe:
      return fit<MoeParams>(rows, gpus, effort);
    default:
      return fit<CollectiveParams>(rows, gpus, effort);
  }
}

}  // namespace ridge
