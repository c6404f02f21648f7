// Is the data sound, and does anybody ask for anything?
#include <fmt/format.h>

#include "base/units.h"
#include "diagnose/thresholds.h"
#include "diagnose/verdict.h"

namespace ridge {
namespace {

// Little's law ties batch, rate and latency together.
std::optional<Hypothesis> judge_contradiction(const Case& c) {
  const Observations& seen = c.seen;
  if (!seen.has(Quantity::batch) || !seen.is_recent(Quantity::tokens_per_s) ||
      !seen.has(Quantity::itl)) {
    return std::nullopt;
  }
  // A preempted sequence is between two tokens, and runs in no step meanwhile.
  if (seen.value_or(Quantity::preemptions, 0) > 0) return std::nullopt;
  const double decoding = *seen[Quantity::tokens_per_s] * *seen[Quantity::itl];
  if (decoding <= thresholds::kDisagree * *seen[Quantity::batch]) return std::nullopt;
  Hypothesis x{Verdict::impossible, {}, std::nullopt, "", false};
  x.belief.supports(0.9, fmt::format("{} tok/s x {} per token are {} sequences at once, not {}",
                                     pretty_number(*seen[Quantity::tokens_per_s]),
                                     pretty_time(*seen[Quantity::itl]), pretty_number(decoding),
                                     pretty_number(*seen[Quantity::batch])));
  x.sentence = fmt::format(
      "This cannot be: throughput x time per token means {} sequences at once, but the batch is "
      "{}. One of the three numbers is of another run or counts other tokens.",
      pretty_number(decoding), pretty_number(*seen[Quantity::batch]));
  return x;
}

bool weights_exceed_memory(const Case& c) {
  const MemoryFit& memory = c.run.expected->prediction.memory;
  return memory.capacity && memory.weights > *memory.capacity;
}

// What does not fit is read by the CPU, or over the host link, while the device waits. A faster
// step than that cannot have its weights on the host.
bool slow_enough_for_host_weights(const Case& c) {
  const Expected& e = *c.run.expected;
  const MemoryFit& memory = e.prediction.memory;
  const Maybe bandwidth = e.request.system.device.memory().read_bandwidth;
  if (!bandwidth) return e.over_expected >= 1.3;
  // Of a mixture of experts, a step reads a part only.
  const double read = std::min(1.0, c.run.predicted().bytes / memory.weights);
  const Level* link = e.request.system.device.level("host");
  const double host_bandwidth =
      std::max(thresholds::kHostMemoryMost, link ? link->read_bandwidth.value_or(0) : 0);
  const double host = memory.weights - *memory.capacity;
  return *c.run.step_s >= read * (*memory.capacity / *bandwidth + host / host_bandwidth);
}

// A model that does not fit runs all the same when part of its weights stays in host memory, at
// the host link's pace.
std::optional<Hypothesis> judge_host_weights(const Case& c) {
  Hypothesis x{Verdict::host_weights, {}, Wall::host_link, "", false};
  const double offloaded =
      c.seen.setup.offloaded.value_or(c.run.expected ? c.run.expected->request.plan.offload : 0);
  double share = offloaded;
  if (offloaded > 0) {
    x.belief.supports(
        0.85, fmt::format("{} of the weights are in host memory", pretty_percent(offloaded)));
  }
  if (c.run.compares() && weights_exceed_memory(c) && offloaded == 0) {
    const Expected& e = *c.run.expected;
    const MemoryFit& memory = e.prediction.memory;
    share = 1 - *memory.capacity / memory.weights;
    if (!slow_enough_for_host_weights(c)) return std::nullopt;
    x.belief.supports(
        0.85, fmt::format("the weights ({} per device) exceed its memory ({}), and {} per step is "
                          "slow enough for a part that stays in host memory",
                          pretty_bytes(memory.weights), pretty_bytes(*memory.capacity),
                          pretty_time(*c.run.step_s)));
  }
  const double pcie = c.seen.value_or(Quantity::pcie_bytes, 0);
  const Level* host =
      c.run.expected ? c.run.expected->request.system.device.level("host") : nullptr;
  const double link = host && host->read_bandwidth ? *host->read_bandwidth : 25e9;
  const bool alone = !c.run.expected || c.run.expected->request.plan.devices() == 1;
  if (pcie > thresholds::kLinkBusy * link && alone && !c.tensor_busy()) {
    x.belief.supports(0.7, fmt::format("PCIe carries {}: one device has nothing else to move there",
                                       pretty_rate(pcie)));
  }
  if (x.belief.value() == 0) return std::nullopt;
  if (c.dram_busy()) {
    x.belief.contradicts(0.4, "device memory is busy: it does not wait for the host link");
  }
  x.sentence = fmt::format(
      "Weights on the host: {}every step waits for the host link or the CPU. Keep all layers on "
      "the device: fewer bits a weight, a smaller model, or more memory.",
      share > 0
          ? fmt::format("{} of the weights are not in device memory, and ", pretty_percent(share))
          : "");
  return x;
}

std::optional<Hypothesis> judge_too_large(const Case& c) {
  if (!c.run.expected || !c.run.batch) return std::nullopt;
  const Expected& e = *c.run.expected;
  const MemoryFit& memory = e.prediction.memory;
  // An engine's share of the memory is a setting: only what exceeds the device is impossible.
  if (!memory.capacity || memory.used() <= *memory.capacity) return std::nullopt;
  Hypothesis x{Verdict::impossible, {}, Wall::capacity, "", false};
  const std::string system = e.request.system.name();
  if (weights_exceed_memory(c)) {
    if (e.request.plan.offload > 0) return std::nullopt;
    x.belief.supports(
        0.9, fmt::format("per device: {} of weights, {} of memory", pretty_bytes(memory.weights),
                         pretty_bytes(*memory.capacity)));
    x.sentence = fmt::format(
        "Impossible as described: the weights alone ({}) do not fit {} ({}). Check precision, "
        "devices and offload.",
        pretty_bytes(memory.weights), system, pretty_bytes(*memory.capacity));
    if (c.run.compares() && slow_enough_for_host_weights(c)) {
      x.belief.contradicts(0.7, "it is slow enough for weights that stream from host memory");
    }
    return x;
  }
  // A cache that was seen full, or not full, holds what it holds: lengths or formats differ.
  const bool seen_cache =
      c.seen.has(Quantity::kv_usage) || (!c.run.context_known && memory.kv < 3 * *memory.capacity);
  const bool stated = c.run.batch_from == "as observed" || c.run.batch_predicted;
  x.belief.supports(seen_cache || !stated ? 0.35 : 0.8,
                    fmt::format("per device: {} of weights and {} of KV cache, {} of memory",
                                pretty_bytes(memory.weights), pretty_bytes(memory.kv),
                                pretty_bytes(*memory.capacity)));
  x.sentence = fmt::format(
      "Impossible as described: batch {:.0f} at context {:.0f} needs {} per device, {} has {}. "
      "Check batch, context, precision and devices.",
      *c.run.batch, e.request.context, pretty_bytes(memory.used()), system,
      pretty_bytes(*memory.capacity));
  return x;
}

// Bytes that were counted need no model: they must fit the memory's bandwidth.
std::optional<Hypothesis> judge_bytes(const Case& c) {
  const double rate = c.seen.value_or(Quantity::bytes_per_s, 0);
  const Maybe bandwidth = c.machine ? c.machine->memory().read_bandwidth : Maybe();
  if (!bandwidth || rate < 1.05 * *bandwidth || c.seen.setup.devices.value_or(1) > 1) {
    return std::nullopt;
  }
  Hypothesis x{Verdict::impossible, {}, Wall::memory, "", false};
  x.belief.supports(0.8, fmt::format("{} is more than the {} of {}", pretty_rate(rate),
                                     pretty_rate(*bandwidth), c.machine->title));
  x.sentence = fmt::format(
      "This cannot be: {} a second is more than the memory of {} can read. Another device, or not "
      "all weights are read for each token (a mixture of experts, several devices).",
      pretty_bytes(rate), c.machine->title);
  return x;
}

std::optional<Hypothesis> judge_faster_than_roof(const Case& c) {
  if (!c.run.compares() || c.run.in_band() || c.run.is_slow()) return std::nullopt;
  const Expected& e = *c.run.expected;
  if (e.request.plan.offload > 0) return std::nullopt;  // the CPU may compute what stays there
  const StepEstimate& predicted = c.run.predicted();
  Hypothesis x{Verdict::impossible, {}, predicted.wall, "", false};
  const double possible = c.run.batch.value_or(1) * c.run.tokens_per_step / c.run.floor_s;
  x.belief.supports(0.9, fmt::format("a step of {} is below the roof of {}: {} cannot move {} "
                                     "through device memory in less time",
                                     pretty_time(*c.run.step_s), pretty_time(c.run.floor_s),
                                     e.request.system.name(), pretty_bytes(predicted.bytes)));
  x.sentence = fmt::format(
      "Impossible as described: {} per step is faster than the roof allows ({}, {} tok/s at "
      "batch {:.0f}). Check batch, precision, context, devices and how tokens are counted.",
      pretty_time(*c.run.step_s), pretty_time(predicted.roof_s), pretty_number(possible),
      c.run.batch.value_or(1));
  return x;
}

std::optional<Hypothesis> judge_idle(const Case& c) {
  const Observations& seen = c.seen;
  const auto zero = [&](Quantity q) { return seen.has(q) && *seen[q] < 0.05; };
  const bool produces =
      seen.is_recent(Quantity::tokens_per_s) && *seen[Quantity::tokens_per_s] > 0.05;
  if (produces || c.waits() || seen.profile) return std::nullopt;
  Hypothesis x{Verdict::idle, {}, std::nullopt, "", true};
  if (zero(Quantity::running)) {
    x.belief.supports(0.7, "no request is running");
    if (zero(Quantity::waiting)) x.belief.supports(0.5, "no request waits");
  } else if (c.running() > 0) {
    return std::nullopt;
  }
  if (zero(Quantity::tokens_per_s) && seen.is_recent(Quantity::tokens_per_s)) {
    x.belief.supports(0.5, "no token was generated in the window");
  }
  if (zero(Quantity::gpu_util) || zero(Quantity::gr_active)) {
    x.belief.supports(0.8, "no kernel runs on the device");
  }
  if (x.belief.value() == 0) return std::nullopt;
  if (seen.value_or(Quantity::gpu_util, 0) > 0.2 || c.tensor_busy() || c.dram_busy()) {
    x.belief.contradicts(0.2, "the device works");
  }
  // Averages since the start can still say what happened when there was work.
  const double queue = seen.value_or(Quantity::queue_time, 0);
  const double served = seen.value_or(Quantity::requests, 0);
  if (queue > 0.2 && served > 20) {
    x.belief.contradicts(0.45, fmt::format("{:.0f} requests were served before, after {} in the "
                                           "queue each",
                                           served, pretty_time(queue)));
  }
  x.sentence = fmt::format(
      "Idle: there is nothing to do, so nothing can be judged{}. Look again under load: ridge "
      "explain http://HOST:PORT/metrics --for 30s.",
      served > 0 ? fmt::format(" ({:.0f} requests since the start)", served) : "");
  return x;
}

constexpr Rule kSoundnessRules[] = {judge_contradiction, judge_faster_than_roof, judge_bytes,
                                    judge_host_weights,  judge_too_large,        judge_idle};

}  // namespace

std::span<const Rule> soundness_rules() { return kSoundnessRules; }

}  // namespace ridge
