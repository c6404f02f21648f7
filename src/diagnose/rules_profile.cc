// What a trace or a kernel profile says: gaps, collectives, and which kernels take the time.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "diagnose/operators.h"
#include "diagnose/thresholds.h"
#include "diagnose/verdict.h"

namespace ridge {
namespace {

// Gaps inside the time line; waits for work outside the file are not the run's.
double gap_share(const KernelProfile& p) {
  const double inside = p.wall_s - p.gap(GapCause::outside);
  return inside > 0 && p.busy_s > 0 ? std::max(0.0, 1 - p.busy_s / inside) : 0;
}

double family_share(const KernelProfile& p, KernelFamily f) {
  return p.kernel_s > 0 ? p.family_s(f) / p.kernel_s : 0;
}

double unfused_share(const KernelProfile& p) {
  double share = 0;
  for (const KernelFamily f :
       {KernelFamily::elementwise, KernelFamily::copy, KernelFamily::norm, KernelFamily::rope,
        KernelFamily::activation, KernelFamily::kv_write, KernelFamily::embedding}) {
    share += family_share(p, f);
  }
  return share;
}

std::optional<Hypothesis> judge_gaps(const Case& c) {
  const KernelProfile* p = c.seen.profile;
  if (!p || p->serialized || p->launches < 1) return std::nullopt;
  Hypothesis x{Verdict::host_bound, {}, Wall::launch, "", false};
  const double gaps = gap_share(*p), mean_s = p->kernel_s / p->launches;
  if (gaps > thresholds::kGapShare) {
    x.belief.supports(std::min(0.85, 0.45 + gaps),
                      fmt::format("no kernel runs in {} of {}", pretty_percent(gaps),
                                  pretty_time(p->wall_s - p->gap(GapCause::outside))));
    for (const GapCause cause : {GapCause::launch, GapCause::synchronize, GapCause::host}) {
      if (p->gap(cause) > 0.1 * (p->wall_s - p->busy_s)) {
        x.belief.supports(
            0, fmt::format("{} of it: {}", pretty_time(p->gap(cause)), gap_cause_name(cause)));
      }
    }
  }
  const bool many = p->launches > 500 && p->graph_kernels < 0.5 * p->launches;
  if (mean_s < thresholds::kTinyKernel_s && many) {
    x.belief.supports(p->wall_s > 0 ? 0.15 : 0.5,
                      fmt::format("{:.0f} launches of {} on average: launching takes as long",
                                  p->launches, pretty_time(mean_s)));
  }
  if (x.belief.value() == 0) return std::nullopt;
  if (p->wall_s > 0 && gaps < thresholds::kGapShare) {
    x.belief.contradicts(0.3, fmt::format("kernels run {} of the time", pretty_percent(1 - gaps)));
  }
  if (p->with_stack) {
    x.belief.contradicts(0.8, "Python stacks were recorded, which slows the host");
  }
  x.sentence = fmt::format(
      "Host-bound: {}. CUDA graphs, fewer and larger kernels, and less host work between steps "
      "close the gaps.",
      gaps > thresholds::kGapShare
          ? fmt::format("the device waits {} of the time", pretty_percent(gaps))
          : fmt::format("{:.0f} kernels of {} are too short to hide their launches", p->launches,
                        pretty_time(mean_s)));
  return x;
}

std::optional<Hypothesis> judge_exposed(const Case& c) {
  const KernelProfile* p = c.seen.profile;
  if (!p || p->serialized || p->kernel_s <= 0) return std::nullopt;
  const double span = p->busy_s > 0 ? p->busy_s : p->kernel_s;
  const double exposed =
      p->busy_s > 0 ? p->exposed_collective_s : p->family_s(KernelFamily::collective);
  if (exposed < thresholds::kExposedShare * span) return std::nullopt;
  Hypothesis x{Verdict::interconnect, {}, Wall::interconnect, "", false};
  x.belief.supports(
      p->busy_s > 0 ? 0.8 : 0.6,
      fmt::format("collectives run alone for {} of {}", pretty_time(exposed), pretty_time(span)));
  x.belief.contradicts(0.95,
                       "a rank that waits for a slower one shows the same: compare the ranks");
  x.sentence = fmt::format(
      "Interconnect: {} of the busy time is communication that nothing overlaps. Fewer "
      "tensor-parallel ranks, faster links or overlap help.",
      pretty_percent(exposed / span));
  return x;
}

// Nsight Compute: each kernel with its own shares of the ceilings.
std::optional<Hypothesis> judge_kernel_counters(const Case& c) {
  const KernelProfile* p = c.seen.profile;
  if (!p || p->kernels.empty()) return std::nullopt;
  double memory = 0, compute = 0, seconds = 0;
  for (const KernelTime& k : p->kernels) {
    if (!k.memory_share && !k.dram_share && !k.compute_share) continue;
    const double weight = std::max(k.seconds, 1e-9);
    memory += weight * std::max(k.memory_share.value_or(0), k.dram_share.value_or(0));
    compute += weight * std::max(k.compute_share.value_or(0), k.tensor_share.value_or(0));
    seconds += weight;
  }
  if (seconds == 0) return std::nullopt;
  memory /= seconds;
  compute /= seconds;
  const bool by_memory = memory >= compute;
  const double high = std::max(memory, compute), low = std::min(memory, compute);
  const KernelTime& first = p->kernels.front();
  const std::string shares = fmt::format(
      "{}: memory throughput {}, SM throughput {} of the peak",
      p->kernels.size() == 1 ? first.name : fmt::format("{} kernels", p->kernels.size()),
      pretty_percent(memory), pretty_percent(compute));
  Hypothesis x{by_memory ? Verdict::memory_bound : Verdict::compute_bound,
               {},
               by_memory ? Wall::memory : Wall::compute,
               "",
               high >= thresholds::kNearRoof};
  if (high < thresholds::kQuietShare) {
    // Neither is near: too little work in flight.
    x.verdict = Verdict::slow_kernel;
    x.belief.supports(0.5, shares + ": latency, not throughput, limits");
    if (first.waves && *first.waves < 1) {
      x.belief.supports(0.3,
                        fmt::format("{:.2f} waves: blocks do not fill the device", *first.waves));
    }
    x.sentence =
        "Latency-bound kernel: neither memory nor arithmetic is near its peak. More bytes in "
        "flight, more blocks, or fusion with its neighbours help.";
    return x;
  }
  x.belief.supports(high >= thresholds::kNearRoof ? 0.8 : 0.6, shares);
  if (low > 0.8 * high) x.belief.contradicts(0.7, "both ceilings are about as near");
  if (first.dram_bytes && first.seconds > 0) {
    x.belief.supports(
        0, fmt::format("{} moved in {}: {}", pretty_bytes(*first.dram_bytes),
                       pretty_time(first.seconds), pretty_rate(*first.dram_bytes / first.seconds)));
  }
  x.sentence = fmt::format("{}: {} runs at {} of the {} peak{}.",
                           by_memory ? "Memory-bound" : "Compute-bound",
                           p->kernels.size() == 1 ? "the kernel" : "the profile",
                           pretty_percent(high), by_memory ? "memory" : "arithmetic",
                           high < thresholds::kNearRoof ? ", with room left below it" : "");
  return x;
}

// Operators that only move data: what fusion would keep on chip.
std::optional<Hypothesis> judge_unfused(const Case& c) {
  const KernelProfile* p = c.seen.profile;
  if (!p || p->kernel_s <= 0 || p->kernels.empty() || p->kernels.front().memory_share) {
    return std::nullopt;
  }
  const double share = unfused_share(*p);
  if (share < 0.35) return std::nullopt;
  Hypothesis x{Verdict::memory_bound, {}, Wall::memory, "", false};
  x.belief.supports(
      share >= thresholds::kDominant ? 0.7 : 0.45,
      fmt::format("{} of the kernels' time are unfused element-wise operators, copies "
                  "and reductions; GEMMs take {}",
                  pretty_percent(share), pretty_percent(family_share(*p, KernelFamily::gemm))));
  if (gap_share(*p) > thresholds::kGapShare) {
    x.belief.contradicts(
        0.7, fmt::format("the device waits {} of the time", pretty_percent(gap_share(*p))));
  }
  x.sentence = fmt::format(
      "Memory traffic of unfused operators: {} of the time moves intermediates that fused kernels "
      "keep on chip. Compile or fuse the model, or use an inference engine.",
      pretty_percent(share));
  return x;
}

// GEMMs and attention with many tokens are arithmetic, with few they are reads of the weights.
std::optional<Hypothesis> judge_dominant(const Case& c) {
  const KernelProfile* p = c.seen.profile;
  if (!p || p->kernel_s <= 0 || p->kernels.empty() || p->kernels.front().memory_share) {
    return std::nullopt;
  }
  const double gemm =
      family_share(*p, KernelFamily::gemm) + family_share(*p, KernelFamily::experts);
  const double attention = family_share(*p, KernelFamily::attention);
  if (gemm + attention < thresholds::kDominant) return std::nullopt;
  bool prefill = p->prefill_tokens > 4 * p->decode_tokens && p->prefill_tokens > 256;
  const bool decode = p->decode_tokens > 0 && !prefill;
  double longest = 0;  // mean of the dominant family's longest kernel
  for (const KernelTime& k : p->kernels) {
    const bool wide = k.family == KernelFamily::gemm || k.family == KernelFamily::experts ||
                      k.family == KernelFamily::attention;
    if (wide && k.launches > 0) longest = std::max(longest, k.seconds / k.launches);
  }
  // Reading the largest matrix of a layer takes well under 0.3 ms on any of today's accelerators.
  const bool long_kernels = longest > 300e-6;
  if (!prefill && !decode) prefill = long_kernels;
  Hypothesis x{prefill ? Verdict::compute_bound : Verdict::memory_bound,
               {},
               prefill ? Wall::compute : Wall::memory,
               "",
               gap_share(*p) <= thresholds::kGapShare};
  x.belief.supports(gemm + attention > 0.8 ? 0.6 : 0.5,
                    fmt::format("GEMMs take {} and attention {} of the kernels' time",
                                pretty_percent(gemm), pretty_percent(attention)));
  if (p->prefill_tokens + p->decode_tokens > 0) {
    x.belief.supports(0.3, fmt::format("the marked steps carry {:.0f} prompt tokens and {:.0f} "
                                       "output tokens",
                                       p->prefill_tokens, p->decode_tokens));
  } else {
    x.belief.supports(0.15,
                      fmt::format("the longest of them takes {} on average{}", pretty_time(longest),
                                  prefill ? ": more than reading its weights takes" : ""));
  }
  if (!p->serialized && gap_share(*p) > thresholds::kGapShare) {
    x.belief.contradicts(
        0.6, fmt::format("the device waits {} of the time", pretty_percent(gap_share(*p))));
  }
  if (p->wall_s == 0 && !p->serialized) x.belief.contradicts(0.7, "the file shows no gaps");
  x.sentence = prefill ? "Compute: the time goes to GEMMs and attention over many tokens."
                       : "Memory bandwidth: the time goes to GEMMs and attention over few tokens, "
                         "which read weights and KV cache.";
  return x;
}

// One family far above its expected time while the others are not.
std::optional<Hypothesis> judge_slow_operator(const Case& c) {
  const KernelProfile* p = c.seen.profile;
  if (!p || p->serialized || !c.run.expected || !c.run.batch) return std::nullopt;
  const std::vector<OperatorTime> rows = operator_times(*p, &*c.run.expected);
  const OperatorTime* worst = nullptr;
  double excess = 0;
  for (const OperatorTime& row : rows) {
    if (row.expected_s <= 0 || row.family == KernelFamily::collective) continue;
    if (row.seconds > thresholds::kSlowOperator * row.expected_s &&
        row.seconds - row.expected_s > excess) {
      worst = &row;
      excess = row.seconds - row.expected_s;
    }
  }
  if (!worst || excess < 0.2 * p->kernel_s) return std::nullopt;
  const std::string name = kernel_family_name(worst->family);
  Hypothesis x{Verdict::slow_kernel, {}, c.run.predicted().wall, "", false};
  x.belief.supports(
      0.7, fmt::format("{} takes {}, {:.1f}x the expected {}", name, pretty_time(worst->seconds),
                       worst->seconds / worst->expected_s, pretty_time(worst->expected_s)));
  for (const KernelTime& k : p->kernels) {
    if (k.family != worst->family) continue;
    x.belief.supports(0, fmt::format("its longest kernel is {} ({} in {:.0f} launches)", k.name,
                                     pretty_time(k.seconds), k.launches));
    break;
  }
  x.sentence = fmt::format(
      "A slow operator: {} takes {:.1f}x its expected time. An untuned kernel configuration, a "
      "dequantizing path or a fallback is the usual cause.",
      name, worst->seconds / worst->expected_s);
  return x;
}

std::optional<Hypothesis> judge_copies(const Case& c) {
  const KernelProfile* p = c.seen.profile;
  if (!p || p->wall_s <= 0 || p->host_to_device_s < 0.3 * p->wall_s) return std::nullopt;
  Hypothesis x{Verdict::host_weights, {}, Wall::host_link, "", false};
  x.belief.supports(0.6, fmt::format("copies from host memory take {} of {}",
                                     pretty_time(p->host_to_device_s), pretty_time(p->wall_s)));
  if (p->host_to_device_bytes > 1e9) {
    x.belief.supports(0.4,
                      fmt::format("{} cross the host link", pretty_bytes(p->host_to_device_bytes)));
  }
  x.sentence =
      "Weights on the host: copies from host memory take the time. Keep weights and cache on the "
      "device.";
  return x;
}

constexpr Rule kProfileRules[] = {judge_gaps,    judge_exposed,  judge_kernel_counters,
                                  judge_unfused, judge_dominant, judge_slow_operator,
                                  judge_copies};

}  // namespace

std::span<const Rule> profile_rules() { return kProfileRules; }

}  // namespace ridge
