#include "predict/observe.h"

#include <fmt/format.h>

#include "base/error.h"
#include "base/units.h"

namespace ridge {
namespace {

constexpr ObservedOption kObservedOptions[] = {
    {"observed", "", "Output tokens/s of the endpoint: 280tok/s", &ObservedOptions::observed},
    {"batch", "b", "Sequences decoding at once", &ObservedOptions::batch},
    {"itl", "", "Inter-token latency of a user: 28ms", &ObservedOptions::itl},
    {"ttft", "", "Time to first token: 900ms", &ObservedOptions::ttft},
    {"output", "", "Tokens of an answer; with --prompt it tells what others' prompts cost",
     &ObservedOptions::output},
    {"dram-active", "", "Share of time device memory is active, 0 to 1",
     &ObservedOptions::dram_active},
    {"tensor-active", "", "Share of time the tensor pipe is active, 0 to 1",
     &ObservedOptions::tensor_active},
    {"gpu-util", "", "nvidia-smi utilisation, 0 to 1", &ObservedOptions::gpu_util},
    {"kv-usage", "", "Share of the KV cache in use, 0 to 1", &ObservedOptions::kv_usage},
    {"waiting", "", "Requests in the queue", &ObservedOptions::waiting},
    {"power", "", "Power drawn by one device: 690W", &ObservedOptions::power},
};

// "280 tokens/s" -> "280 tok/s".
std::string short_rate(std::string text) {
  for (const std::string_view unit : {"tokens/s", "token/s", "tokens/sec", "tok/sec", "t/s"}) {
    if (!text.ends_with(unit)) continue;
    text.resize(text.size() - unit.size());
    return text + "tok/s";
  }
  return text;
}

std::optional<double> read(const ObservedOptions& o, const ObservedOption& option) {
  const std::string& text = o.*option.value;
  if (text.empty()) return std::nullopt;
  const std::string_view name = option.name;
  const std::string what = "--" + std::string(name);
  try {
    if (name == "itl" || name == "ttft") return parse_latency(text, what);
    if (name == "observed") return parse_quantity(short_rate(text), "tok/s", what);
    return parse_quantity(text, name == "power" ? "W" : "", what);
  } catch (const Error& error) {
    throw OptionError(option.name, error.what());
  }
}

}  // namespace

std::span<const ObservedOption> observed_options() { return kObservedOptions; }

double parse_latency(std::string_view text, std::string_view what) {
  const double seconds = parse_seconds(text, what);
  const size_t last = text.find_last_not_of(" \t");
  if (seconds != 0 && std::string_view("0123456789.").find(text[last]) != std::string_view::npos) {
    throw Error("{}: '{}' has no unit; write {}ms or {}s", what, text, text, text);
  }
  return seconds;
}

Observation make_observation(const ObservedOptions& o) {
  Observation seen;
  std::optional<double>* const into[] = {&seen.tokens_per_s,  &seen.batch,    &seen.itl_s,
                                         &seen.ttft_s,        &seen.output,   &seen.dram_active,
                                         &seen.tensor_active, &seen.gpu_util, &seen.kv_usage,
                                         &seen.waiting,       &seen.power_w};
  static_assert(std::size(kObservedOptions) == std::size(into));
  for (size_t i = 0; i < std::size(kObservedOptions); ++i) *into[i] = read(o, kObservedOptions[i]);
  return seen;
}

Explanation explain(const Request& request, const Observation& observation, bool context_given) {
  Explanation x = explain(request, observation);
  if (!context_given) {
    x.evidence.push_back(
        {Bearing::missing,
         fmt::format("--context: {:.0f} tokens per sequence were assumed", request.context)});
  }
  return x;
}

}  // namespace ridge
