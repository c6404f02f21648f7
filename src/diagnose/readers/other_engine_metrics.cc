// TensorRT-LLM, Triton's backend of it, TGI, llama.cpp, and Dynamo's frontend.
#include <fmt/format.h>

#include <charconv>

#include "diagnose/readers/engine_metrics.h"

namespace ridge {
namespace {

using Q = Quantity;

const std::set<std::string_view> kTrtllmIgnored{
    "request_inference_time_seconds",
    "prompt_cache_hit_tokens",
    "prompt_cached_tokens_per_request",
    "spec_decode_drafted_tokens",
    "spec_decode_accepted_tokens",
    "spec_decode_draft_overhead",
    "prefill_perplexity",
    "generation_perplexity",
    "scheduled_batch_size",
    "kv_cache_host_utilization",
    "kv_cache_iter_reuse_rate",
    "kv_cache_iter_reused_blocks",
    "kv_cache_iter_full_reused_blocks",
    "kv_cache_iter_partial_reused_blocks",
    "kv_cache_iter_missed_blocks",
    "kv_cache_gen_alloc_blocks",
    "kv_cache_onboard_bytes",
    "kv_cache_offload_bytes",
    "kv_cache_disk_prefetch_blocks",
    "kv_cache_intra_device_copy_bytes",
    "kv_cache_free_blocks",
    "kv_cache_used_blocks",
    "num_context_requests",
    "num_scheduled_requests",
    "max_num_active_requests",
    "max_num_tokens_runtime",
    "cpu_memory_usage_bytes",
    "pinned_memory_usage_bytes",
    "total_context_tokens",
    "avg_decoded_tokens_per_iter",
    "prefill_batch_occupancy",
    "prefill_batch_tokens",
    "speculative_config_info",
};
const std::set<std::string_view> kTgiIgnored{
    "batch_concat",
    "batch_concat_duration",
    "batch_inference_success",
    "batch_filter_duration",
    "batch_decode_duration",
    "batch_next_size",
    "batch_next_tokens",
    "batch_current_max_tokens",
    "request",  // request_count
    "request_max_new_tokens",
    "request_validation_duration",
};
const std::set<std::string_view> kLlamacppIgnored{
    "prompt_tokens_seconds",
    "predicted_tokens_seconds",
    "n_tokens_max",
    "kv_cache_tokens",
    "spec_decode_num_accepted_tokens_per_pos",
};

void list_unknown(MetricsObserver& observe, const std::set<std::string_view>& ignored) {
  for (const std::string& name : observe.series.unasked(ignored)) {
    observe.file.unknown.push_back(observe.full_name(name));
  }
}

std::optional<int> label_count(const MetricSample* info, std::string_view key) {
  if (info == nullptr) return std::nullopt;
  const std::string_view text = info->label(key);
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1) return std::nullopt;
  return value;
}

void observe_trtllm_setup(MetricsObserver& observe) {
  RunSetup& setup = observe.file.setup;
  if (const MetricSample* model = observe.series.first("model_config_info")) {
    if (!model->label("model").empty()) setup.model = model->label("model");
    setup.device = model->label("gpu_type");
    setup.weights = kv_cache_format(model->label("quantization"));
    if (setup.weights.empty()) setup.weights = kv_cache_format(model->label("dtype"));
  }
  const MetricSample* parallel = observe.series.first("parallel_config_info");
  setup.tp = label_count(parallel, "tp_size");
  setup.pp = label_count(parallel, "pp_size");
  setup.ep = label_count(parallel, "ep_size");
  if (const MetricSample* cache = observe.series.first("kv_cache_config_info")) {
    setup.kv = kv_cache_format(cache->label("dtype"));
    const std::string_view reuse = cache->label("enable_block_reuse");
    if (!reuse.empty()) setup.prefix_caching = reuse == "True" || reuse == "true";
  }
}

void observe_trtllm_cache(MetricsObserver& observe) {
  observe.gauge(Q::kv_usage, {"kv_cache_utilization"}, GaugeFold::mean);
  const auto blocks = observe.series.gauge("kv_cache_max_blocks", GaugeFold::sum);
  const auto tokens = observe.series.gauge("kv_cache_tokens_per_block", GaugeFold::mean);
  if (blocks && tokens && *blocks * *tokens > 0) {
    observe.add(Q::kv_tokens, *blocks * *tokens, Trust::window, "kv_cache_max_blocks");
  }
  const double reused = observe.increase("kv_cache_reused_blocks").value_or(0);
  const double missed = observe.increase("kv_cache_missed_blocks").value_or(0);
  const auto rate = observe.series.gauge("kv_cache_hit_rate", GaugeFold::mean);
  if (observe.ratio(Q::prompt_hit, "prompt_cached_tokens", "prompt_tokens")) return;
  if (reused + missed > 0) {
    observe.add(Q::prompt_hit, reused / (reused + missed), observe.span().counters(),
                "kv_cache_reused_blocks_total");
  } else if (rate) {
    observe.add(Q::prompt_hit, *rate, Trust::lifetime, "kv_cache_hit_rate");
  }
}

}  // namespace

