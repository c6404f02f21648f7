#include "predict/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"

namespace ridge {
namespace {

// Thresholds, with their sources. DRAM_ACTIVE tops out near 0.8 on a saturated memory and the
// tensor pipe near 0.93 (DCGM guide and its test tool); above 60 % of a ceiling with the other
// below 40 % is the usual reading of Nsight's speed-of-light; below both is latency.
constexpr double kDramBusy = 0.6, kTensorBusy = 0.5, kQuiet = 0.4;
// Clocks, sampling and rounding: an observation this much faster than the roof is no measurement.
constexpr double kRoofSlack = 0.97;
// Throughput this far below what the machine could hold is not a matter of taste.
constexpr double kUnderBatched = 0.5;
constexpr double kIdleUtil = 0.5;
// Metrics averaged over different windows disagree; beyond this they describe different runs.
constexpr double kDisagree = 1.5;

class Detective {
 public:
  Detective(const Request& request, const Observation& seen) : request_(request), seen_(seen) {}

  Explanation run() {
    check();
    reconstruct();
    find_useful_batch();
    judge();
    compare_first_token();
    list_missing();
    x_.levers = rank_levers(request_, x_.prediction, asked_phase());
    // A cache that is full admits no larger batch, whatever the model's own sums say.
    if (x_.verdict == Verdict::full) {
      std::erase_if(x_.levers, [](const Lever& l) { return l.name.starts_with("batch "); });
    }
    promote_reaching_expected();
    return std::move(x_);
  }

 private:
  void check() const {
    if (!seen_.tokens_per_s && !seen_.itl_s && !seen_.ttft_s) {
      throw Error("nothing to explain: give at least one of --observed (tok/s), --itl or --ttft");
    }
    const auto positive = [](std::optional<double> value, const char* name) {
      if (value && !(*value > 0 && *value < 1e12)) throw Error("{} must be positive", name);
    };
    positive(seen_.tokens_per_s, "--observed");
    positive(seen_.batch, "--batch");
    positive(seen_.itl_s, "--itl");
    positive(seen_.ttft_s, "--ttft");
    positive(seen_.power_w, "--power");
    const auto share = [](std::optional<double> value, const char* name) {
      if (value && !(*value >= 0 && *value <= 1)) throw Error("{} must be from 0 to 1", name);
    };
    share(seen_.dram_active, "--dram-active");
    share(seen_.tensor_active, "--tensor-active");
    share(seen_.gpu_util, "--gpu-util");
    share(seen_.kv_usage, "--kv-usage");
    if (seen_.waiting && !(*seen_.waiting >= 0 && *seen_.waiting < 1e12)) {
      throw Error("--waiting must be zero or more");
    }
    // Little's law: sequences at once = rate x time each takes per token.
    if (seen_.batch && seen_.tokens_per_s && seen_.itl_s) {
      const double running = *seen_.tokens_per_s * *seen_.itl_s;
      if (running > kDisagree * *seen_.batch) {
        throw Error("--observed x --itl means {} sequences decoding at once, but --batch says {}",
                    pretty_number(running), pretty_number(*seen_.batch));
      }
    }
  }

  Prediction at_batch(double batch) const {
    Request r = request_;
    r.batch = batch;
    return predict(r);
  }

  // Batch, step time and throughput hang together: two give the third.
  void reconstruct() {
    const double per_step = tokens_per_step(request_.plan);
    if (seen_.batch) {
      x_.batch = *seen_.batch;
      if (seen_.tokens_per_s && seen_.itl_s) {
        const double running = *seen_.tokens_per_s * *seen_.itl_s;
        if (running * kDisagree < x_.batch) {
          contradicts(fmt::format("tok/s x inter-token latency: {} of the {:.0f} sequences decode",
                                  pretty_number(running), x_.batch));
        }
      }
    } else if (seen_.tokens_per_s && seen_.itl_s) {
      x_.batch = std::max(1.0, std::round(*seen_.tokens_per_s * *seen_.itl_s));
      supports(
          fmt::format("tok/s x inter-token latency: {:.0f} sequences decode at once", x_.batch));
    } else if (seen_.tokens_per_s) {
      x_.batch = batch_that_yields(*seen_.tokens_per_s);
      supports(fmt::format("batch not given: {} tok/s is what a batch of about {:.0f} yields here",
                           pretty_number(*seen_.tokens_per_s), x_.batch));
    } else {
      x_.batch = 1;
    }
    request_.batch = x_.batch;
    x_.prediction = predict(request_);
    const double expected = x_.prediction.decode.expected_s;
    if (seen_.itl_s) {
      x_.step_s = *seen_.itl_s * per_step;
    } else if (seen_.tokens_per_s) {
      x_.step_s = x_.batch * per_step / *seen_.tokens_per_s;
    }
    if (seen_.tokens_per_s) x_.effective_batch = *seen_.tokens_per_s * expected / per_step;
    const bool decode = x_.step_s > 0;
    const StepEstimate& phase = decode ? x_.prediction.decode : x_.prediction.prefill;
    if (!decode) x_.step_s = *seen_.ttft_s;
    x_.share_of_roof = phase.roof_s / x_.step_s;
    x_.over_expected = x_.step_s / phase.expected_s;
    x_.mbu = phase.mbu * phase.expected_s / x_.step_s;
    x_.mfu = phase.mfu * phase.expected_s / x_.step_s;
    x_.wall = phase.wall;
    x_.next_wall = phase.next_wall;
  }

