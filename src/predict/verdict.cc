// The verdict: the observed step against the roof and the expected band. Counters say what the
// device did in that time.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "predict/diagnosis.h"

namespace ridge {
namespace {

// Thresholds, with their sources. DRAM_ACTIVE tops out near 0.8 on a saturated memory and the
// tensor pipe near 0.93 (DCGM guide and its test tool). Above 60 % of a ceiling with the other
// below 40 % is the usual reading of Nsight's speed-of-light; below both is latency.
constexpr double kDramBusy = 0.6, kTensorBusy = 0.5, kQuiet = 0.4;
// Clocks, sampling and rounding: an observation this much faster than the roof is no measurement.
constexpr double kRoofSlack = 0.97;
// A batch below this share of the useful one wastes the device.
constexpr double kUnderBatched = 0.5;
constexpr double kIdleUtil = 0.5;
constexpr double kKvFull = 0.9;
// A larger batch that yields less than this factor is not worth a sentence.
constexpr double kWorthRaising = 1.1;

bool dram_busy(const Observation& seen) { return seen.dram_active.value_or(0) >= kDramBusy; }
bool tensor_busy(const Observation& seen) { return seen.tensor_active.value_or(0) >= kTensorBusy; }

std::string percent_or_unknown(const std::optional<double>& share) {
  return share ? pretty_percent(*share) : "unknown";
}

bool near_power_limit(const Diagnosis& d) {
  const Maybe limit = d.request.system.device.power;
  return d.seen.power_w && limit && *d.seen.power_w >= 0.95 * *limit;
}

bool under_batched(const Explanation& x) { return x.batch < x.useful_batch * kUnderBatched; }

// " Raise the batch ...": a sentence to append; empty where a larger batch gains nothing.
std::string batch_advice(const Explanation& x) {
  const double gain = x.useful_tokens_per_s / x.prediction.tokens_per_s;
  if (x.useful_batch <= x.batch || gain < kWorthRaising) return "";
  return fmt::format(
      " Raise the batch before adding devices: {:.0f} -> {:.0f} yields about {:.{}f}x the "
      "tokens/s.",
      x.batch, x.useful_batch, gain, gain < 9.95 ? 1 : 0);
}

void describe_batch(Diagnosis& d) {
  const Explanation& x = d.result;
  if (x.useful_batch <= x.batch || d.phase() == Phase::prefill) return;
  d.supports(
      fmt::format("batch {:.0f}; a batch of {:.0f} comes within 10 % of the best throughput ({} "
                  "tok/s expected)",
                  x.batch, x.useful_batch, pretty_number(x.useful_tokens_per_s)));
}

void describe_util(Diagnosis& d) {
  if (!d.seen.gpu_util) return;
  d.supports(fmt::format("GPU-Util {} only says that some kernel was resident",
                         pretty_percent(*d.seen.gpu_util)));
}

void judge_too_large(Diagnosis& d) {
  Explanation& x = d.result;
  const MemoryFit& memory = x.prediction.memory;
  x.verdict = Verdict::impossible;
  x.next_wall = x.prediction.decode.next_wall;
  x.wall = Wall::capacity;
  d.supports(fmt::format("per device: {} of weights and {} of KV cache, {} of memory",
                         pretty_bytes(memory.weights), pretty_bytes(memory.kv),
                         pretty_bytes(*memory.capacity)));
  if (memory.weights > *memory.capacity) {
    x.sentence = fmt::format(
        "Impossible as described: the weights alone ({}) do not fit {} ({}). Check precision, "
        "devices and offload.",
        pretty_bytes(memory.weights), d.request.system.name(), pretty_bytes(*memory.capacity));
  } else {
    x.sentence = fmt::format(
        "Impossible as described: batch {:.0f} at context {:.0f} needs {} per device, {} has {}. "
        "Check batch, context, precision and devices.",
        x.batch, d.request.context, pretty_bytes(memory.used()), d.request.system.name(),
        pretty_bytes(*memory.capacity));
  }
}

void judge_faster_than_roof(Diagnosis& d) {
  Explanation& x = d.result;
  const StepEstimate& predicted = d.predicted();
  const double possible = x.batch * x.prediction.tokens_per_step / predicted.roof_s;
  x.verdict = Verdict::impossible;
  d.supports(
      fmt::format("a step of {} is below the roof of {}: {} cannot move {} through device memory "
                  "in less time",
                  pretty_time(x.step_s), pretty_time(predicted.roof_s), d.request.system.name(),
                  pretty_bytes(predicted.bytes)));
  x.sentence = fmt::format(
      "Impossible as described: {} per step is faster than the roof allows ({}, {} tok/s at "
      "batch {:.0f}). Check batch, precision, context, devices and how tokens are counted.",
      pretty_time(x.step_s), pretty_time(predicted.roof_s), pretty_number(possible), x.batch);
}

void judge_full(Diagnosis& d) {
  Explanation& x = d.result;
  x.verdict = Verdict::full;
  x.next_wall = x.wall;
  x.wall = Wall::capacity;
  d.supports(fmt::format("the KV cache is {} full and {:.0f} requests wait",
                         pretty_percent(*d.seen.kv_usage), *d.seen.waiting));
  x.sentence =
      "KV cache capacity: there is no room for more sequences. Fewer bytes per token (fp8 KV, "
      "prefix sharing) or more memory make room; a faster device does not.";
}

void judge_idle(Diagnosis& d) {
  Explanation& x = d.result;
  x.verdict = under_batched(x) ? Verdict::under_batched : Verdict::starved;
  x.next_wall = x.wall;
  x.wall = Wall::launch;
  d.supports(
      fmt::format("the device is idle {} of the time", pretty_percent(1 - *d.seen.gpu_util)));
  if (d.seen.waiting.value_or(0) > 0) {
    d.supports("requests wait while the device idles: the scheduler holds them back");
  }
  describe_batch(d);
  x.sentence = fmt::format(
      "{}: the device waits for work{}.{}",
      x.verdict == Verdict::starved ? "Starved" : "Under-batched",
      x.effective_batch
          ? fmt::format(" and behaves as if {:.1f} sequences were decoding", *x.effective_batch)
          : "",
      batch_advice(x));
}

void judge_slow_compute(Diagnosis& d) {
  Explanation& x = d.result;
  x.wall = near_power_limit(d) ? Wall::power : Wall::compute;
  d.supports(fmt::format("tensor cores active {}", pretty_percent(*d.seen.tensor_active)));
  d.contradicts("the prediction has less arithmetic: longer prompts or a larger batch than given?");
  x.sentence = "Compute: the tensor cores are busy with more work than the described step has.";
}

void judge_slow_memory(Diagnosis& d) {
  Explanation& x = d.result;
  x.wall = Wall::memory;
  x.next_wall = x.prediction.decode.next_wall;
  d.supports(
      fmt::format("DRAM active {}, tensor cores active {}: memory bandwidth limits, not arithmetic",
                  pretty_percent(*d.seen.dram_active), percent_or_unknown(d.seen.tensor_active)));
  describe_util(d);
  const double moved = *d.seen.dram_active * x.step_s / d.predicted().roof_s;
  if (moved > 1.5) {
    d.contradicts(
        fmt::format("{:.1f}x the bytes the step needs: a longer context, a wider KV or weight "
                    "format, or attention that re-reads the cache?",
                    moved));
  }
  x.sentence =
      "Memory bandwidth: device memory is busy and the tensor cores wait for it." + batch_advice(x);
}

// The prompt's own work does not explain the time to first token: something runs before it.
void judge_slow_prefill(Diagnosis& d) {
  Explanation& x = d.result;
  const StepEstimate& predicted = d.predicted();
  x.wall = Wall::launch;
  x.next_wall = predicted.wall;
  d.supports(fmt::format("the prompt's own work takes {}; {} pass before or around it",
                         pretty_time(predicted.expected_s),
                         pretty_time(x.step_s - predicted.expected_s)));
  d.contradicts("or the prompts are longer than given, or miss the prefix cache");
  x.sentence = fmt::format(
      "Host and queue: {} of the time to first token is not this prompt's own work. Requests "
      "wait for a slot, or prompts run one after the other.",
      pretty_percent(1 - predicted.expected_s / x.step_s));
}

// Neither ceiling is busy. Collectives and launches both leave memory and arithmetic quiet.
void judge_slow_quiet(Diagnosis& d) {
  Explanation& x = d.result;
  const WallTimes& on = x.prediction.decode.on;
  const double link = on[static_cast<int>(Wall::interconnect)];
  const bool parallel = d.request.plan.devices() > 1;
  const bool links_decide = parallel && link > on[static_cast<int>(Wall::launch)];
  x.wall = links_decide ? Wall::interconnect : Wall::launch;
  x.next_wall = !links_decide && parallel ? Wall::interconnect : d.predicted().wall;
  if (d.seen.dram_active || d.seen.tensor_active) {
    d.supports(fmt::format(
        "DRAM active {}, tensor cores active {}: neither ceiling is near, the device "
        "waits between kernels",
        percent_or_unknown(d.seen.dram_active), percent_or_unknown(d.seen.tensor_active)));
  } else {
    d.supports("the step's bytes and FLOPs do not explain the time");
  }
  describe_util(d);
  if (parallel) {
    d.contradicts(
        fmt::format("collectives over {} ranks would explain it too (expected {} of the "
                    "step): a trace separates them",
                    d.request.plan.tp, pretty_time(link)));
  }
  if (x.effective_batch && *x.effective_batch < 0.7 * x.batch && !d.seen.itl_s) {
    d.contradicts(
        fmt::format("or fewer than {:.0f} sequences decode: {:.1f} would give this throughput",
                    x.batch, *x.effective_batch));
  }
  x.sentence = fmt::format(
      "{}: {} of the step is neither memory traffic nor arithmetic. Look for eager launches, host "
      "work between steps, or collectives.{}",
      links_decide ? "Interconnect" : "Launch gaps and host",
      pretty_percent(1 - std::min(1.0, d.predicted().expected_s / x.step_s)),
      under_batched(x) ? batch_advice(x) : "");
}

// Slower than a good stack: the counters say what the device did meanwhile.
void judge_slow(Diagnosis& d) {
  Explanation& x = d.result;
  x.verdict = Verdict::slow_step;
  d.supports(fmt::format("a step takes {}, {:.1f}x the expected {} (roof {})",
                         pretty_time(x.step_s), x.over_expected,
                         pretty_time(d.predicted().expected_s), pretty_time(d.predicted().roof_s)));
  if (tensor_busy(d.seen)) {
    judge_slow_compute(d);
  } else if (dram_busy(d.seen)) {
    judge_slow_memory(d);
  } else if (d.phase() == Phase::prefill) {
    judge_slow_prefill(d);
  } else {
    judge_slow_quiet(d);
  }
  describe_batch(d);
}

void compare_counters(Diagnosis& d) {
  Explanation& x = d.result;
  if (dram_busy(d.seen) && !tensor_busy(d.seen)) {
    x.wall = Wall::memory;
    d.supports(fmt::format("DRAM active {}: memory bandwidth is the ceiling",
                           pretty_percent(*d.seen.dram_active)));
  } else if (tensor_busy(d.seen)) {
    x.wall = near_power_limit(d) ? Wall::power : Wall::compute;
    d.supports(fmt::format("tensor cores active {}", pretty_percent(*d.seen.tensor_active)));
  } else if (d.seen.dram_active && *d.seen.dram_active < kQuiet && x.wall == Wall::memory) {
    d.contradicts(fmt::format("DRAM active only {}: is the counter averaged over idle time?",
                              pretty_percent(*d.seen.dram_active)));
  }
  describe_util(d);
  if (x.mfu < 0.1 && x.wall == Wall::memory) {
    d.supports(fmt::format("MFU {} is normal for decode; MBU {} is the figure to watch",
                           pretty_percent(x.mfu), pretty_percent(x.mbu)));
  }
}

// Between the roof and the upper end of the expected band.
void judge_expected(Diagnosis& d) {
  Explanation& x = d.result;
  const StepEstimate& predicted = d.predicted();
  d.supports(x.step_s < predicted.low_s
                 ? fmt::format("{}: between the roof ({}) and the expected band ({} - {})",
                               pretty_time(x.step_s), pretty_time(predicted.roof_s),
                               pretty_time(predicted.low_s), pretty_time(predicted.high_s))
                 : fmt::format("a step takes {}, expected {} - {} (roof {})", pretty_time(x.step_s),
                               pretty_time(predicted.low_s), pretty_time(predicted.high_s),
                               pretty_time(predicted.roof_s)));
  compare_counters(d);
  describe_batch(d);
  const bool batch_helps = x.wall == Wall::memory || x.wall == Wall::launch;
  if (batch_helps && under_batched(x) && d.phase() == Phase::decode) {
    x.verdict = Verdict::under_batched;
    x.sentence = "Under-batched: each step is as fast as it should be, and has too few sequences." +
                 batch_advice(x);
  } else {
    x.verdict = Verdict::healthy;
    x.sentence = fmt::format(
        "Nothing is wrong: the step is as fast as expected on this hardware ({} of the roof); the "
        "wall is {}.",
        pretty_percent(x.share_of_roof), wall_name(x.wall));
  }
}

}  // namespace

void judge(Diagnosis& d) {
  const Observation& seen = d.seen;
  const MemoryFit& memory = d.result.prediction.memory;
  const bool full = seen.kv_usage && *seen.kv_usage >= kKvFull && seen.waiting.value_or(0) > 0;
  const bool idle = seen.gpu_util && *seen.gpu_util < kIdleUtil;
  // An engine's share of the memory is a setting: only what exceeds the device is impossible.
  if (memory.capacity && memory.used() > *memory.capacity) {
    // The cache was seen full, so the run holds less than described.
    if (!full || memory.weights > *memory.capacity) return judge_too_large(d);
    d.contradicts(
        fmt::format("as described it needs {} of {} per device: another context, precision or "
                    "batch?",
                    pretty_bytes(memory.used()), pretty_bytes(*memory.capacity)));
  }
  if (d.result.step_s < kRoofSlack * d.predicted().roof_s) return judge_faster_than_roof(d);
  if (full) return judge_full(d);
  if (idle && !dram_busy(seen) && !tensor_busy(seen)) return judge_idle(d);
  if (d.result.step_s > d.predicted().high_s) return judge_slow(d);
  judge_expected(d);
}

}  // namespace ridge