void observe_trtllm(MetricsObserver& observe) {
  observe.file.setup.engine = "trtllm";
  observe.file.kind = "TensorRT-LLM metrics";
  observe_model_name(observe);
  observe_trtllm_setup(observe);
  observe.gauge(Q::running, {"num_requests_running"}, GaugeFold::sum);
  observe.gauge(Q::batch, {"num_generation_requests"}, GaugeFold::sum);
  observe.gauge(Q::waiting, {"num_requests_waiting"}, GaugeFold::sum);
  observe.gauge(Q::max_running, {"max_batch_size_runtime", "max_batch_size_static"},
                GaugeFold::sum);
  observe.gauge(Q::preemptions, {"num_paused_requests"}, GaugeFold::sum);
  observe_trtllm_cache(observe);
  observe.rate(Q::tokens_per_s, {"generation_tokens"});
  observe.rate(Q::prompt_tokens_per_s, {"prompt_tokens"});
  observe.total(Q::requests, {"request_success", "num_requests_completed"});
  observe.rate(Q::requests_per_s, {"request_success", "num_requests_completed"});
  observe.total(Q::failed, {"request_error"});
  observe.ratio(Q::prompt, "prompt_tokens", "request_success");
  observe.ratio(Q::output, "generation_tokens", "request_success");
  observe.mean(Q::itl, {"time_per_output_token_seconds"});
  observe.quantiles(Q::itl_p50, Q::itl_p99, {"time_per_output_token_seconds"});
  observe.mean(Q::ttft, {"time_to_first_token_seconds"});
  observe.quantiles(Q::ttft_p50, Q::ttft_p99, {"time_to_first_token_seconds"});
  observe.mean(Q::e2e, {"e2e_request_latency_seconds"});
  observe.mean(Q::queue_time, {"request_queue_time_seconds"});
  observe.mean(Q::prefill_time, {"request_prefill_time_seconds"});
  observe.mean(Q::decode_time, {"request_decode_time_seconds"});
  if (observe.series.lowest("num_requests_running") >= 1) {
    observe.gauge(Q::step_time, {"iteration_latency_seconds"}, GaugeFold::mean);
  }
  observe.series.gauge("iteration_latency_seconds", GaugeFold::mean);
  observe.gauge(Q::memory_used, {"gpu_memory_usage_bytes"}, GaugeFold::mean);
  // The acceptance length counts the token of the model itself; drafts follow from the totals.
  const auto length = observe.series.gauge("spec_decode_acceptance_length", GaugeFold::mean);
  const double drafted = observe.increase("spec_decode_num_draft_tokens").value_or(0);
  const double accepted = observe.increase("spec_decode_num_accepted_tokens").value_or(0);
  if (length.value_or(0) > 1 && drafted > 0 && accepted > 0) {
    observe_speculation(observe, accepted / (*length - 1), drafted, accepted,
                        "spec_decode_num_accepted_tokens_total");
  }
  list_unknown(observe, kTrtllmIgnored);
}

