// vLLM v0 and v1, NIM, and Ridge, which has vLLM's names and some of its own.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "diagnose/readers/engine_metrics.h"

namespace ridge {
namespace {

using Q = Quantity;

// Known, and of no use here.
const std::set<std::string_view> kVllmIgnored{
    "lora_requests_info",
    "engine_sleep_state",
    "request_params_n",
    "request_params_max_tokens",
    "request_params_best_of",
    "request_max_num_generation_tokens",
    "request_inference_time_seconds",
    "request_prefill_kv_computed_tokens",
    "request_type_image",
    "request_finish",
    "cpu_cache_usage_perc",
    "cpu_prefix_cache_hit_rate",
    "external_prefix_cache_queries",
    "external_prefix_cache_hits",
    "mm_cache_queries",
    "mm_cache_hits",
    "prompt_tokens_by_source",
    "prompt_tokens_cached",
    "prompt_tokens_recomputed",
    "spec_decode_num_accepted_tokens_per_pos",
    "spec_decode_draft_acceptance_rate",
    "spec_decode_efficiency",
    "kv_block_lifetime_seconds",
    "kv_block_idle_before_evict_seconds",
    "kv_block_reuse_gap_seconds",
    "corrupted_requests",
    "model_forward_time_milliseconds",
    "model_execute_time_milliseconds",
    "model_load_time_seconds",
    "max_token_capacity_per_batch",
    "tokens",
};

// Of a sequence's steps: drafts that are tried so rarely neither cost nor gain.
constexpr double kRarelyDrafts = 0.05;

double label_number(const MetricSample& sample, std::string_view key) {  // 0: none
  const std::string_view text = sample.label(key);
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value > 0 ? value : 0;
}

void observe_cache_config(MetricsObserver& observe) {
  double tokens = 0;
  for (const MetricSample* info : observe.series.all("cache_config_info")) {
    const double stated = label_number(*info, "kv_cache_size_tokens");
    // Blocks times their size is too much for models with several kinds of layers.
    tokens += stated > 0
                  ? stated
                  : label_number(*info, "num_gpu_blocks") * label_number(*info, "block_size");
    const std::string format = kv_cache_format(info->label("cache_dtype"));
    if (!format.empty()) observe.file.setup.kv = format;
    const std::string_view caching = info->label("enable_prefix_caching");
    if (caching == "True" || caching == "true") observe.file.setup.prefix_caching = true;
    if (caching == "False" || caching == "false") observe.file.setup.prefix_caching = false;
    if (label_number(*info, "cpu_offload_gb") > 0) {
      observe.note(fmt::format("{}: cpu_offload_gb is {}: weights stay in host memory",
                               observe.full_name("cache_config_info"),
                               info->label("cpu_offload_gb")));
    }
  }
  if (tokens > 0) observe.add(Q::kv_tokens, tokens, Trust::window, "cache_config_info");
}

void observe_load(MetricsObserver& observe) {
  observe.gauge(Q::running, {"num_requests_running"}, GaugeFold::sum);
  observe.gauge(Q::waiting, {"num_requests_waiting"}, GaugeFold::sum);
  observe.gauge(Q::kv_usage, {"kv_cache_usage_perc", "gpu_cache_usage_perc"}, GaugeFold::mean);
  note_spread(observe, "kv_cache_usage_perc", 0.3);
  observe.gauge(Q::max_running, {"num_request_max"}, GaugeFold::sum);
  observe.total(Q::preemptions, {"num_preemptions"});
  const auto swapped = observe.series.gauge("num_requests_swapped", GaugeFold::sum);
  if (swapped.value_or(0) > 0) {
    observe.note(fmt::format("{:.0f} requests are swapped to host memory", *swapped));
  }
  std::string reasons;
  for (const char* reason : {"capacity", "deferred"}) {
    const auto number =
        observe.series.gauge("num_requests_waiting_by_reason", GaugeFold::sum, {"reason", reason});
    if (number.value_or(0) <= 0) continue;
    reasons += fmt::format("{}{}: {:.3g}", reasons.empty() ? "" : ", ", reason, *number);
  }
  if (!reasons.empty()) observe.note("requests waiting by reason: " + reasons);
}

void observe_rates(MetricsObserver& observe) {
  if (!observe.rate(Q::tokens_per_s, {"generation_tokens"})) {
    observe.gauge(Q::tokens_per_s, {"avg_generation_throughput_toks_per_s"}, GaugeFold::sum);
  }
  if (!observe.rate(Q::prompt_tokens_per_s, {"prompt_tokens"})) {
    observe.gauge(Q::prompt_tokens_per_s, {"avg_prompt_throughput_toks_per_s"}, GaugeFold::sum);
  }
  observe.total(Q::requests, {"request_success", "e2e_request_latency_seconds_count"});
  observe.rate(Q::requests_per_s, {"request_success", "e2e_request_latency_seconds_count"});
  if (!observe.total(Q::failed, {"request_failure"})) {
    observe.total(Q::failed, {"request_success"}, {"finished_reason", "error"});
  }
  const double ended = observe.increase("request_success").value_or(0);
  const double aborted =
      observe.increase("request_success", {"finished_reason", "abort"}).value_or(0);
  if (aborted > 0.1 * ended) {
    observe.note(
        fmt::format("{:.0f} of {:.0f} requests were aborted: clients gave up", aborted, ended));
  }
  observe_estimated_work(observe);
}

void observe_latencies(MetricsObserver& observe) {
  observe.mean(Q::prompt, {"request_prompt_tokens"});
  observe.mean(Q::output, {"request_generation_tokens"});
  observe.mean(Q::itl, {"inter_token_latency_seconds", "time_per_output_token_seconds",
                        "request_time_per_output_token_seconds"});
  observe.quantiles(Q::itl_p50, Q::itl_p99,
                    {"inter_token_latency_seconds", "time_per_output_token_seconds"});
  observe.mean(Q::ttft, {"time_to_first_token_seconds"});
  observe.quantiles(Q::ttft_p50, Q::ttft_p99, {"time_to_first_token_seconds"});
  observe.mean(Q::e2e, {"e2e_request_latency_seconds"});
  observe.mean(Q::queue_time, {"request_queue_time_seconds", "time_in_queue_requests"});
  observe.mean(Q::prefill_time, {"request_prefill_time_seconds"});
  observe.mean(Q::decode_time, {"request_decode_time_seconds"});
}

void observe_steps(MetricsObserver& observe) {
  const auto steps = observe.histogram("iteration_tokens_total");
  if (!steps || steps->count <= 0) return;
  observe.mean(Q::tokens_per_step, {"iteration_tokens_total"});
  // Steps each second give the time of a step only while the engine never idles.
  const bool busy = observe.series.lowest("num_requests_running") >= 1;
  if (observe.span().lifetime || observe.span().seconds <= 0 || !busy) return;
  const double engines =
      double(std::max<size_t>(1, observe.series.count("iteration_tokens_total_count")));
  observe.add(Q::step_time, observe.span().seconds * engines / steps->count, Trust::window,
              "iteration_tokens_total_count");
}

void observe_prefix_cache(MetricsObserver& observe) {
  const bool by_counters =
      observe.ratio(Q::prompt_hit, "prefix_cache_hits", "prefix_cache_queries") ||
      observe.ratio(Q::prompt_hit, "gpu_prefix_cache_hits", "gpu_prefix_cache_queries") ||
      observe.ratio(Q::prompt_hit, "prompt_tokens_cached", "prompt_tokens");
  const auto rate = observe.series.gauge("gpu_prefix_cache_hit_rate", GaugeFold::mean);
  if (!rate) return;
  if (*rate < 0) {  // -1: the cache is off
    observe.file.setup.prefix_caching = false;
  } else if (!by_counters) {
    observe.add(Q::prompt_hit, *rate, Trust::lifetime, "gpu_prefix_cache_hit_rate");
  }
}

void observe_drafts(MetricsObserver& observe) {
  const auto drafted = observe.increase("spec_decode_num_draft_tokens");
  const auto accepted = observe.increase("spec_decode_num_accepted_tokens");
  auto verifications = observe.increase("spec_decode_num_drafts");
  const auto emitted = observe.increase("spec_decode_num_emitted_tokens");
  if (!drafted || !accepted) return;
  // v0 counts no verifications; each emits one token more than it accepts.
  if (!verifications && emitted) verifications = *emitted - *accepted;
  // A step yields a token and the drafts that were accepted: so many steps ran, a sequence each.
  const double steps = observe.increase("generation_tokens").value_or(0) - *accepted;
  if (*drafted > 0 && verifications.value_or(0) < kRarelyDrafts * steps) {
    observe.note(fmt::format("drafts are verified in only {:.1f} % of the steps",
                             100 * verifications.value_or(0) / steps));
    return;
  }
  observe_speculation(observe, verifications.value_or(0), *drafted, *accepted,
                      "spec_decode_num_accepted_tokens_total");
}

void observe_vllm_names(MetricsObserver& observe) {
  observe_model_name(observe);
  observe_cache_config(observe);
  observe_load(observe);
  observe_rates(observe);
  observe_latencies(observe);
  observe_steps(observe);
  observe_prefix_cache(observe);
  observe_drafts(observe);
  for (const std::string& name : observe.series.unasked(kVllmIgnored)) {
    observe.file.unknown.push_back(observe.full_name(name));
  }
}

}  // namespace

void observe_vllm(MetricsObserver& observe) {
  const MetricSeries& series = observe.series;
  const bool v1 = series.has("kv_cache_usage_perc") || series.has("prefix_cache_queries_total") ||
                  series.has("gpu_prefix_cache_queries_total") ||
                  series.has("inter_token_latency_seconds_count");
  const bool ray = observe.full_name("").starts_with("ray_");
  observe.file.setup.engine = "vllm";
  observe.file.kind =
      fmt::format("vLLM metrics ({}{})", v1 ? "v1" : "v0", ray ? ", through Ray" : "");
  observe_engines(observe, "engine");
  observe_vllm_names(observe);
}

void observe_nim(MetricsObserver& observe) {
  observe.file.setup.engine = "nim";
  observe.file.kind = "NIM metrics";
  observe_vllm_names(observe);
}

namespace {

void observe_engine_info(MetricsObserver& observe) {
  const MetricSample* info = observe.series.first("engine_info");
  if (!info) return;
  RunSetup& setup = observe.file.setup;
  if (!info->label("model").empty()) setup.model = info->label("model");
  setup.device = info->label("device");
  setup.weights = info->label("weights");
}

// What prompts add to the steps: all of a step without decodes; of mixed ones, what they take
// longer than steps that only decode.
void observe_prefill_share(MetricsObserver& observe) {
  const auto seconds = [&](const char* phase) {
    return observe.histogram("step_measured_seconds", {"phase", phase}).value_or(MetricHistogram());
  };
  const MetricHistogram prefill = seconds("prefill"), decode = seconds("decode"),
                        mixed = seconds("mixed");
  const double all = prefill.sum + decode.sum + mixed.sum;
  if (all <= 0) return;
  const double step = decode.count > 0 ? decode.sum / decode.count : 0;
  const double added = prefill.sum + std::max(0., mixed.sum - mixed.count * step);
  observe.add(Q::prefill_share, added / all, observe.span().counters(),
              "step_measured_seconds_sum{phase}");
}

}  // namespace

void observe_ridge_steps(MetricsObserver& observe) {
  observe.file.setup.engine = "ridge";
  observe.file.kind = "Ridge metrics";
  std::erase_if(observe.file.observed, [](const Observed& o) {
    return o.quantity == Quantity::step_time;  // Ridge times its steps: idle time is not in them
  });
  observe.mean(Q::step_time, {"step_measured_seconds"});
  observe.mean(Q::decode_step, {"step_measured_seconds"}, {"phase", "decode"});
  observe.mean(Q::batch, {"step_sequences"});
  observe_engine_info(observe);
  observe_prefill_share(observe);
  if (observe.series.gauge("max_sequences", GaugeFold::sum).value_or(0) > 0) {
    observe.gauge(Q::max_running, {"max_sequences"}, GaugeFold::sum);
  }
  const auto steps = observe.histogram("step_measured_seconds");
  const double seconds = observe.span().seconds;
  if (steps && seconds > 0 && steps->sum <= seconds * 1.05) {
    observe.add(Q::engine_busy, std::min(1., steps->sum / seconds), observe.span().counters(),
                "step_measured_seconds_sum");
  }
  const auto gaps = observe.histogram("host_gap_seconds");
  if (gaps && steps && gaps->sum > 0.1 * steps->sum) {
    observe.note(fmt::format("the device had no work for {:.0f} % of the steps' time",
                             100 * gaps->sum / steps->sum));
  }
  const std::set<std::string_view> ignored{"step_predicted_seconds",
                                           "step_roof_seconds",
                                           "step_share_of_roof",
                                           "steps",
                                           "pages",
                                           "engine_up"};
  for (const std::string& name : observe.series.unasked(ignored)) {
    observe.file.unknown.push_back(observe.full_name(name));
  }
}

}  // namespace ridge
