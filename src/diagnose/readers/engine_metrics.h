// What each engine calls its metrics, and how they become quantities.
#pragma once

#include <set>
#include <string>
#include <string_view>

#include "diagnose/readers/metric_series.h"

namespace ridge {

enum class MetricsFamily : uint8_t {
  none,
  vllm,
  ridge,  // the names of Ridge's own; it has vLLM's, too
  sglang,
  trtllm,
  triton,  // Triton's TensorRT-LLM backend
  tgi,
  llamacpp,
  nim,     // vLLM's v0 names without a prefix
  dynamo,  // a frontend: says little about the engine
  dcgm,
  count_
};

struct MetricsName {
  MetricsFamily family = MetricsFamily::none;
  std::string_view rest;  // without the prefix: "num_requests_running"
};
// "ray_vllm:num_requests_running", "vllm_num_requests_running" (colons replaced): vLLM's.
MetricsName metrics_name(std::string_view name);

// Each writes kind, setup, observations, notes and unknown names.
void observe_vllm(MetricsObserver& observe);
void observe_nim(MetricsObserver& observe);
void observe_ridge_steps(MetricsObserver& observe);  // after observe_vllm()
void observe_sglang(MetricsObserver& observe);
void observe_trtllm(MetricsObserver& observe);
void observe_triton(MetricsObserver& observe);
void observe_tgi(MetricsObserver& observe);
void observe_llamacpp(MetricsObserver& observe);
void observe_dynamo(MetricsObserver& observe);

// Device counters of dcgm-exporter. `pages` are those that have some, oldest first.
EvidenceFile observe_dcgm(const std::vector<const MetricsPage*>& pages, const MetricsSpan& span);

// --- For the functions above.

// "fp8_e4m3" -> "fp8", "bfloat16" -> "bf16"; empty for "auto" and what is not known.
std::string kv_cache_format(std::string_view name);
// setup.dp: how many values the label has; 1 is left out. Throws Error above kMostEngines.
void observe_engines(MetricsObserver& observe, std::string_view label);
// setup.model from the label model_name, with a note where there are several.
void observe_model_name(MetricsObserver& observe);
// Drafted and accepted tokens per verification, from increases.
void observe_speculation(MetricsObserver& observe, double verifications, double drafted,
                         double accepted, std::string_view name);
// The engine's own estimate of FLOPs and bytes (--enable-mfu-metrics); 0: switched off.
void observe_estimated_work(MetricsObserver& observe);
// A note where engines or replicas differ by more than `most`.
void note_spread(MetricsObserver& observe, std::string_view name, double most);

}  // namespace ridge