void observe_triton(MetricsObserver& observe) {
  observe.file.setup.engine = "trtllm";
  observe.file.kind = "TensorRT-LLM metrics of Triton";
  size_t models = 0;
  observe.file.setup.model = observe.series.common_label("model", models);
  const auto of = [&](Q quantity, const char* name, const char* key, const char* value,
                      GaugeFold fold) {
    observe.gauge(quantity, {name}, fold, 1, {key, value});
  };
  of(Q::running, "request_metrics", "request_type", "active", GaugeFold::sum);
  of(Q::waiting, "request_metrics", "request_type", "waiting", GaugeFold::sum);
  of(Q::max_running, "request_metrics", "request_type", "max", GaugeFold::sum);
  of(Q::batch, "inflight_batcher_metrics", "inflight_batcher_specific_metric",
     "generation_requests", GaugeFold::sum);
  of(Q::kv_usage, "kv_cache_block_metrics", "kv_cache_block_type", "fraction", GaugeFold::mean);
  of(Q::memory_used, "runtime_memory_metrics", "memory_type", "gpu", GaugeFold::mean);
  const auto blocks = observe.series.gauge("kv_cache_block_metrics", GaugeFold::sum,
                                           {"kv_cache_block_type", "max"});
  const auto tokens = observe.series.gauge("kv_cache_block_metrics", GaugeFold::mean,
                                           {"kv_cache_block_type", "tokens_per"});
  if (blocks && tokens && *blocks * *tokens > 0) {
    observe.add(Q::kv_tokens, *blocks * *tokens, Trust::window, "kv_cache_block_metrics");
  }
  list_unknown(observe, {"general_metrics", "disaggregated_serving_metrics"});
}

void observe_tgi(MetricsObserver& observe) {
  observe.file.setup.engine = "tgi";
  observe.file.kind = "TGI metrics";
  observe_model_name(observe);
  observe.gauge(Q::running, {"batch_current_size"}, GaugeFold::sum);
  observe.gauge(Q::waiting, {"queue_size"}, GaugeFold::sum);
  observe.total(Q::requests, {"request_success"});
  observe.rate(Q::requests_per_s, {"request_success"});
  observe.total(Q::failed, {"request_failure"});
  observe.rate(Q::tokens_per_s, {"request_generated_tokens_sum"});
  observe.rate(Q::prompt_tokens_per_s, {"request_input_length_sum"});
  observe.mean(Q::prompt, {"request_input_length"});
  observe.mean(Q::output, {"request_generated_tokens"});
  observe.mean(Q::itl, {"request_mean_time_per_token_duration"});
  observe.quantiles(Q::itl_p50, Q::itl_p99, {"request_mean_time_per_token_duration"});
  observe.mean(Q::e2e, {"request_duration"});
  observe.mean(Q::queue_time, {"request_queue_duration"});
  if (!observe.mean(Q::decode_step, {"batch_forward_duration"}, {"method", "decode"})) {
    observe.mean(Q::decode_step, {"batch_inference_duration"}, {"method", "decode"});
  }
  const Trust trust = observe.span().counters();
  const auto queue = observe.histogram("request_queue_duration");
  const auto prefill = observe.histogram("batch_inference_duration", {"method", "prefill"});
  const auto inference = observe.histogram("request_inference_duration");
  if (prefill && prefill->count > 0) {
    const double prefill_s = prefill->sum / prefill->count;
    observe.add(Q::prefill_time, prefill_s, trust, "batch_inference_duration{prefill}");
    if (queue && queue->count > 0) {
      observe.add(Q::ttft, queue->sum / queue->count + prefill_s, trust,
                  "request_queue_duration + batch_inference_duration{prefill}");
    }
    if (inference && inference->count > 0) {
      observe.add(Q::decode_time, std::max(0., inference->sum / inference->count - prefill_s),
                  trust, "request_inference_duration");
    }
  }
  // Prefill gives each request its first token; decode steps the others.
  const auto tokens = observe.histogram("request_generated_tokens");
  const auto steps = observe.increase("batch_inference_count", {"method", "decode"});
  if (tokens && steps.value_or(0) > 0 && tokens->sum > tokens->count) {
    observe.add(Q::batch, (tokens->sum - tokens->count) / *steps, trust, "batch_inference_count");
  }
  const auto skipped = observe.histogram("request_skipped_tokens");
  if (skipped && skipped->sum > 0 && skipped->count > 0) {
    observe.add(Q::accepted, skipped->sum / skipped->count, trust, "request_skipped_tokens");
  }
  list_unknown(observe, kTgiIgnored);
}