  double batch_that_yields(double tokens_per_s) const {
    double batch = 1;
    while (batch < 65536 && at_batch(batch).tokens_per_s < tokens_per_s) batch *= 2;
    if (batch == 1) return 1;
    double low = batch / 2, high = batch;
    while (high - low > 1) {
      const double middle = std::floor((low + high) / 2);
      (at_batch(middle).tokens_per_s < tokens_per_s ? low : high) = middle;
    }
    return high;
  }

  // The smallest batch within 10 % of the best throughput among those that fit.
  void find_useful_batch() {
    const MemoryFit& memory = x_.prediction.memory;
    const double most = std::min(4096.0, memory.capacity ? memory.max_batch : 256.0);
    double best = 0;
    std::vector<std::pair<double, double>> curve;
    for (double b = 1; b <= most; b *= 2) {
      curve.emplace_back(b, at_batch(b).tokens_per_s);
      best = std::max(best, curve.back().second);
    }
    for (const auto& [b, rate] : curve) {
      if (rate >= 0.9 * best) {
        x_.useful_batch = b;
        x_.useful_tokens_per_s = rate;
        return;
      }
    }
  }

  void supports(std::string text) { x_.evidence.push_back({Bearing::supports, std::move(text)}); }
  void contradicts(std::string text) {
    x_.evidence.push_back({Bearing::contradicts, std::move(text)});
  }

  // A time to first token alone asks about prefill.
  Phase asked_phase() const {
    return seen_.tokens_per_s || seen_.itl_s ? Phase::decode : Phase::prefill;
  }
  const StepEstimate& phase() const {
    return asked_phase() == Phase::decode ? x_.prediction.decode : x_.prediction.prefill;
  }

  void judge() {
    const MemoryFit& memory = x_.prediction.memory;
    const bool full = seen_.kv_usage && *seen_.kv_usage >= 0.9 && seen_.waiting.value_or(0) > 0;
    if (!memory.fits) {
      // A full cache is seen, so batch or context are less than described.
      if (!full || memory.weights > *memory.capacity) return judge_too_large();
      contradicts(
          fmt::format("as described it needs {} of {} a device: another context, precision "
                      "or batch?",
                      pretty_bytes(memory.used()), pretty_bytes(*memory.capacity)));
    }
    if (x_.step_s < kRoofSlack * phase().roof_s) return judge_impossible();
    if (full) return judge_full();
    if (seen_.gpu_util && *seen_.gpu_util < kIdleUtil && !dram_busy() && !tensor_busy()) {
      return judge_starved();
    }
    if (x_.step_s > phase().high_s) return judge_slow();
    judge_expected();
  }

  void judge_too_large() {
    x_.verdict = Verdict::impossible;
    const MemoryFit& memory = x_.prediction.memory;
    x_.next_wall = x_.prediction.decode.next_wall;
    x_.wall = Wall::capacity;
    supports(fmt::format("weights of {} and a cache of {} a device, memory of {}",
                         pretty_bytes(memory.weights), pretty_bytes(memory.kv),
                         pretty_bytes(*memory.capacity)));
    if (memory.weights > *memory.capacity) {
      x_.sentence = fmt::format(
          "Impossible as described: the weights alone ({}) do not fit {} ({}). Check precision, "
          "devices and offload.",
          pretty_bytes(memory.weights), request_.system.name(), pretty_bytes(*memory.capacity));
    } else {
      x_.sentence = fmt::format(
          "Impossible as described: batch {:.0f} at context {:.0f} needs {} a device, {} has {}. "
          "Check batch, context, precision and devices.",
          x_.batch, request_.context, pretty_bytes(memory.used()), request_.system.name(),
          pretty_bytes(*memory.capacity));
    }
  }

