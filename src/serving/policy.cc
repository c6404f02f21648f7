#include "serving/policy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace ridge {
namespace {

// Where a setting's value goes. Exactly one of the members is set.
struct PolicySetting {
  std::string_view name;
  int ServingPolicy::*number = nullptr;
  bool ServingPolicy::*flag = nullptr;
  int least = 1;
};

// The names of vLLM, SGLang and TensorRT-LLM, in this order within one meaning.
constexpr PolicySetting kSettings[] = {
    {"max_num_batched_tokens", &ServingPolicy::max_tokens},
    {"chunked_prefill_size", &ServingPolicy::max_tokens},
    {"max_num_tokens", &ServingPolicy::max_tokens},
    {"max_num_seqs", &ServingPolicy::max_sequences},
    {"max_running_requests", &ServingPolicy::max_sequences},
    {"max_batch_size", &ServingPolicy::max_sequences},
    {"block_size", &ServingPolicy::page_tokens},
    {"page_size", &ServingPolicy::page_tokens},
    {"tokens_per_block", &ServingPolicy::page_tokens},
    {"kv_blocks", &ServingPolicy::pages},
    {"prefix_cache", nullptr, &ServingPolicy::prefix_cache},
    {"chunked_prefill", nullptr, &ServingPolicy::chunked},
    {"mixed", nullptr, &ServingPolicy::mixed},
    {"scheduler_recv_interval", &ServingPolicy::poll},
    {"batch_wait_timeout_iters", &ServingPolicy::wait, nullptr, 0},
    {"batch_wait_max_tokens", &ServingPolicy::wait_tokens, nullptr, 0},
};

const PolicySetting& find_setting(std::string_view name) {
  for (const PolicySetting& setting : kSettings) {
    if (setting.name == name) return setting;
  }
  std::vector<std::string> names;
  for (const PolicySetting& setting : kSettings) names.emplace_back(setting.name);
  const std::vector<std::string> near = nearest_names(name, names, 1);
  throw Error("--set {}: no such setting{}; there are {}", name,
              near.empty() ? "" : fmt::format(" (did you mean {}?)", near[0]),
              fmt::join(names, ", "));
}

void apply_setting(ServingPolicy& policy, std::string_view name, std::string_view value) {
  const PolicySetting& setting = find_setting(name);
  if (setting.flag != nullptr) {
    const bool on = value == "on" || value == "true" || value == "1";
    if (!on && value != "off" && value != "false" && value != "0") {
      throw Error("--set {}={}: on or off", name, value);
    }
    policy.*setting.flag = on;
    return;
  }
  constexpr int kMost = 1 << 30;
  int number = 0;
  const auto [end, fault] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (fault != std::errc() || end != value.data() + value.size() || number < setting.least ||
      number > kMost) {
    throw Error("--set {}={}: a whole number from {} to {}", name, value, setting.least, kMost);
  }
  policy.*setting.number = number;
}

}  // namespace

ServingPolicy policy_of(std::string_view stack, double device_bytes) {
  const bool large = device_bytes >= 70e9, largest = device_bytes >= 160e9;
  ServingPolicy policy;
  if (stack.starts_with("ridge")) {  // "ridge-cuda" too
    // The defaults of `ridge serve --device cuda`.
    policy.max_tokens = 4096;
    policy.max_sequences = 256;
    policy.headroom = 1;
    policy.copies_partial_pages = true;
    policy.awaits_prefix = true;
    return policy;
  }
  // vLLM's defaults for its API server, and SGLang's chunk, follow the device's memory.
  policy.max_tokens = largest ? 16384 : large ? 8192 : 2048;
  policy.max_sequences = large ? 1024 : 256;
  if (stack == "sglang") {
    // SGLang's page is one token. 16 keep the block ids of a prompt few; a sequence then wastes 8
    // tokens of memory on average.
    policy.max_sequences = 2048;
    policy.mixed = false;
    policy.reservation = ServingPolicy::Reservation::kEstimate;
    policy.victim = ServingPolicy::Victim::kFewestOutputs;
    policy.awaits_prefix = true;
  } else if (stack == "trtllm") {
    policy.max_tokens = 8192;
    policy.max_sequences = 2048;
    policy.page_tokens = 32;
    policy.chunked = false;
    policy.reservation = ServingPolicy::Reservation::kOutput;  // GUARANTEED_NO_EVICT
  }
  return policy;
}

void apply_settings(ServingPolicy& policy, std::string_view settings) {
  const int sequences = policy.max_sequences;
  while (!settings.empty()) {
    const size_t comma = std::min(settings.find(','), settings.size());
    const std::string_view one = settings.substr(0, comma);
    settings.remove_prefix(std::min(comma + 1, settings.size()));
    const size_t equals = one.find('=');
    if (equals == std::string_view::npos) throw Error("--set {}: NAME=VALUE is missing", one);
    apply_setting(policy, one.substr(0, equals), one.substr(equals + 1));
  }
  if (!policy.mixed || policy.max_sequences <= policy.max_tokens) return;
  if (policy.max_sequences == sequences) {
    policy.max_sequences = policy.max_tokens;  // a default gives way
  } else {
    throw Error(
        "--set: a step of {} tokens does not hold a token of each of {} sequences; set a smaller "
        "max_num_seqs or a larger max_num_batched_tokens",
        policy.max_tokens, policy.max_sequences);
  }
}

}  // namespace ridge
