#include <fmt/format.h>

#include "diagnose/readers/engine_metrics.h"

namespace ridge {
namespace {

using Q = Quantity;

// Known, and of no use here.
const std::set<std::string_view> kSglangIgnored{
    "num_grammar_queue_reqs",
    "cache_hit_rate",
    "full_token_usage",
    "swa_token_usage",
    "mamba_usage",
    "num_used_tokens",
    "kv_available_tokens",
    "kv_evictable_tokens",
    "kv_used_tokens",
    "swa_available_tokens",
    "swa_evictable_tokens",
    "swa_used_tokens",
    "mamba_available_tokens",
    "mamba_evictable_tokens",
    "mamba_used_tokens",
    "weight_load_duration_seconds",
    "weight_memory_usage_gb",
    "kv_cache_memory_usage_gb",
    "graph_memory_usage_gb",
    "startup_available_gpu_memory_gb",
    "startup_time_seconds",
    "startup_cuda_graph_time_seconds",
    "engine_startup_time",
    "engine_load_weights_time",
    "page_size",
    "max_running_requests_under_SLO",
    "prefill_effective_tokens",
    "num_pages",
    "context_len",
    "max_total_num_tokens_swa",
    "decode_sum_seq_lens",
    "spec_cap_length",
    "spec_block_accept_length",
    "num_retracted_input_tokens",
    "num_retracted_output_tokens",
    "num_paused_reqs",
    "num_prefill_prealloc_queue_reqs",
    "num_prefill_bootstrap_queue_reqs",
    "num_prefill_inflight_queue_reqs",
    "num_decode_prealloc_queue_reqs",
    "num_decode_transfer_queue_reqs",
    "num_prefill_retries",
    "num_bootstrap_failed_reqs",
    "num_transfer_failed_reqs",
    "pending_prealloc_token_usage",
    "kv_transfer_speed_gb_s",
    "kv_transfer_latency_ms",
    "kv_transfer_bootstrap_ms",
    "kv_transfer_alloc_ms",
    "kv_transfer_total_mb",
    "utilization",
    "new_token_ratio",
    "lora_pool_slots_used",
    "lora_pool_slots",
    "lora_pool_utilization",
    "hicache_host_used_tokens",
    "hicache_host_total_tokens",
    "num_streaming_sessions",
    "streaming_session_held_tokens",
    "num_unique_running_routing_keys",
    "routing_key_running_req",
    "routing_key_all_req",
    "grammar_compilation_time_seconds",
    "num_grammar_cache_hit",
    "num_grammar_aborted",
    "num_grammar_timeout",
    "num_grammar",
    "grammar_schema",
    "grammar_ebnf_size",
    "grammar_tree_traversal_time_avg",
    "grammar_tree_traversal_time_max",
    "eplb_balancedness",
    "dp_cooperation_realtime_tokens",
    "dp_cooperation_forward_execution_seconds",
    "prefill_delayer_wait_forward_passes",
    "prefill_delayer_wait_seconds",
    "prefill_delayer_outcomes",
    "uncached_prompt_tokens_histogram",
    "num_so_requests",
    "get_loads_duration_seconds",
    "cuda_graph_passes",
    "realtime_tokens",
    "prefetched_tokens",
    "backuped_tokens",
    "prefetch_pgs",
    "backup_pgs",
    "prefetch_bandwidth",
    "backup_bandwidth",
    "evicted_tokens",
    "load_back_tokens",
    "eviction_duration_seconds",
    "load_back_duration_seconds",
    "func_latency_seconds",
    "http_requests",
    "http_responses",
};

void observe_sglang_tokens(MetricsObserver& observe) {
  // The counters of tokens rise when a request ends; realtime_tokens when a step does.
  const double finished = observe.increase("generation_tokens").value_or(0);
  const auto throughput = observe.series.gauge("gen_throughput", GaugeFold::sum);
  if (!observe.rate(Q::tokens_per_s, {"realtime_tokens"}, {"mode", "decode"})) {
    const bool counted =
        (finished > 0 || !throughput) && observe.rate(Q::tokens_per_s, {"generation_tokens"});
    if (!counted) observe.gauge(Q::tokens_per_s, {"gen_throughput"}, GaugeFold::sum);
  }
  const auto computed = observe.increase("realtime_tokens", {"mode", "prefill_compute"});
  const auto cached = observe.increase("realtime_tokens", {"mode", "prefill_cache"});
  const double seconds = observe.span().seconds;
  if (computed && seconds > 0) {
    observe.add(Q::prompt_tokens_per_s, (*computed + cached.value_or(0)) / seconds,
                observe.span().counters(), "realtime_tokens_total");
  } else {
    observe.rate(Q::prompt_tokens_per_s, {"prompt_tokens"});
  }
  if (computed && *computed + cached.value_or(0) > 0) {
    observe.add(Q::prompt_hit, cached.value_or(0) / (*computed + cached.value_or(0)),
                observe.span().counters(), "realtime_tokens_total");
  } else if (!observe.ratio(Q::prompt_hit, "cached_tokens", "prompt_tokens")) {
    // A gauge of the last prefill batch, and no counter of it: 0 where nothing was ever found.
    const bool prompts = observe.increase("prompt_tokens").value_or(0) > 0;
    if (prompts) observe.gauge(Q::prompt_hit, {"cache_hit_rate"}, GaugeFold::mean);
  }
}

void observe_sglang_speculation(MetricsObserver& observe) {
  const auto length = observe.series.gauge("spec_accept_length", GaugeFold::mean);
  const auto rate = observe.series.gauge("spec_accept_rate", GaugeFold::mean);
  const auto tokens = observe.series.gauge("spec_num_draft_tokens", GaugeFold::mean);
  observe.series.gauge("spec_num_steps", GaugeFold::mean);
  observe.increase("spec_verify_calls");
  if (length.value_or(0) < 1) return;   // 0: no speculation
  const double accepted = *length - 1;  // the length counts the token of the model itself
  observe.add(Q::accepted, accepted, observe.span().gauges(), "spec_accept_length");
  if (rate.value_or(0) > 0 && accepted > 0) {
    observe.add(Q::drafted, accepted / *rate, observe.span().gauges(), "spec_accept_rate");
  } else if (tokens.value_or(0) > 1) {
    observe.add(Q::drafted, *tokens - 1, observe.span().gauges(), "spec_num_draft_tokens");
  }
}

void observe_sglang_steps(MetricsObserver& observe) {
  const auto graphs = observe.increase("cuda_graph_passes", {"mode", "decode_cuda_graph"});
  const auto eager = observe.increase("cuda_graph_passes", {"mode", "decode_none"});
  const double passes = graphs.value_or(0) + eager.value_or(0);
  if (passes > 0) {
    observe.add(Q::graph_share, graphs.value_or(0) / passes, observe.span().counters(),
                "cuda_graph_passes_total");
  } else if (observe.series.lowest("num_running_reqs") >= 1) {
    observe.gauge(Q::graph_share, {"is_cuda_graph"}, GaugeFold::mean);
  }
  observe.series.gauge("is_cuda_graph", GaugeFold::mean);
  const auto decoding = observe.increase("forward_execution_seconds", {"category", "decode"});
  if (decoding.value_or(0) > 0 && passes > 0) {
    observe.add(Q::decode_step, *decoding / passes, observe.span().counters(),
                "forward_execution_seconds_total");
  }
  const auto forward = observe.increase("forward_execution_seconds");
  const double seconds = observe.span().seconds;
  const double share =
      seconds > 0 ? forward.value_or(0) / seconds / observe.file.setup.dp.value_or(1) : 0;
  if (forward.value_or(0) > 0 && seconds > 0 && share <= 1.05) {
    observe.add(Q::engine_busy, std::min(1., share), observe.span().counters(),
                "forward_execution_seconds_total");
  } else {
    observe.gauge(Q::engine_busy, {"fwd_occupancy"}, GaugeFold::mean, 0.01);  // percent
  }
}

}  // namespace

void observe_sglang(MetricsObserver& observe) {
  observe.file.setup.engine = "sglang";
  observe.file.kind = "SGLang metrics";
  observe_model_name(observe);
  observe_engines(observe, "dp_rank");

  observe.gauge(Q::running, {"num_running_reqs"}, GaugeFold::sum);
  observe.gauge(Q::waiting, {"num_queue_reqs"}, GaugeFold::sum);
  observe.gauge(Q::kv_usage, {"token_usage"}, GaugeFold::mean);
  note_spread(observe, "token_usage", 0.3);
  observe.gauge(Q::kv_tokens, {"max_total_num_tokens"}, GaugeFold::sum);
  if (!observe.total(Q::preemptions, {"num_retracted_requests"})) {
    observe.gauge(Q::preemptions, {"num_retracted_reqs"}, GaugeFold::sum);
  }
  observe.series.gauge("num_retracted_reqs", GaugeFold::sum);
  observe_sglang_tokens(observe);
  observe.total(Q::requests, {"num_requests", "e2e_request_latency_seconds_count"});
  observe.rate(Q::requests_per_s, {"num_requests", "e2e_request_latency_seconds_count"});
  if (const double aborted = observe.increase("num_aborted_requests").value_or(0); aborted > 0) {
    observe.note(fmt::format("{:.0f} requests were aborted", aborted));
  }
  if (!observe.mean(Q::prompt, {"prompt_tokens_histogram"})) {
    observe.ratio(Q::prompt, "prompt_tokens", "num_requests");
  }
  if (!observe.mean(Q::output, {"generation_tokens_histogram"})) {
    observe.ratio(Q::output, "generation_tokens", "num_requests");
  }
  observe.mean(Q::itl, {"inter_token_latency_seconds", "time_per_output_token_seconds"});
  observe.quantiles(Q::itl_p50, Q::itl_p99,
                    {"inter_token_latency_seconds", "time_per_output_token_seconds"});
  observe.mean(Q::ttft, {"time_to_first_token_seconds"});
  observe.quantiles(Q::ttft_p50, Q::ttft_p99, {"time_to_first_token_seconds"});
  observe.mean(Q::e2e, {"e2e_request_latency_seconds"});
  if (!observe.mean(Q::queue_time, {"queue_time_seconds"})) {
    observe.gauge(Q::queue_time, {"avg_request_queue_latency"}, GaugeFold::mean);
  }
  observe.mean(Q::prefill_time, {"per_stage_req_latency_seconds"}, {"stage", "prefill_forward"});
  observe.mean(Q::decode_time, {"per_stage_req_latency_seconds"}, {"stage", "decode_forward"});
  observe_sglang_speculation(observe);
  observe_sglang_steps(observe);
  observe_estimated_work(observe);
  for (const std::string& name : observe.series.unasked(kSglangIgnored)) {
    observe.file.unknown.push_back(observe.full_name(name));
  }
}

}  // namespace ridge