  void judge_impossible() {
    x_.verdict = Verdict::impossible;
    const double possible = x_.batch * x_.prediction.tokens_per_step / phase().roof_s;
    supports(
        fmt::format("a step of {} is below the roof of {}: {} of device memory traffic "
                    "cannot move faster on {}",
                    pretty_time(x_.step_s), pretty_time(phase().roof_s),
                    pretty_bytes(phase().bytes), request_.system.name()));
    x_.sentence = fmt::format(
        "Impossible as described: {} per step is faster than the roof allows ({}, {} tok/s at "
        "batch {:.0f}). Check batch, precision, context, devices and how tokens are counted.",
        pretty_time(x_.step_s), pretty_time(phase().roof_s), pretty_number(possible), x_.batch);
  }

  void judge_full() {
    x_.verdict = Verdict::full;
    x_.next_wall = x_.wall;
    x_.wall = Wall::capacity;
    supports(fmt::format("the KV cache is {} full and {:.0f} requests wait",
                         pretty_percent(*seen_.kv_usage), *seen_.waiting));
    x_.sentence =
        "KV capacity: no room for more sequences. Fewer bytes per token (fp8 KV, prefix sharing) "
        "or more memory admit more; a faster chip does not.";
  }

  void judge_starved() {
    x_.verdict = Verdict::under_batched;
    if (x_.batch >= x_.useful_batch * kUnderBatched) x_.verdict = Verdict::starved;
    x_.next_wall = x_.wall;
    x_.wall = Wall::launch;
    supports(fmt::format("the device is idle {} of the time", pretty_percent(1 - *seen_.gpu_util)));
    if (seen_.waiting.value_or(0) > 0) {
      supports("requests wait while the device idles: the scheduler holds them back");
    }
    describe_batch();
    x_.sentence = fmt::format(
        "{}: the device waits for work{}. {}",
        x_.verdict == Verdict::starved ? "Starved" : "Under-batched",
        x_.effective_batch
            ? fmt::format(" and behaves as if {:.1f} sequences were decoding", *x_.effective_batch)
            : "",
        batch_advice());
  }

  bool dram_busy() const { return seen_.dram_active.value_or(0) >= kDramBusy; }
  bool tensor_busy() const { return seen_.tensor_active.value_or(0) >= kTensorBusy; }

  // Slower than a good stack: the counters say what the device did meanwhile.
  void judge_slow() {
    x_.verdict = Verdict::slow_step;
    supports(fmt::format("a step takes {}, {:.1f}x the expected {} (roof {})",
                         pretty_time(x_.step_s), x_.over_expected, pretty_time(phase().expected_s),
                         pretty_time(phase().roof_s)));
    if (tensor_busy()) {
      x_.wall = near_power_limit() ? Wall::power : Wall::compute;
      supports(fmt::format("tensor units busy {}", pretty_percent(*seen_.tensor_active)));
      contradicts(
          "the model expects less arithmetic: longer prompts or a larger batch than given?");
      x_.sentence = "Compute: the matrix units are busy with more work than the step described.";
    } else if (dram_busy()) {
      judge_slow_memory();
    } else if (&phase() == &x_.prediction.prefill) {
      judge_slow_prefill();
    } else {
      judge_slow_quiet();
    }
    describe_batch();
  }

  void judge_slow_memory() {
    x_.wall = Wall::memory;
    x_.next_wall = x_.prediction.decode.next_wall;
    const double moved = *seen_.dram_active * x_.step_s / phase().roof_s;
    supports(fmt::format("DRAM active {}, tensor units {}: fed by memory, not by arithmetic",
                         pretty_percent(*seen_.dram_active),
                         seen_.tensor_active ? pretty_percent(*seen_.tensor_active) : "unknown"));
    if (seen_.gpu_util) explain_util();
    if (moved > 1.5) {
      contradicts(
          fmt::format("{:.1f}x the bytes the step needs: a longer context, a wider KV or "
                      "weight format, or attention that re-reads the cache?",
                      moved));
    }
    x_.sentence =
        fmt::format("Memory bandwidth: a resident kernel is not a fed kernel. {}", batch_advice());
  }

