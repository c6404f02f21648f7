#include "diagnose/readers/engine_metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/error.h"

namespace ridge {
namespace {

constexpr std::pair<std::string_view, MetricsFamily> kPrefixes[] = {
    {"vllm", MetricsFamily::vllm},         {"ridge", MetricsFamily::ridge},
    {"sglang", MetricsFamily::sglang},     {"trtllm", MetricsFamily::trtllm},
    {"nv_trt_llm", MetricsFamily::triton}, {"tgi", MetricsFamily::tgi},
    {"llamacpp", MetricsFamily::llamacpp}, {"dynamo", MetricsFamily::dynamo},
};

// What NIM exports; each may have the suffix of a counter or histogram.
constexpr std::string_view kNimNames[] = {
    "num_requests_running",
    "num_requests_waiting",
    "num_request_max",
    "gpu_cache_usage_perc",
    "prompt_tokens",
    "generation_tokens",
    "time_to_first_token_seconds",
    "time_per_output_token_seconds",
    "inter_token_latency_seconds",
    "e2e_request_latency_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_finish",
    "request_success",
    "request_failure",
    "num_preemptions",
    "kv_cache_usage_perc",
};

bool is_nim_name(std::string_view name) {
  constexpr std::string_view kEndings[] = {"", "_total", "_bucket", "_sum", "_count", "_created"};
  for (const std::string_view known : kNimNames) {
    if (!name.starts_with(known)) continue;
    const std::string_view ending = name.substr(known.size());
    if (std::find(std::begin(kEndings), std::end(kEndings), ending) != std::end(kEndings)) {
      return true;
    }
  }
  return false;
}

}  // namespace

MetricsName metrics_name(std::string_view name) {
  if (name.starts_with("DCGM_FI_")) return {MetricsFamily::dcgm, name};
  std::string_view rest = name;
  if (rest.starts_with("ray_")) rest.remove_prefix(4);
  for (const auto& [prefix, family] : kPrefixes) {
    if (!rest.starts_with(prefix) || rest.size() <= prefix.size() + 1) continue;
    const char separator = rest[prefix.size()];
    if (separator != ':' && separator != '_') continue;
    return {family, rest.substr(prefix.size() + 1)};
  }
  if (is_nim_name(name)) return {MetricsFamily::nim, name};
  return {};
}

std::string kv_cache_format(std::string_view name) {
  if (name.starts_with("fp8")) return "fp8";
  if (name == "bfloat16" || name == "bf16") return "bf16";
  if (name == "float16" || name == "half" || name == "fp16") return "fp16";
  if (name.starts_with("int8")) return "int8";
  if (name.starts_with("nvfp4") || name.starts_with("fp4")) return "fp4";
  return {};
}

void observe_engines(MetricsObserver& observe, std::string_view label) {
  size_t engines = 0;
  observe.series.common_label(label, engines);
  if (engines > kMostEngines) {
    throw Error("{}: the label {} has {} values: no service has more than {} engines",
                observe.file.path, label, engines, kMostEngines);
  }
  if (engines > 1) observe.file.setup.dp = int(engines);
}

void observe_model_name(MetricsObserver& observe) {
  size_t models = 0;
  observe.file.setup.model = observe.series.common_label("model_name", models);
  if (models > 1) {
    observe.note(
        fmt::format("{} models on one page; the numbers are of all, the name is that of {}", models,
                    observe.file.setup.model));
  }
}

void observe_speculation(MetricsObserver& observe, double verifications, double drafted,
                         double accepted, std::string_view name) {
  if (verifications <= 0 || drafted <= 0) return;
  observe.add(Quantity::drafted, drafted / verifications, observe.span().counters(), name);
  observe.add(Quantity::accepted, accepted / verifications, observe.span().counters(), name);
}

void observe_estimated_work(MetricsObserver& observe) {
  const double engines =
      double(std::max<size_t>(1, observe.series.count("estimated_flops_per_gpu_total")));
  const double seconds = observe.span().seconds * engines;  // they are per device already
  const double flops = observe.increase("estimated_flops_per_gpu").value_or(0);
  const double bytes = observe.increase("estimated_read_bytes_per_gpu").value_or(0) +
                       observe.increase("estimated_write_bytes_per_gpu").value_or(0);
  if (seconds <= 0 || flops <= 0 || bytes <= 0) return;
  const Trust trust = observe.span().counters();
  observe.add(Quantity::flops_per_s, flops / seconds, trust, "estimated_flops_per_gpu_total");
  observe.add(Quantity::bytes_per_s, bytes / seconds, trust, "estimated_read_bytes_per_gpu_total");
}

void note_spread(MetricsObserver& observe, std::string_view name, double most) {
  const auto range = observe.series.spread(name);
  if (!range || range->second - range->first <= most) return;
  observe.note(fmt::format("{} differs between engines: {:.3g} to {:.3g}", observe.full_name(name),
                           range->first, range->second));
}

}  // namespace ridge
