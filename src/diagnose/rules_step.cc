// The step itself: as fast as it should be, or what the time goes to.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "diagnose/thresholds.h"
#include "diagnose/verdict.h"

namespace ridge {
namespace {

std::string step_words(const Case& c) {
  const StepEstimate& predicted = c.run.predicted();
  const char* what = c.run.phase == Phase::decode ? "a step" : "the first token";
  if (c.run.is_slow()) {
    return fmt::format("{} takes {}, {:.1f}x the expected {} (roof {})", what,
                       pretty_time(*c.run.step_s), c.run.expected->over_expected,
                       pretty_time(predicted.expected_s), pretty_time(predicted.roof_s));
  }
  return fmt::format("{} takes {}, expected {} - {} (roof {})", what, pretty_time(*c.run.step_s),
                     pretty_time(predicted.low_s), pretty_time(predicted.high_s),
                     pretty_time(predicted.roof_s));
}

std::string counter_words(const Case& c) {
  const auto share = [&](Quantity q) {
    return c.seen.has(q) ? pretty_percent(*c.seen[q]) : std::string("unknown");
  };
  return fmt::format("DRAM active {}, tensor cores active {}", share(Quantity::dram_active),
                     share(Quantity::tensor_active));
}

bool parallel(const Case& c) {
  return c.run.expected ? c.run.expected->request.plan.tp * c.run.expected->request.plan.pp > 1
                        : c.seen.setup.tp.value_or(1) * c.seen.setup.pp.value_or(1) > 1;
}

// Expected share of the step that collectives take.
double link_share(const Case& c) {
  if (!c.run.expected) return 0;
  const StepEstimate& p = c.run.predicted();
  return p.on[static_cast<int>(Wall::interconnect)] / p.expected_s;
}

// Links without direct access between devices, or of PCIe's speed.
bool slow_link(const Case& c) {
  if (!c.run.expected) return false;
  const std::vector<Link>& links = c.run.expected->request.system.device.links;
  if (links.empty()) return true;
  return links.front().bandwidth.value_or(0) < 70e9 || links.front().p2p == false;
}

// Longer than any host work between steps.
bool beyond_host(const Case& c) {
  return c.run.is_slow() && c.run.phase == Phase::decode &&
         *c.run.step_s - c.run.predicted().expected_s > thresholds::kHostStepMost_s;
}

// 4-bit weights that a batch multiplies: dequantizing costs more than it saves.
bool four_bit_batch(const Case& c) {
  if (!c.run.is_slow() || c.run.phase != Phase::decode || !c.run.batch) return false;
  const Request& r = c.run.expected->request;
  const double bits = (r.plan.weights ? *r.plan.weights : main_weight_format(*r.model)).bits;
  return bits < 6 && *c.run.batch >= thresholds::kFourBitBatch && !parallel(c) &&
         !c.device_idles() && c.seen.value_or(Quantity::cpu, 0) < thresholds::kCpuBusy;
}

// Seconds of the time to first token that are neither queue nor prompt. Engines count the first
// token when it comes, and the queue when the request ends: while a queue grows, the two are of
// different requests.
double outside_engine(const Case& c) {
  const Observations& seen = c.seen;
  if (c.waits() || !seen.has(Quantity::ttft) || !seen.has(Quantity::queue_time) ||
      !seen.has(Quantity::prefill_time)) {
    return 0;
  }
  return *seen[Quantity::ttft] - *seen[Quantity::queue_time] - *seen[Quantity::prefill_time];
}

void weigh_host_signs(const Case& c, Hypothesis& x) {
  const Observations& seen = c.seen;
  if (seen.value_or(Quantity::cpu, 0) >= thresholds::kCpuBusy) {
    x.belief.supports(
        0.65, fmt::format("the host's cores are {} busy", pretty_percent(*seen[Quantity::cpu])));
  }
  const bool eager =
      seen.setup.eager.value_or(false) || (c.run.expected && !c.run.expected->request.plan.graphs);
  if (eager) x.belief.supports(0.45, "CUDA graphs are off: the host launches every kernel");
  if (seen.value_or(Quantity::graph_share, 1) < 0.5) {
    x.belief.supports(0.55, fmt::format("only {} of the decode steps run from a CUDA graph",
                                        pretty_percent(*seen[Quantity::graph_share])));
  }
  const double largest = seen.value_or(Quantity::graph_max, 0);
  if (largest > 0 && c.running() > 1.02 * largest) {
    x.belief.supports(0.65, fmt::format("{} sequences run, graphs end at {}: larger steps are "
                                        "launched kernel by kernel",
                                        pretty_number(c.running()), pretty_number(largest)));
  }
  const double outside = outside_engine(c);
  if (outside > thresholds::kHostShare * seen.value_or(Quantity::ttft, 0) && outside > 0.05) {
    x.belief.supports(0.6, fmt::format("{} of the time to first token is neither queue nor prompt: "
                                       "tokenizer, API process or router",
                                       pretty_time(outside)));
  }
}

std::optional<Hypothesis> judge_host(const Case& c) {
  const Observations& seen = c.seen;
  if (seen.profile) return std::nullopt;  // the time line itself decides
  Hypothesis x{Verdict::host_bound, {}, Wall::launch, "", false};
  weigh_host_signs(c, x);
  const bool busy = c.dram_busy() || c.tensor_busy();
  const bool work = c.running() > thresholds::kVerySmallBatch || c.waits();
  if (c.device_idles() && work && !busy) {
    x.belief.supports(
        c.waits() ? 0.7 : 0.55,
        fmt::format("the device is busy {} of the time only, though {}",
                    pretty_percent(std::min(seen.value_or(Quantity::gpu_util, 1),
                                            seen.value_or(Quantity::gr_active, 1))),
                    c.waits() ? "requests wait"
                              : fmt::format("{} sequences run", pretty_number(c.running()))));
  } else if (seen.value_or(Quantity::gpu_util, 1) < thresholds::kGapsUtil && !busy && !c.waits() &&
             c.running() > thresholds::kSmallBatch) {
    x.belief.supports(
        0.45, fmt::format("the device is busy {} of the time, though {} sequences "
                          "run: there are gaps between steps",
                          pretty_percent(*seen[Quantity::gpu_util]), pretty_number(c.running())));
  } else if (seen.value_or(Quantity::engine_busy, 1) < thresholds::kIdleUtil && work) {
    x.belief.supports(0.5, fmt::format("a forward pass runs {} of the time only",
                                       pretty_percent(*seen[Quantity::engine_busy])));
  }
  if (c.run.is_slow() && !busy && c.run.phase == Phase::decode) {
    const bool quiet = c.dram_quiet() && c.tensor_quiet() && seen.has(Quantity::dram_active);
    const double over = c.run.expected->over_expected;
    x.belief.supports(quiet ? 0.55 : over > 2 ? 0.5 : over > 1.7 ? 0.45 : 0.35, step_words(c));
    if (quiet) {
      x.belief.supports(
          0.2, counter_words(c) + ": neither ceiling is near, the device waits between kernels");
    }
  }
  if (x.belief.value() == 0) return std::nullopt;
  if (busy) x.belief.contradicts(0.4, counter_words(c) + ": the device is busy");
  if (seen.value_or(Quantity::gpu_util, 0) >= thresholds::kFullUtil &&
      seen.value_or(Quantity::sm_active, 0) >= 0.7) {
    x.belief.contradicts(0.5, "kernels run without gaps");
  }
  if (c.run.in_band() && c.run.phase == Phase::decode) {
    const bool quiet = c.dram_quiet() && c.tensor_quiet();
    x.belief.contradicts(outside_engine(c) > 0.05 || quiet || c.device_idles() ? 0.75 : 0.4,
                         step_words(c));
  }
  if (four_bit_batch(c)) {
    x.belief.contradicts(0.75, "kernels that dequantize 4-bit weights are as slow at this batch");
  }
  if (parallel(c)) {
    x.belief.contradicts(slow_link(c) || beyond_host(c) ? 0.6 : 0.85,
                         fmt::format("collectives between devices would explain it too{}: a trace "
                                     "separates them",
                                     c.run.expected ? fmt::format(" (expected {} of the step)",
                                                                  pretty_percent(link_share(c)))
                                                    : ""));
  }
  x.sentence = fmt::format(
      "Host-bound: the device waits for the host{}. Look for eager launches, a busy API or "
      "tokenizer process, a CPU limit, or batches beyond the largest CUDA graph.",
      c.run.is_slow() ? fmt::format("; {} of the step is neither memory traffic nor arithmetic",
                                    pretty_percent(1 - 1 / c.run.expected->over_expected))
                      : "");
  return x;
}

std::optional<Hypothesis> judge_interconnect(const Case& c) {
  const Observations& seen = c.seen;
  if (seen.profile || !parallel(c)) return std::nullopt;
  Hypothesis x{Verdict::interconnect, {}, Wall::interconnect, "", false};
  const double share = link_share(c);
  if (c.run.expected && share > thresholds::kLinkShare) {
    x.belief.supports(0.5, fmt::format("{} of the expected step are collectives over {} ranks",
                                       pretty_percent(share), c.run.expected->request.plan.tp));
    if (c.run.in_band()) x.belief.supports(0.3, step_words(c));
  }
  if (c.run.is_slow() && !c.dram_busy() && !c.tensor_busy()) {
    x.belief.supports(slow_link(c) || beyond_host(c) ? 0.5 : 0.3, step_words(c));
    if (beyond_host(c)) {
      x.belief.supports(0.2, fmt::format("no host work takes {} a step: the devices wait for each "
                                         "other, over sockets or host memory",
                                         pretty_time(*c.run.step_s)));
    }
    if (slow_link(c)) x.belief.supports(0.2, "the devices are joined by PCIe, without NVLink");
    if (c.dram_quiet() && c.tensor_quiet()) x.belief.supports(0.2, counter_words(c));
  }
  if (c.run.expected) {
    const std::vector<Link>& links = c.run.expected->request.system.device.links;
    const double link = links.empty() ? 32e9 : 2 * links.front().bandwidth.value_or(32e9);
    const double moved =
        std::max(seen.value_or(Quantity::nvlink_bytes, 0), seen.value_or(Quantity::pcie_bytes, 0));
    if (moved > thresholds::kLinkBusy * link) {
      x.belief.supports(
          0.6, fmt::format("the links carry {} of {}", pretty_rate(moved), pretty_rate(link)));
    }
  }
  if (x.belief.value() == 0) return std::nullopt;
  if (seen.value_or(Quantity::cpu, 0) >= thresholds::kCpuBusy) {
    x.belief.contradicts(0.5, "the host's cores are busy");
  }
  if (seen.value_or(Quantity::gpu_util, 1) < thresholds::kIdleUtil) {
    x.belief.contradicts(0.5, "a collective keeps its kernel resident: utilisation would be high");
  }
  x.sentence =
      "Interconnect: collectives between the devices take the time. Fewer tensor-parallel ranks "
      "with more replicas, pipeline stages across slow links, or a faster link help.";
  return x;
}

std::optional<Hypothesis> judge_slow_kernel(const Case& c) {
  const Observations& seen = c.seen;
  if (seen.profile || !c.run.is_slow()) return std::nullopt;
  const bool busy = seen.value_or(Quantity::gpu_util, 0) >= thresholds::kFullUtil ||
                    seen.value_or(Quantity::gr_active, 0) >= thresholds::kFullUtil;
  Hypothesis x{Verdict::slow_kernel, {}, c.run.predicted().wall, "", false};
  if (c.dram_quiet() && c.tensor_quiet() &&
      (seen.value_or(Quantity::sm_active, 0) >= 0.7 || (busy && !parallel(c)))) {
    x.belief.supports(0.5, counter_words(c) + ", yet kernels run all the time");
    x.belief.supports(0.2, step_words(c));
  } else if (c.dram_busy() && c.run.expected->over_expected > thresholds::kSlowOperator) {
    const double moved =
        *seen[Quantity::dram_active] / c.roofs.dram * *c.run.step_s / c.run.predicted().roof_s;
    x.belief.supports(0.4, fmt::format("{:.1f}x the bytes that the step needs: an operator reads "
                                       "the cache or the weights again, or lengths and formats are "
                                       "other than given",
                                       moved));
  } else if (four_bit_batch(c)) {
    x.belief.supports(0.5, fmt::format("4-bit weights at batch {:.0f}: kernels that dequantize "
                                       "them for every tile lose against 16 bits there",
                                       *c.run.batch));
    x.belief.supports(busy ? 0.3 : 0.1, step_words(c));
  } else if (busy && !seen.has(Quantity::dram_active) && !parallel(c)) {
    x.belief.supports(0.35, step_words(c) + " while some kernel is always resident");
  }
  if (x.belief.value() == 0) return std::nullopt;
  if (seen.value_or(Quantity::cpu, 0) >= thresholds::kCpuBusy) {
    x.belief.contradicts(0.6, "the host's cores are busy");
  }
  x.sentence = fmt::format(
      "A slow operator: the device is busy all the time, but {:.1f}x longer than its bytes and "
      "FLOPs explain. A profile shows which kernel: an untuned or dequantizing GEMM, or attention.",
      c.run.expected->over_expected);
  return x;
}

std::optional<Hypothesis> judge_power(const Case& c) {
  const Observations& seen = c.seen;
  Hypothesis x{Verdict::power, {}, Wall::power, "", false};
  std::optional<double> limit = seen[Quantity::power_limit];
  const Maybe board = c.machine ? c.machine->power : Maybe();
  if (!limit) limit = board;
  std::optional<double> boost = seen[Quantity::max_sm_clock];
  if (!boost && c.machine) boost = c.machine->clock;
  if (!boost) boost = thresholds::kLeastBoost_hz;
  const bool at_power = seen.has(Quantity::power) && limit &&
                        *seen[Quantity::power] >= thresholds::kPowerNear * *limit;
  const double clock =
      seen.has(Quantity::sm_clock) && boost ? *seen[Quantity::sm_clock] / *boost : 1;
  const double throttled = std::max(seen.value_or(Quantity::power_throttled, 0),
                                    seen.value_or(Quantity::thermal_throttled, 0));
  const bool works = c.running() > 0 || c.tensor_busy() || c.dram_busy() ||
                     seen.value_or(Quantity::gpu_util, 0) > thresholds::kIdleUtil ||
                     c.run.step_s.has_value();
  if (!works) return std::nullopt;
  if (at_power) {
    x.belief.supports(0.35,
                      fmt::format("{:.0f} W of at most {:.0f} W", *seen[Quantity::power], *limit));
  }
  const bool low = clock < thresholds::kClockLow;
  const bool capped = at_power && low && board && *limit < thresholds::kCappedPower * *board;
  if (capped) {
    x.belief.supports(0.5, fmt::format("the limit is {} of the board's {:.0f} W",
                                       pretty_percent(*limit / *board), *board));
  }
  if (low &&
      (at_power || throttled > thresholds::kThrottled || clock < thresholds::kClockVeryLow)) {
    x.belief.supports(clock < thresholds::kClockVeryLow ? 0.65 : 0.45,
                      fmt::format("the SM clock is {:.0f} MHz of {:.0f}",
                                  *seen[Quantity::sm_clock] / 1e6, *boost / 1e6));
  }
  if (throttled > thresholds::kThrottled) {
    const bool heat = seen.value_or(Quantity::thermal_throttled, 0) > thresholds::kThrottled;
    x.belief.supports(heat ? 0.6 : 0.35,
                      fmt::format("{} lowered the clocks in {} of the samples",
                                  heat ? "heat" : "the power limit", pretty_percent(throttled)));
  }
  if (x.belief.value() == 0) return std::nullopt;
  if (c.tensor_busy() || (c.run.is_slow() && low)) {
    x.belief.supports(0.35, c.tensor_busy()
                                ? "the tensor cores are busy: their rate follows the clock"
                                : step_words(c));
  } else if (clock >= thresholds::kClockVeryLow && !capped) {
    x.belief.contradicts(0.45, "memory-bound steps hardly depend on the SM clock");
  }
  if (c.run.in_band()) x.belief.contradicts(capped ? 0.85 : 0.6, step_words(c));
  x.sentence = fmt::format(
      "Power or heat: the device lowers its clocks{}. Raise the power limit or improve the "
      "cooling; "
      "fewer FLOPs or narrower formats need less power.",
      low ? fmt::format(" to {} of what it can", pretty_percent(clock)) : "");
  return x;
}

std::string healthy_words(const Case& c, const char* what) {
  return fmt::format(
      "Nothing is wrong: the step is as fast as expected on this hardware ({} of the roof); {} is "
      "the wall.",
      pretty_percent(c.run.expected->share_of_roof), what);
}

void weigh_step(const Case& c, Hypothesis& x, Wall wall) {
  if (!c.run.in_band()) return;
  if (c.run.predicted().wall == wall) {
    x.belief.supports(0.65, step_words(c));
    x.healthy = true;
  }
  if (wall == Wall::memory && c.run.predicted().wall == Wall::launch && c.dram_busy()) {
    x.healthy = true;
  }
}

// Weights read each step x steps/s, or the engine's own count, against the device's bandwidth.
void weigh_bytes(const Case& c, Hypothesis& x) {
  const double rate = c.seen.value_or(Quantity::bytes_per_s, 0);
  const Maybe bandwidth = c.machine ? c.machine->memory().read_bandwidth : Maybe();
  if (rate <= 0 || !bandwidth) return;
  const double share = rate / *bandwidth;
  const std::string text = fmt::format("{} of the device's {} ({})", pretty_rate(rate),
                                       pretty_rate(*bandwidth), pretty_percent(share));
  if (share >= thresholds::kBusyShare && share < 1.05) {
    x.belief.supports(0.5, text);
    x.healthy = x.healthy || !c.run.compares();
  } else if (share >= thresholds::kModestShare && share < 1) {
    x.belief.supports(0.42, text);
  } else if (share < thresholds::kQuietShare) {
    x.belief.contradicts(0.7, text);
  }
}

std::optional<Hypothesis> judge_memory(const Case& c) {
  const Observations& seen = c.seen;
  Hypothesis x{Verdict::memory_bound, {}, Wall::memory, "", false};
  weigh_step(c, x, Wall::memory);
  if (c.dram_busy()) {
    x.belief.supports(0.55, counter_words(c) + ": memory bandwidth limits");
    if (seen.has(Quantity::tensor_active) && !c.tensor_busy()) x.belief.supports(0.2, "");
  }
  weigh_bytes(c, x);
  if (x.belief.value() == 0) return std::nullopt;
  if (c.tensor_busy()) x.belief.contradicts(0.5, "the tensor cores are busy, too");
  if (c.run.under_batched(thresholds::kUnderBatched) && !c.single_user()) {
    x.belief.contradicts(0.5, fmt::format("{:.0f} sequences are few: {:.0f} would use the device",
                                          *c.run.batch, c.run.expected->useful_batch));
  }
  if (c.waits()) x.belief.contradicts(0.7, "requests wait");
  if (c.device_idles()) x.belief.contradicts(0.4, "the device is often idle");
  if (c.dram_quiet()) {
    x.belief.contradicts(0.7, fmt::format("DRAM active only {}: is the counter averaged over idle "
                                          "time?",
                                          pretty_percent(*seen[Quantity::dram_active])));
  }
  if (c.run.is_slow()) x.belief.contradicts(0.85, step_words(c));
  x.healthy = x.healthy || (!c.run.compares() && c.dram_busy());
  x.sentence = x.healthy && c.run.compares()
                   ? healthy_words(c, "memory bandwidth")
                   : "Memory bandwidth: device memory is busy and the tensor cores wait for it.";
  return x;
}

std::optional<Hypothesis> judge_compute(const Case& c) {
  Hypothesis x{Verdict::compute_bound, {}, Wall::compute, "", false};
  weigh_step(c, x, Wall::compute);
  if (c.tensor_busy()) {
    x.belief.supports(0.65, counter_words(c) + ": arithmetic limits");
    x.healthy = x.healthy || !c.run.compares() || c.run.in_band();
  }
  if (x.belief.value() == 0) return std::nullopt;
  if (c.tensor_quiet()) x.belief.contradicts(0.5, counter_words(c));
  if (c.device_idles()) x.belief.contradicts(0.4, "the device is often idle");
  if (c.run.is_slow()) {
    x.belief.contradicts(0.8, step_words(c) + ": longer prompts or a larger batch than given?");
  }
  x.sentence = x.healthy && c.run.compares()
                   ? healthy_words(c, "arithmetic")
                   : "Compute: the tensor cores are busy; only less arithmetic, a narrower format "
                     "or more devices make it faster.";
  return x;
}

// A late first token, and nothing else known: the prompt waits for its turn, or runs slowly.
std::optional<Hypothesis> judge_late_prefill(const Case& c) {
  if (c.run.phase != Phase::prefill || !c.run.is_slow()) return std::nullopt;
  if (c.seen.has(Quantity::queue_time)) return std::nullopt;
  Hypothesis x{Verdict::queue_capacity, {}, std::nullopt, "", false};
  const double own = c.run.predicted().expected_s;
  x.belief.supports(c.run.expected->over_expected > 3 ? 0.5 : 0.42,
                    fmt::format("the first token takes {}; the prompt alone is expected to take {}",
                                pretty_time(*c.run.step_s), pretty_time(own)));
  x.belief.contradicts(
      1, "prompts that are longer than given, or miss the prefix cache, would explain it too");
  x.wall = c.run.predicted().wall;
  x.sentence = fmt::format(
      "Queueing, most likely: the prompt's own work explains only {} of the time to first token. "
      "Requests wait for a slot, or prompts run one after the other.",
      pretty_percent(own / *c.run.step_s));
  return x;
}

constexpr Rule kStepRules[] = {judge_power,  judge_host,    judge_interconnect, judge_slow_kernel,
                               judge_memory, judge_compute, judge_late_prefill};

}  // namespace

std::span<const Rule> step_rules() { return kStepRules; }

}  // namespace ridge