  // The prompt's own work does not explain its wait: something runs before it.
  void judge_slow_prefill() {
    x_.wall = Wall::launch;
    x_.next_wall = phase().wall;
    supports(fmt::format("the prompt's own work takes {}; {} go by before or around it",
                         pretty_time(phase().expected_s),
                         pretty_time(x_.step_s - phase().expected_s)));
    contradicts("or the prompts are longer than given, or miss the prefix cache");
    x_.sentence = fmt::format(
        "Host and queue: {} of the time to first token is not this prompt's own work. Requests "
        "wait for a slot, or prompts run behind each other.",
        pretty_percent(1 - phase().expected_s / x_.step_s));
  }

  void judge_slow_quiet() {
    // Collectives and launches both leave memory and arithmetic quiet.
    const double link = x_.prediction.decode.on[static_cast<int>(Wall::interconnect)];
    const double launch = x_.prediction.decode.on[static_cast<int>(Wall::launch)];
    const bool talks = request_.plan.devices() > 1;
    x_.wall = talks && link > launch ? Wall::interconnect : Wall::launch;
    x_.next_wall = x_.wall == Wall::launch && talks ? Wall::interconnect : phase().wall;
    if (seen_.dram_active || seen_.tensor_active) {
      supports(
          fmt::format("memory active {}, tensor units {}: neither ceiling is near, the device "
                      "waits between kernels",
                      seen_.dram_active ? pretty_percent(*seen_.dram_active) : "unknown",
                      seen_.tensor_active ? pretty_percent(*seen_.tensor_active) : "unknown"));
    } else {
      supports("the model's own bytes and FLOPs do not explain the time");
    }
    if (seen_.gpu_util) explain_util();
    if (talks) {
      contradicts(
          fmt::format("collectives over {} ranks would explain it too (expected {} of the "
                      "step): a trace separates them",
                      request_.plan.tp, pretty_time(link)));
    }
    if (x_.effective_batch && *x_.effective_batch < 0.7 * x_.batch && !seen_.itl_s) {
      contradicts(fmt::format("or fewer than {:.0f} sequences decode: {:.1f} would give this rate",
                              x_.batch, *x_.effective_batch));
    }
    const bool small = x_.batch < x_.useful_batch * kUnderBatched;
    x_.sentence = fmt::format(
        "{}: {} of a step is neither memory nor arithmetic. Look for eager launches, host work "
        "between steps, or collectives.{}",
        x_.wall == Wall::interconnect ? "Interconnect" : "Launch gaps and host",
        pretty_percent(1 - std::min(1.0, phase().expected_s / x_.step_s)),
        small ? " " + batch_advice() : "");
  }

  void judge_expected() {
    if (x_.step_s < phase().low_s) {
      supports(fmt::format("{}: between the roof ({}) and the expected band ({} - {})",
                           pretty_time(x_.step_s), pretty_time(phase().roof_s),
                           pretty_time(phase().low_s), pretty_time(phase().high_s)));
    } else {
      supports(fmt::format("a step takes {}, expected {} - {} (roof {})", pretty_time(x_.step_s),
                           pretty_time(phase().low_s), pretty_time(phase().high_s),
                           pretty_time(phase().roof_s)));
    }
    counters_agree();
    describe_batch();
    const bool memory = x_.wall == Wall::memory || x_.wall == Wall::launch;
    if (memory && x_.batch < x_.useful_batch * kUnderBatched && &phase() == &x_.prediction.decode) {
      x_.verdict = Verdict::under_batched;
      x_.sentence = fmt::format(
          "Under-batched: each step is as fast as it should be, and carries "
          "too little. {}",
          batch_advice());
    } else {
      x_.verdict = Verdict::healthy;
      x_.sentence = fmt::format(
          "Nothing is wrong: the run is where this hardware and model should be ({} of the roof); "
          "the wall is {}.",
          pretty_percent(x_.share_of_roof), wall_name(x_.wall));
    }
  }

