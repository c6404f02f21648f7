#include "diagnose/verdict.h"

#include <algorithm>

#include "diagnose/thresholds.h"

namespace ridge {

std::string_view verdict_name(Verdict verdict) {
  static constexpr std::string_view kNames[] = {"idle",           "under-batched",
                                                "queue-capacity", "admission-limit",
                                                "kv-full",        "prefill-interference",
                                                "prefill-bound",  "host-bound",
                                                "interconnect",   "slow-kernel",
                                                "prefix-miss",    "drafts-too-long",
                                                "host-weights",   "power",
                                                "memory-bound",   "compute-bound",
                                                "impossible",     "unknown"};
  static_assert(std::size(kNames) == static_cast<size_t>(Verdict::count_));
  return kNames[static_cast<size_t>(verdict)];
}

CounterRoofs counter_roofs(const Machine* machine, std::string_view device_name) {
  const std::string_view name = machine ? std::string_view(machine->title) : device_name;
  const auto has = [&](std::string_view part) { return name.find(part) != name.npos; };
  const bool gddr = has("GeForce") || has("RTX") || has("A10") || has("L4") || has("L40") ||
                    has("T4") || has("A40");
  const bool hbm = has("A100") || has("H100") || has("H200") || has("B200") || has("GH200");
  // Full-rate accumulation in fp32: the data-centre parts with HBM, T4 and V100.
  const bool half_rate = gddr && !hbm && !has("T4");
  return {gddr && !hbm ? thresholds::kGddrActiveMost : thresholds::kHbmActiveMost,
          half_rate ? thresholds::kTensorMostHalfRate : thresholds::kTensorMost};
}

bool Case::dram_busy() const {
  return seen.value_or(Quantity::dram_active, 0) >= thresholds::kBusyShare * roofs.dram;
}
bool Case::dram_quiet() const {
  return seen.value_or(Quantity::dram_active, 1) < thresholds::kQuietShare * roofs.dram;
}
bool Case::tensor_busy() const {
  return seen.value_or(Quantity::tensor_active, 0) >= thresholds::kBusyShare * roofs.tensor;
}
bool Case::tensor_quiet() const {
  return seen.value_or(Quantity::tensor_active, 1) < thresholds::kQuietShare * roofs.tensor;
}

bool Case::waits() const { return seen.value_or(Quantity::waiting, 0) >= 0.5; }

bool Case::device_idles() const {
  return seen.value_or(Quantity::gpu_util, 1) < thresholds::kIdleUtil ||
         seen.value_or(Quantity::gr_active, 1) < thresholds::kIdleUtil;
}

bool Case::single_user() const {
  const bool local = seen.setup.engine == "llama.cpp" || seen.setup.engine == "ollama" ||
                     (run.expected && run.expected->request.stack.name == "llama.cpp");
  return local && running() <= 1;
}

double Case::running() const {
  return std::max(seen.value_or(Quantity::running, 0), run.batch.value_or(0));
}

double Case::prompt_per_output() const {
  const double output = seen.value_or(Quantity::output, 0);
  const double by_length =
      output > 0 && seen.has(Quantity::prompt) ? *seen[Quantity::prompt] / output : 0;
  const bool benchmark = seen.has(Quantity::bytes_per_s);  // llama-bench times prompts apart
  if (benchmark || !seen.is_recent(Quantity::tokens_per_s) ||
      !seen.is_recent(Quantity::prompt_tokens_per_s) || *seen[Quantity::tokens_per_s] <= 0) {
    return by_length;
  }
  // By the rates where they are known: lengths are those of requests that ended, and long answers
  // may not have. Without lengths, one request's prompt is no load.
  const double by_rate = *seen[Quantity::prompt_tokens_per_s] / *seen[Quantity::tokens_per_s];
  if (by_length > 0) return std::min(by_length, by_rate);
  return running() > 1.5 ? by_rate * (1 - seen.value_or(Quantity::prompt_hit, 0)) : 0;
}

void Belief::supports(double weight, std::string text) {
  value_ = 1 - (1 - value_) * (1 - weight);
  if (!text.empty()) findings.push_back({Bearing::supports, std::move(text)});
}

void Belief::contradicts(double factor, std::string text) {
  value_ *= factor;
  if (!text.empty()) findings.push_back({Bearing::contradicts, std::move(text)});
}

}  // namespace ridge