void observe_llamacpp(MetricsObserver& observe) {
  observe.file.setup.engine = "llama.cpp";
  observe.file.kind = "llama.cpp metrics";
  observe_model_name(observe);
  observe.gauge(Q::running, {"requests_processing"}, GaugeFold::sum);
  observe.gauge(Q::waiting, {"requests_deferred"}, GaugeFold::sum);
  observe.gauge(Q::kv_usage, {"kv_cache_usage_ratio"}, GaugeFold::mean);
  observe.rate(Q::tokens_per_s, {"tokens_predicted"});
  observe.ratio(Q::itl, "tokens_predicted_seconds", "tokens_predicted");

  const Trust trust = observe.span().counters();
  const double seconds = observe.span().seconds;
  const double computed = observe.increase("prompt_tokens").value_or(0);
  const auto cached = observe.increase("prompt_tokens_cached");
  const double prompts = computed + cached.value_or(0);
  if (seconds > 0)
    observe.add(Q::prompt_tokens_per_s, prompts / seconds, trust, "prompt_tokens_total");
  if (cached && prompts > 0) {
    observe.add(Q::prompt_hit, *cached / prompts, trust, "prompt_tokens_cached_total");
  }
  if (const auto busy = observe.increase("prompt_seconds"); busy.value_or(0) > 0 && computed > 0) {
    observe.note(fmt::format("prompts ran at {:.0f} tok/s while they ran", computed / *busy));
  }
  const double steps = observe.increase("n_decode").value_or(0);
  const double predicted = observe.increase("tokens_predicted").value_or(0);
  if (steps > 0) {
    observe.add(Q::tokens_per_step, (computed + predicted) / steps, trust, "n_decode_total");
    const bool busy = observe.series.lowest("requests_processing") >= 1;
    if (!observe.span().lifetime && seconds > 0 && busy) {
      observe.add(Q::step_time, seconds / steps, Trust::window, "n_decode_total");
    }
  }
  // An average since the start: its product with the steps is a counter.
  const auto slots = observe.series.sums("n_busy_slots_per_decode");
  const auto decodes =
      observe.series.sums(observe.series.has("n_decode_total") ? "n_decode_total" : "n_decode");
  if (!observe.span().lifetime && steps > 0 && !slots.empty() && slots.size() == decodes.size()) {
    const double first = slots.front().value * decodes.front().value;
    const double last = slots.back().value * decodes.back().value;
    observe.add(Q::batch, std::max(0., last - first) / steps, trust, "n_busy_slots_per_decode");
  } else if (!slots.empty() && slots.back().value > 0) {
    observe.add(Q::batch, slots.back().value, Trust::lifetime, "n_busy_slots_per_decode");
  }
  observe_speculation(observe, observe.increase("spec_decode_num_drafts").value_or(0),
                      observe.increase("spec_decode_num_draft_tokens").value_or(0),
                      observe.increase("spec_decode_num_accepted_tokens").value_or(0),
                      "spec_decode_num_accepted_tokens_total");
  list_unknown(observe, kLlamacppIgnored);
}

void observe_dynamo(MetricsObserver& observe) {
  observe.file.setup.engine = "dynamo";
  observe.file.kind = "Dynamo frontend metrics";
  size_t models = 0;
  observe.file.setup.model = observe.series.common_label("model", models);
  observe.note(
      "a frontend does not know its engines' batch, steps and KV cache: give the engines' own "
      "/metrics pages");
  observe.gauge(Q::running, {"frontend_inflight_requests"}, GaugeFold::sum);
  observe.gauge(Q::waiting, {"frontend_queued_requests"}, GaugeFold::sum);
  observe.total(Q::requests, {"frontend_requests"});
  observe.rate(Q::requests_per_s, {"frontend_requests"});
  observe.mean(Q::prompt, {"frontend_input_sequence_tokens"});
  observe.mean(Q::output, {"frontend_output_sequence_tokens"});
  observe.rate(Q::tokens_per_s, {"frontend_output_tokens", "frontend_output_sequence_tokens_sum"});
  observe.mean(Q::itl, {"frontend_inter_token_latency_seconds"});
  observe.quantiles(Q::itl_p50, Q::itl_p99, {"frontend_inter_token_latency_seconds"});
  observe.mean(Q::ttft, {"frontend_time_to_first_token_seconds"});
  observe.quantiles(Q::ttft_p50, Q::ttft_p99, {"frontend_time_to_first_token_seconds"});
  observe.mean(Q::e2e, {"frontend_request_duration_seconds"});
}

}  // namespace ridge
