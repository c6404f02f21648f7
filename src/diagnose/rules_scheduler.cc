// Who waits, and for what: demand, admission, cache.
#include <fmt/format.h>

#include <cmath>

#include "base/units.h"
#include "diagnose/thresholds.h"
#include "diagnose/verdict.h"

namespace ridge {
namespace {

std::string waiting_words(const Case& c) {
  return fmt::format("{} requests wait", pretty_number(c.seen.value_or(Quantity::waiting, 0)));
}

// Most of the time to first token, or longer than the prompt itself takes.
bool queues_long(const Case& c) {
  const double queue = c.seen.value_or(Quantity::queue_time, 0);
  const double ttft = c.seen.value_or(Quantity::ttft, 0);
  const double prefill = c.seen.value_or(Quantity::prefill_time, 0);
  const double e2e = c.seen.value_or(Quantity::e2e, 0);
  if (queue < 0.05) return false;
  return (ttft > 0 && queue > thresholds::kQueueShare * ttft) || (prefill > 0 && queue > prefill) ||
         (ttft == 0 && e2e > 0 && queue > 0.3 * e2e) || (ttft == 0 && e2e == 0 && queue > 0.5);
}

bool mostly_queue(const Case& c) {
  const double queue = c.seen.value_or(Quantity::queue_time, 0);
  return queue > 0.5 * c.seen.value_or(Quantity::e2e, 1e9) ||
         queue > 0.7 * c.seen.value_or(Quantity::ttft, 1e9);
}

std::string queue_words(const Case& c) {
  const double ttft = c.seen.value_or(Quantity::ttft, 0);
  return fmt::format("a request spends {} in the queue{}",
                     pretty_time(c.seen.value_or(Quantity::queue_time, 0)),
                     ttft > 0 ? fmt::format(" of {} to the first token", pretty_time(ttft)) : "");
}

// So many prompt tokens for each output token that the device works on prompts: what the batch and
// the cache hold says little.
bool prompts_dominate(const Case& c) { return c.prompt_per_output() >= thresholds::kPromptHeavy; }

bool at_limit(const Case& c) {
  const double most = c.seen.value_or(Quantity::max_running, 0);
  return most > 0 && c.running() >= thresholds::kAtLimit * most;
}

// More sequences would not yield more tokens: the step is long because it is full.
bool batch_is_useful(const Case& c) {
  return c.run.expected && c.run.batch && *c.run.batch >= c.run.expected->useful_batch;
}

// Tokens that the free pages hold, where requests wait whose prompt needs more; -1: not so. A gauge
// may be read when a sequence has just ended: those that run hold at least their prompts.
double too_little_room(const Case& c) {
  const Observations& seen = c.seen;
  if (!c.waits() || !seen.has(Quantity::kv_usage) || !seen.has(Quantity::kv_tokens)) return -1;
  const double engines = std::max(1, seen.setup.dp.value_or(1));
  const double pool = *seen[Quantity::kv_tokens] / engines;
  const double prompt =
      seen.value_or(Quantity::prompt, 0) * (1 - seen.value_or(Quantity::prompt_hit, 0));
  const double held = std::max(*seen[Quantity::kv_usage] * pool, c.running() / engines * prompt);
  const double room = std::max(0.0, pool - held);
  return room < prompt ? room : -1;
}

// A new sequence would find pages.
bool cache_has_room(const Case& c) {
  return c.seen.value_or(Quantity::kv_usage, 1) < thresholds::kKvRoom && too_little_room(c) < 0;
}

std::optional<Hypothesis> judge_kv_full(const Case& c) {
  const Observations& seen = c.seen;
  const double kv = seen.value_or(Quantity::kv_usage, 0);
  const double preempted = seen.value_or(Quantity::preemptions, 0);
  const double requests = seen.value_or(Quantity::requests, 0);
  const bool often = preempted > 0 && preempted >= thresholds::kRarePreemption * requests;
  Hypothesis x{Verdict::kv_full, {}, Wall::capacity, "", false};
  if (kv >= thresholds::kKvFull) {
    const bool brimming = kv >= thresholds::kKvBrimming && !seen.has(Quantity::waiting);
    const double weight = c.waits() || often ? 0.75 : queues_long(c) ? 0.6 : brimming ? 0.5 : 0.2;
    x.belief.supports(weight, fmt::format("the KV cache is {} full", pretty_percent(kv)));
    if (c.waits()) x.belief.supports(0.5, waiting_words(c));
  } else if (const double room = too_little_room(c); room >= 0) {
    x.belief.supports(0.75, fmt::format("{}: the free pages hold {} tokens, a prompt has {}",
                                        waiting_words(c), pretty_number(std::round(room)),
                                        pretty_number(seen.value_or(Quantity::prompt, 0))));
  }
  if (often) {
    x.belief.supports(
        kv >= 0.7 || !seen.has(Quantity::kv_usage) ? 0.75 : 0.45,
        fmt::format("{} requests were preempted and computed again{}", pretty_number(preempted),
                    requests > 0 ? fmt::format(", {} ended", pretty_number(requests)) : ""));
  }
  if (x.belief.value() == 0) return std::nullopt;
  if (seen.has(Quantity::waiting) && !c.waits() && !often && !queues_long(c)) {
    x.belief.contradicts(0.3, "nobody waits and nobody is preempted: the cache is well used");
  }
  x.sentence = fmt::format(
      "KV cache full{}: there is no room for more sequences. Fewer bytes per token (fp8 KV, prefix "
      "sharing), shorter sequences or more memory make room; a faster device does not.",
      often ? " and preempting" : "");
  return x;
}

// Batch limits that engines and people set are round.
bool round_limit(double running) {
  const double whole = std::round(running);
  if (std::abs(running - whole) > 0.02 * running) return false;
  const auto n = static_cast<long>(whole);
  return n >= 1 && ((n & (n - 1)) == 0 || (n >= 10 && n % 50 == 0) || n == 48 || n == 96);
}

// Defaults of vLLM's max_num_seqs, now and before.
bool is_default_limit(double running) {
  const double n = std::round(running);
  return n == 256 || n == 512 || n == 1024;
}

std::optional<Hypothesis> judge_admission(const Case& c) {
  const Observations& seen = c.seen;
  const bool room = cache_has_room(c);
  // So few slots that no accelerator is full, and nobody looked at the cache.
  const bool few = !seen.has(Quantity::kv_usage) && c.running() >= 0.5 &&
                   c.running() <= thresholds::kVerySmallBatch;
  if (!c.waits() && !(queues_long(c) && room)) return std::nullopt;
  if (!room && !at_limit(c) && !few) return std::nullopt;
  if (seen.value_or(Quantity::kv_usage, 0) >= thresholds::kKvFull && !at_limit(c)) {
    return std::nullopt;
  }
  Hypothesis x{Verdict::admission_limit, {}, std::nullopt, "", false};
  const std::string who = c.waits() ? waiting_words(c) : queue_words(c);
  if (room) {
    const double kv = *seen[Quantity::kv_usage];
    x.belief.supports(
        c.waits() ? (kv < 0.5 ? 0.6 : 0.45) : 0.35,
        fmt::format("{} while the KV cache is only {} full", who, pretty_percent(kv)));
  } else if (few && c.waits()) {
    x.belief.supports(c.single_user() ? 0.6 : 0.45,
                      fmt::format("{} while {} run", who, pretty_number(c.running())));
  }
  if (at_limit(c)) {
    x.belief.supports(
        0.8, fmt::format("{} sequences run, and {} is the limit", pretty_number(c.running()),
                         pretty_number(*seen[Quantity::max_running])));
  } else if (seen.has(Quantity::max_running) && c.running() > 0) {
    // Then the pages that it reserves for outputs hold requests back, not the limit.
    x.belief.contradicts(room ? 0.85 : 0.5,
                         fmt::format("{} of at most {} sequences run", pretty_number(c.running()),
                                     pretty_number(*seen[Quantity::max_running])));
  } else if (c.running() >= 1 && round_limit(c.running())) {
    x.belief.supports(is_default_limit(c.running()) ? 0.5 : 0.25,
                      fmt::format("{} sequences run: such a round number is a setting",
                                  pretty_number(c.running())));
  }
  if (c.device_idles()) {
    x.belief.supports(0.2, "the device has time to spare");
  }
  if (batch_is_useful(c)) {
    x.belief.contradicts(0.7, fmt::format("{:.0f} sequences already yield what the device can: a "
                                          "higher limit moves the wait from queue to decode",
                                          *c.run.batch));
  }
  if (c.tensor_busy()) {
    x.belief.contradicts(0.6, "the tensor cores are busy: the device has no time to spare");
  }
  if (prompts_dominate(c) && !at_limit(c)) {
    x.belief.contradicts(0.5, "prompts keep the device busy, and fill little of the cache");
  }
  if (seen.value_or(Quantity::preemptions, 0) > 0) {
    x.belief.contradicts(0.6, "requests are preempted: the cache does run out of pages");
  }
  if (x.belief.value() == 0) return std::nullopt;
  x.sentence = fmt::format(
      "Admission limit: {}, though cache and device have room for more than {} sequences. Raise "
      "the engine's limit of running sequences, or make its reservation less conservative.",
      who, c.running() > 0 ? pretty_number(c.running()) : "the running");
  return x;
}

// Where nobody timed the queue: no prompt takes as long as this first token.
double late_first_token(const Case& c) {
  const Observations& seen = c.seen;
  const double ttft = seen.value_or(Quantity::ttft, 0);
  if (seen.has(Quantity::queue_time) || ttft < 1 || c.run.phase == Phase::prefill) return 0;
  if (c.run.expected && seen.has(Quantity::prompt)) {
    const double over = ttft / c.run.expected->prediction.prefill.high_s;
    return over > 30 ? 0.7 : over > 8 ? 0.5 : 0;
  }
  // Engines run a prompt in at most tens of steps.
  const double itl = seen.value_or(Quantity::itl, 0);
  return itl > 0 && ttft > 100 * itl ? 0.65 : 0;
}

std::optional<Hypothesis> judge_capacity(const Case& c) {
  const Observations& seen = c.seen;
  const double late = late_first_token(c);
  const double arrivals = seen.value_or(Quantity::arrivals_per_s, 0);
  const double served = seen.value_or(Quantity::requests_per_s, 0);
  const bool outrun = arrivals > 1.1 * served && served > 0;
  if (!c.waits() && !queues_long(c) && late == 0 && !outrun) return std::nullopt;
  Hypothesis x{Verdict::queue_capacity, {}, std::nullopt, "", false};
  if (c.run.expected) x.wall = c.run.predicted().wall;
  if (c.waits()) {
    x.belief.supports(0.4, waiting_words(c));
    if (seen.value_or(Quantity::waiting, 0) > c.running() && c.running() > 0) {
      x.belief.supports(
          0.15, fmt::format("more requests wait than the {} that run", pretty_number(c.running())));
    }
  }
  if (queues_long(c)) {
    x.belief.supports(mostly_queue(c) ? 0.6 : 0.45, queue_words(c));
  }
  if (late > 0) {
    x.belief.supports(late, fmt::format("the first token takes {}, longer than any prompt of this "
                                        "length: requests wait before it",
                                        pretty_time(*seen[Quantity::ttft])));
  }
  if (batch_is_useful(c)) {
    x.belief.supports(
        0.3, fmt::format("{:.0f} sequences already run: more would not yield more", *c.run.batch));
  } else if (c.run.under_batched(thresholds::kUnderBatched)) {
    x.belief.contradicts(mostly_queue(c) || late > 0 ? 0.85 : 0.5,
                         fmt::format("only {:.0f} sequences run, {:.0f} would be useful",
                                     *c.run.batch, c.run.expected->useful_batch));
  }
  if (c.tensor_busy() || c.dram_busy()) {
    x.belief.supports(0.3, c.tensor_busy() ? "the tensor cores are busy" : "device memory is busy");
  }
  if (c.device_idles()) x.belief.contradicts(0.4, "the device has time to spare");
  if (is_default_limit(c.running()) && !seen.has(Quantity::max_running)) {
    x.belief.contradicts(0.85, fmt::format("{} sequences is a default limit of engines",
                                           pretty_number(c.running())));
  }
  if (cache_has_room(c) && c.waits() && !batch_is_useful(c) && !c.tensor_busy()) {
    x.belief.contradicts(0.75, "the KV cache has room: a limit may hold requests back");
  }
  if (seen.value_or(Quantity::kv_usage, 0) >= thresholds::kKvFull || too_little_room(c) >= 0) {
    x.belief.contradicts(0.6, "the KV cache is full: that is the capacity that lacks");
  }
  if (outrun) {
    x.belief.supports(0.5, fmt::format("{} requests/s arrive, {} are served",
                                       pretty_number(arrivals), pretty_number(served)));
  }
  x.sentence = fmt::format(
      "Queueing for lack of capacity: {}. Requests arrive faster than this device serves them; "
      "more replicas, a faster step or shorter requests help.",
      queues_long(c) ? queue_words(c)
      : c.waits()    ? waiting_words(c)
      : late > 0     ? fmt::format("the first token takes {}", pretty_time(*seen[Quantity::ttft]))
                     : fmt::format("{} requests/s arrive, {} are served", pretty_number(arrivals),
                                   pretty_number(served)));
  return x;
}

// " Raise the batch ...": a sentence to append; empty where a larger batch gains nothing.
std::string batch_advice(const Expected& e, double batch) {
  const double gain = e.useful_tokens_per_s / e.prediction.tokens_per_s;
  if (e.useful_batch <= batch || gain < thresholds::kWorthRaising) return "";
  return fmt::format(
      " Raise the batch before adding devices: {:.0f} -> {:.0f} yields about {:.{}f}x the "
      "tokens/s.",
      batch, e.useful_batch, gain, gain < 9.95 ? 1 : 0);
}

void compare_useful_batch(const Case& c, Hypothesis& x) {
  const Expected& e = *c.run.expected;
  const bool far = c.run.under_batched(thresholds::kFarUnderBatched);
  // A batch that was taken from the rate is no observation: the rate is.
  const double rate = c.seen.value_or(Quantity::tokens_per_s, 0);
  x.belief.supports(
      far ? 0.6 : 0.4,
      fmt::format("{}; a batch of {:.0f} comes within 10 % of the best throughput ({} tok/s "
                  "expected)",
                  c.run.batch_predicted
                      ? fmt::format("{} tok/s is what a batch of {:.0f} is expected to yield",
                                    pretty_number(rate), *c.run.batch)
                      : fmt::format("the batch is {:.0f}", *c.run.batch),
                  e.useful_batch, pretty_number(e.useful_tokens_per_s)));
  if (c.run.batch_predicted) {
    x.belief.contradicts(1,
                         "the batch was not observed: a larger batch with slow steps would "
                         "yield the same rate");
  }
  if (c.run.in_band() && c.run.phase == Phase::decode) {
    x.belief.supports(
        0.4,
        fmt::format("a step takes {}, close to the expected {} - {}", pretty_time(*c.run.step_s),
                    pretty_time(c.run.predicted().low_s), pretty_time(c.run.predicted().high_s)));
  } else if (c.run.is_slow()) {
    x.belief.contradicts(c.device_idles() && !c.seen.has(Quantity::itl) ? 0.9 : 0.5,
                         fmt::format("a step takes {}, {:.1f}x the expected time: that is not the "
                                     "batch",
                                     pretty_time(*c.run.step_s), e.over_expected));
  }
}

// Fewer requests reach the server than the client means to send: a pool of connections (100 in
// aiohttp), a semaphore or a gateway is in the way.
bool held_back_by_client(const Case& c) {
  return c.seen.has(Quantity::concurrency) && c.seen.has(Quantity::running) &&
         c.seen.has(Quantity::waiting) && !c.waits() &&
         *c.seen[Quantity::concurrency] > thresholds::kDisagree * *c.seen[Quantity::running];
}

std::optional<Hypothesis> judge_under_batched(const Case& c) {
  const Observations& seen = c.seen;
  if (!c.run.batch || c.run.phase == Phase::prefill || c.running() < 0.05) return std::nullopt;
  const double batch = *c.run.batch;
  Hypothesis x{Verdict::under_batched, {}, Wall::memory, "", false};
  const bool held_back = held_back_by_client(c);
  if (held_back) {
    x.belief.supports(
        0.6, fmt::format("the client means to keep {} requests in flight, but {} run "
                         "and nobody waits",
                         pretty_number(*seen[Quantity::concurrency]), pretty_number(c.running())));
  }
  if (held_back && !c.run.expected) {
    // The batch is what the client lets through.
  } else if (c.run.expected) {
    const Wall wall = c.run.predicted().wall;
    const bool batch_helps = wall == Wall::memory || wall == Wall::launch;
    const bool small = c.run.under_batched(thresholds::kUnderBatched) && batch_helps;
    if (!small && !held_back) return std::nullopt;
    x.wall = wall;
    if (small) compare_useful_batch(c, x);
  } else {
    if (batch > thresholds::kSmallBatch) return std::nullopt;
    const bool tiny = batch <= thresholds::kVerySmallBatch;
    x.belief.supports(tiny ? 0.55 : 0.35,
                      fmt::format("only {} sequence{} at once", pretty_number(batch),
                                  batch <= 1 ? " runs" : "s run"));
    if (c.run.step_s.value_or(0) > thresholds::kLongStep_s) {
      x.belief.contradicts(
          0.5, fmt::format("a step takes {}: that is not the batch", pretty_time(*c.run.step_s)));
    }
  }
  if (seen.has(Quantity::waiting) && !c.waits()) x.belief.supports(0.3, "nobody waits");
  if (seen.value_or(Quantity::kv_usage, 1) < thresholds::kKvLow) {
    x.belief.supports(
        0.2, fmt::format("the KV cache is {} full", pretty_percent(*seen[Quantity::kv_usage])));
  }
  if (c.device_idles()) {
    x.belief.supports(
        0.3, fmt::format("the device is idle {} of the time",
                         pretty_percent(1 - seen.value_or(Quantity::gpu_util,
                                                          seen.value_or(Quantity::gr_active, 0)))));
  } else if (seen.has(Quantity::gpu_util)) {
    x.belief.supports(0, fmt::format("GPU-Util {} only says that some kernel was resident",
                                     pretty_percent(*seen[Quantity::gpu_util])));
  }
  if (c.waits()) {
    x.belief.contradicts(0.3, waiting_words(c) + ": there is demand for a larger batch");
  } else if (queues_long(c)) {
    x.belief.contradicts(0.4, queue_words(c));
  }
  if (prompts_dominate(c)) {
    x.belief.contradicts(0.5, fmt::format("{} prompt tokens for each output token: the device "
                                          "works on prompts",
                                          pretty_number(c.prompt_per_output())));
  }
  if (seen.has(Quantity::accepted)) {
    x.belief.contradicts(0.7, "speculation is meant for few sequences");
  }
  if (c.single_user()) x.belief.contradicts(0.4, "a local engine with one user has one sequence");
  if (c.tensor_busy()) x.belief.contradicts(0.3, "the tensor cores are busy");
  if (c.run.expected &&
      seen.value_or(Quantity::ttft, 0) > c.run.expected->prediction.prefill.high_s) {
    x.belief.contradicts(0.8, "the first token is late, which more sequences do not mend");
  }
  x.sentence = "Under-batched: each step carries too few sequences to use the device.";
  if (c.run.expected) {
    x.sentence = fmt::format("Under-batched: {}.{}",
                             c.run.in_band() ? "each step is as fast as it should be, and has too "
                                               "few sequences"
                                             : "the device has too few sequences to work on",
                             batch_advice(*c.run.expected, batch));
  }
  if (held_back) {
    x.sentence = fmt::format(
        "Under-batched by the client: of {} requests that it means to keep in flight, {} reach the "
        "server. Raise its limit of connections or workers, or the gateway's.",
        pretty_number(*seen[Quantity::concurrency]), pretty_number(c.running()));
  }
  return x;
}

constexpr Rule kSchedulerRules[] = {judge_kv_full, judge_admission, judge_capacity,
                                    judge_under_batched};

}  // namespace

std::span<const Rule> scheduler_rules() { return kSchedulerRules; }

}  // namespace ridge