  void counters_agree() {
    if (dram_busy() && !tensor_busy()) {
      x_.wall = Wall::memory;
      supports(fmt::format("DRAM active {}: memory bandwidth is the ceiling",
                           pretty_percent(*seen_.dram_active)));
    } else if (tensor_busy()) {
      x_.wall = near_power_limit() ? Wall::power : Wall::compute;
      supports(fmt::format("tensor units busy {}", pretty_percent(*seen_.tensor_active)));
    } else if (seen_.dram_active && *seen_.dram_active < kQuiet && x_.wall == Wall::memory) {
      contradicts(fmt::format("DRAM active only {}: averaged over idle time?",
                              pretty_percent(*seen_.dram_active)));
    }
    if (seen_.gpu_util) explain_util();
    if (x_.mfu < 0.1 && x_.wall == Wall::memory) {
      supports(fmt::format("MFU {} is normal for decode; MBU {} is the figure to watch",
                           pretty_percent(x_.mfu), pretty_percent(x_.mbu)));
    }
  }

  void explain_util() {
    supports(fmt::format("GPU-Util {} only says that some kernel was resident",
                         pretty_percent(*seen_.gpu_util)));
  }

  bool near_power_limit() const {
    const Maybe limit = request_.system.device.power;
    return seen_.power_w && limit && *seen_.power_w >= 0.95 * *limit;
  }

  void describe_batch() {
    if (x_.useful_batch <= x_.batch || &phase() == &x_.prediction.prefill) return;
    supports(
        fmt::format("batch {:.0f} of {:.0f} that would fill the machine ({} tok/s expected "
                    "there)",
                    x_.batch, x_.useful_batch, pretty_number(x_.useful_tokens_per_s)));
  }

  std::string batch_advice() const {
    if (x_.useful_batch <= x_.batch) return "The batch is already large.";
    return fmt::format(
        "Raise the batch before buying cards: {:.0f} -> {:.0f} is worth about "
        "{:.0f}x the tokens.",
        x_.batch, x_.useful_batch, x_.useful_tokens_per_s / x_.prediction.tokens_per_s);
  }

  // Beside a decode observation the time to first token shows queueing, not the decode wall.
  void compare_first_token() {
    if (!seen_.ttft_s || &phase() == &x_.prediction.prefill) return;
    const StepEstimate& prefill = x_.prediction.prefill;
    const std::string text =
        fmt::format("time to first token {}, expected {} - {} for {:.0f} prompt tokens",
                    pretty_time(*seen_.ttft_s), pretty_time(prefill.low_s),
                    pretty_time(prefill.high_s), request_.prompt);
    if (*seen_.ttft_s > prefill.high_s) {
      contradicts(text + ": requests queue before their prompt runs, or prompts are longer");
    } else {
      supports(text);
    }
  }

  void list_missing() {
    const auto missing = [&](bool absent, const char* text) {
      if (absent) x_.evidence.push_back({Bearing::missing, text});
    };
    const bool derived = seen_.tokens_per_s && seen_.itl_s;
    missing(!seen_.batch && !derived && asked_phase() == Phase::decode,
            "--batch: how many sequences decode at once (engine metric: running)");
    missing(!seen_.itl_s && seen_.tokens_per_s,
            "--itl: inter-token latency separates slow steps from idle time");
    missing(!seen_.dram_active, "--dram-active: DCGM_FI_PROF_DRAM_ACTIVE tells memory-bound");
    missing(!seen_.tensor_active,
            "--tensor-active: DCGM_FI_PROF_PIPE_TENSOR_ACTIVE tells compute-bound");
    missing(!seen_.gpu_util && !seen_.dram_active, "--gpu-util: shows idle time, nothing else");
  }

  // A slow step's first lever is to run as a good stack does.
  void promote_reaching_expected() {
    if (x_.verdict != Verdict::slow_step && x_.verdict != Verdict::starved) return;
    Lever lever;
    lever.name = "close the gap to the expected step";
    (asked_phase() == Phase::prefill ? lever.ttft_gain : lever.gain) = x_.over_expected;
    lever.tpot_s = x_.prediction.tpot_s();
    lever.next_wall = phase().wall;
    lever.note =
        fmt::format("remove what the {} wall costs, at the same batch", wall_name(x_.wall));
    x_.levers.push_back(lever);
    sort_levers(x_.levers, asked_phase());
  }

  Request request_;
  const Observation& seen_;
  Explanation x_;
};

}  // namespace

std::string_view verdict_name(Verdict verdict) {
  static constexpr std::string_view kNames[] = {"impossible", "healthy", "under-batched",
                                                "slow-step",  "starved", "full"};
  return kNames[static_cast<int>(verdict)];
}

Explanation explain(const Request& request, const Observation& observation) {
  return Detective(request, observation).run();
}

}  // namespace ridge
