#include "serving/metrics.h"

#include <fmt/format.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <string_view>

namespace ridge {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Histogram;
using prometheus::Labels;
using Buckets = Histogram::BucketBoundaries;

// vLLM's buckets.
const Buckets kFirstTokenSeconds{.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                 1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
// vLLM's begin at 10 ms. The others are Ridge's: steps of 3 ms would share a bucket with stalls of
// 10 ms, and neither the median nor the 99th percentile could be told.
const Buckets kTokenSeconds{.0001, .0002, .0005, .001, .002, .003, .004, .005, .0075, .01, .015,
                            .02,   .025,  .035,  .05,  .075, .1,   .15,  .2,   .3,    .4,  .5,
                            .75,   1,     2.5,   5,    7.5,  10,   20,   40,   80};
const Buckets kRequestSeconds{.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                              30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const Buckets kIterationTokens{1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
const Buckets kChoices{1, 2, 5, 10, 20};

// Ridge's own.
const Buckets kStepSeconds{.0001, .0002, .0005, .001, .002, .003, .004, .005, .0075, .01, .015, .02,
                           .03,   .05,   .075,  .1,   .15,  .2,   .3,   .5,   .75,   1,   2,    5};
const Buckets kGapSeconds{5e-6, 1e-5, 2e-5, 3e-5, 5e-5, 1e-4, 2e-4, 5e-4, .001, .002, .005, .01};
const Buckets kShares{.1, .2, .3, .4, .5, .6, .7, .75, .8, .85, .9, .95, 1};
const Buckets kSequences{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024};

// 1 2 5 10 20 50 ..., at most `last`.
Buckets token_counts(int last) {
  Buckets buckets;
  for (double decade = 1; decade <= last; decade *= 10) {
    for (const double mantissa : {1., 2., 5.}) {
      if (mantissa * decade <= last) buckets.push_back(mantissa * decade);
    }
  }
  return buckets;
}

enum Phase { kPrefill, kDecode, kMixed, kPhases };
constexpr std::array<std::string_view, kPhases> kPhaseNames{"prefill", "decode", "mixed"};

Phase phase_of(const StepReport& report) {
  if (report.prefill_tokens == 0) return kDecode;
  return report.decode_sequences == 0 ? kPrefill : kMixed;
}

enum Finish { kStop, kLength, kAbort, kError, kFinishes };
constexpr std::array<std::string_view, kFinishes> kFinishNames{"stop", "length", "abort", "error"};

Finish finish_of(EndReason end) {
  switch (end) {
    case EndReason::end_token:
    case EndReason::stop_string:
      return kStop;
    case EndReason::length:
    case EndReason::context:
      return kLength;
    case EndReason::cancelled:
      return kAbort;
    case EndReason::failed:
      break;
  }
  return kError;
}

// Adds metrics to the registry, each with the labels model_name and engine. Engines that share a
// registry share its families: a page may name each only once.
struct Metrics {
  prometheus::Registry& registry;
  Labels common;

  Labels with_common(Labels labels) const {
    labels.insert(common.begin(), common.end());
    return labels;
  }

  Counter& counter(const char* name, const char* help, const Labels& labels = {}) {
    return counters(name, help).Add(with_common(labels));
  }
  Family<Counter>& counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  Gauge& gauge(const char* name, const char* help, const Labels& labels = {}) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry).Add(
        with_common(labels));
  }
  Histogram& histogram(const char* name, const char* help, const Buckets& buckets,
                       const Labels& labels = {}) {
    return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(
        with_common(labels), buckets);
  }
  // One member for each value of a label.
  template <size_t N>
  std::array<Counter*, N> counters_by(const char* name, const char* help, const char* label,
                                      const std::array<std::string_view, N>& values) {
    std::array<Counter*, N> members{};
    for (size_t i = 0; i < N; ++i)
      members[i] = &counter(name, help, {{label, std::string(values[i])}});
    return members;
  }
  template <size_t N>
  std::array<Histogram*, N> histograms_by(const char* name, const char* help,
                                          const Buckets& buckets, const char* label,
                                          const std::array<std::string_view, N>& values) {
    std::array<Histogram*, N> members{};
    for (size_t i = 0; i < N; ++i) {
      members[i] = &histogram(name, help, buckets, {{label, std::string(values[i])}});
    }
    return members;
  }
};

std::array<std::string_view, kWallCount> wall_names() {
  std::array<std::string_view, kWallCount> names{};
  for (size_t w = 0; w < names.size(); ++w) names[w] = wall_name(Wall(w));
  return names;
}

}  // namespace

struct ServingMetrics::Impl {
  Impl(const MetricsOptions& options, std::shared_ptr<prometheus::Registry> shared);

  const MetricsOptions options;
  const std::shared_ptr<prometheus::Registry> registry;
  Metrics make{*registry,
               {{"model_name", options.model_name}, {"engine", std::to_string(options.engine)}}};
  const Buckets tokens = token_counts(options.max_context);

  // State.
  Gauge& running = make.gauge("vllm:num_requests_running", "Requests that are being executed.");
  Gauge& waiting = make.gauge("vllm:num_requests_waiting", "Requests in the queue.");
  Gauge& cache_usage = make.gauge("vllm:kv_cache_usage_perc",
                                  "Share of the KV pages that running requests hold, from 0 to 1.");
  Gauge& pages_free = make.gauge("ridge:pages", "KV pages by state.", {{"state", "free"}});
  Gauge& pages_cached = make.gauge("ridge:pages", "KV pages by state.", {{"state", "cached"}});
  Gauge& pages_held = make.gauge("ridge:pages", "KV pages by state.", {{"state", "held"}});

  Gauge& up = make.gauge("ridge:engine_up", "1 while the engine serves, 0 once it has failed.");

  // Tokens.
  Counter& prompt_tokens =
      make.counter("vllm:prompt_tokens_total", "Prompt tokens of finished requests.");
  Counter& prompt_tokens_cached = make.counter("vllm:prompt_tokens_cached_total",
                                               "Of these, tokens found in the prefix cache.");
  Counter& generation_tokens = make.counter("vllm:generation_tokens_total", "Generated tokens.");
  Counter& prefix_queries = make.counter("vllm:prefix_cache_queries_total",
                                         "Tokens that were looked up in the prefix cache.");
  Counter& prefix_hits =
      make.counter("vllm:prefix_cache_hits_total", "Tokens that were found in the prefix cache.");
  Counter& preemptions = make.counter("vllm:num_preemptions_total",
                                      "Preemptions of running requests for want of KV pages.");
  Counter& drafts = make.counter("vllm:spec_decode_num_drafts_total",
                                 "Runs of drafted tokens that were verified.");
  Counter& draft_tokens =
      make.counter("vllm:spec_decode_num_draft_tokens_total", "Drafted tokens.");
  Counter& accepted_tokens = make.counter("vllm:spec_decode_num_accepted_tokens_total",
                                          "Drafted tokens that were accepted.");
  Family<Counter>& accepted_by_position =
      make.counters("vllm:spec_decode_num_accepted_tokens_per_pos_total",
                    "Accepted drafts of finished requests, by position in the draft.");
  Histogram& iteration_tokens = make.histogram(
      "vllm:iteration_tokens_total", "Prompt and generated tokens of a step.", kIterationTokens);

  // Latency.
  Histogram& first_token = make.histogram("vllm:time_to_first_token_seconds",
                                          "From arrival to the first token.", kFirstTokenSeconds);
  Histogram& inter_token = make.histogram("vllm:inter_token_latency_seconds",
                                          "Between two tokens of a request.", kTokenSeconds);

  // Finished requests.
  std::array<Counter*, kFinishes> finished =
      make.counters_by("vllm:request_success_total", "Finished requests, by reason.",
                       "finished_reason", kFinishNames);
  Histogram& per_token =
      make.histogram("vllm:request_time_per_output_token_seconds",
                     "Mean time per token after the first, of a request.", kTokenSeconds);
  Histogram& end_to_end = make.histogram("vllm:e2e_request_latency_seconds",
                                         "From arrival to the last token.", kRequestSeconds);
  Histogram& queue_time = make.histogram("vllm:request_queue_time_seconds",
                                         "From arrival to the first step.", kRequestSeconds);
  Histogram& prefill_time =
      make.histogram("vllm:request_prefill_time_seconds", "From the first step to the first token.",
                     kRequestSeconds);
  Histogram& decode_time = make.histogram("vllm:request_decode_time_seconds",
                                          "From the first token to the last.", kRequestSeconds);
  Histogram& inference_time =
      make.histogram("vllm:request_inference_time_seconds",
                     "From the first step to the last token.", kRequestSeconds);
  Histogram& request_prompt =
      make.histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", tokens);
  Histogram& request_generation =
      make.histogram("vllm:request_generation_tokens", "Generated tokens of a request.", tokens);
  Histogram& request_max_tokens =
      make.histogram("vllm:request_params_max_tokens", "max_tokens of a request.", tokens);
  Histogram& request_longest =
      make.histogram("vllm:request_max_num_generation_tokens",
                     "Generated tokens of a request's longest choice.", tokens);
  Histogram& request_n = make.histogram("vllm:request_params_n", "n of a request.", kChoices);

  // Steps, by phase: prompts only, generation only, or both.
  std::array<Histogram*, kPhases> measured = make.histograms_by(
      "ridge:step_measured_seconds", "Time of a step.", kStepSeconds, "phase", kPhaseNames);
  std::array<Histogram*, kPhases> predicted =
      make.histograms_by("ridge:step_predicted_seconds", "Predicted time of a step.", kStepSeconds,
                         "phase", kPhaseNames);
  std::array<Counter*, kPhases> roof =
      make.counters_by("ridge:step_roof_seconds_total",
                       "Time that the steps would take at the roof.", "phase", kPhaseNames);
  std::array<Histogram*, kPhases> share = make.histograms_by(
      "ridge:step_share_of_roof", "Time at the roof over measured time of a step.", kShares,
      "phase", kPhaseNames);
  std::array<Counter*, kWallCount> walls = make.counters_by(
      "ridge:steps_total", "Steps, by the wall that bounds them.", "wall", wall_names());
  Histogram& host_gap = make.histogram(
      "ridge:host_gap_seconds", "Time between steps in which the device had no work.", kGapSeconds);
  Histogram& sequences = make.histogram("ridge:step_sequences", "Sequences of a step.", kSequences);
};

ServingMetrics::Impl::Impl(const MetricsOptions& o, std::shared_ptr<prometheus::Registry> shared)
    : options(o), registry(std::move(shared)) {
  const double pool_tokens = double(o.pages) * o.page_tokens;
  make.gauge("vllm:cache_config_info", "The KV cache.",
             {{"block_size", std::to_string(o.page_tokens)},
              {"num_gpu_blocks", std::to_string(o.pages)},
              {"kv_cache_size_tokens", fmt::format("{:.0f}", pool_tokens)},
              {"cache_dtype", o.kv.empty() ? "auto" : o.kv},
              {"enable_prefix_caching", o.prefix_cache ? "True" : "False"},
              {"kv_cache_max_concurrency",
               fmt::format("{:.2f}", pool_tokens / std::max(1, o.max_context))}})
      .Set(1);
  make.gauge("ridge:engine_info", "The model and where it runs.",
             {{"model", o.model}, {"device", o.device}, {"weights", o.weights}})
      .Set(1);
  make.gauge("ridge:max_sequences", "Requests that may run at once.").Set(o.max_sequences);
  pages_free.Set(o.pages);
  up.Set(1);
}

ServingMetrics::ServingMetrics(const MetricsOptions& options, const ServingMetrics* beside)
    : impl_(std::make_unique<Impl>(
          options, beside ? beside->impl_->registry : std::make_shared<prometheus::Registry>())) {}
ServingMetrics::~ServingMetrics() = default;

void ServingMetrics::on_step(const StepReport& report) {
  Impl& m = *impl_;
  m.running.Set(report.running);
  m.waiting.Set(report.waiting);
  m.pages_free.Set(report.pages_free);
  m.pages_cached.Set(report.pages_cached);
  m.pages_held.Set(report.pages_held);
  const int pool = report.pages_free + report.pages_cached + report.pages_held;
  m.cache_usage.Set(pool == 0 ? 0 : double(report.pages_held) / pool);
  if (report.measured_s <= 0) return;

  m.generation_tokens.Increment(report.generated_tokens);
  m.iteration_tokens.Observe(report.prefill_tokens + report.generated_tokens);
  if (report.preempted > 0) m.preemptions.Increment(report.preempted);
  if (report.draft_tokens > 0) {
    m.drafts.Increment(report.drafted_sequences);
    m.draft_tokens.Increment(report.draft_tokens);
    m.accepted_tokens.Increment(report.accepted_tokens);
  }
  const Phase phase = phase_of(report);
  m.measured[phase]->Observe(report.measured_s);
  m.sequences.Observe(report.prefill_sequences + report.decode_sequences);
  m.host_gap.Observe(report.host_gap_s);
  if (report.predicted_s > 0) m.predicted[phase]->Observe(report.predicted_s);
  if (report.roof_s > 0) {
    m.roof[phase]->Increment(report.roof_s);
    m.share[phase]->Observe(report.roof_s / report.measured_s);
    m.walls[size_t(report.wall)]->Increment();
  }
}

void ServingMetrics::on_tokens(int tokens, double seconds) {
  for (int i = 0; i < tokens; ++i) impl_->inter_token.Observe(seconds / tokens);
}

void ServingMetrics::on_first_token(double seconds) { impl_->first_token.Observe(seconds); }

void ServingMetrics::on_prefix_lookup(int prompt_tokens, int cached_tokens) {
  impl_->prefix_queries.Increment(prompt_tokens);
  impl_->prefix_hits.Increment(cached_tokens);
}

void ServingMetrics::on_finished(const RequestReport& report) {
  Impl& m = *impl_;
  m.finished[finish_of(report.end)]->Increment();
  if (report.first_token_s <= 0) return;  // it ended in the queue or in its prompt
  m.prompt_tokens.Increment(report.prompt_tokens);
  m.prompt_tokens_cached.Increment(report.cached_tokens);
  m.request_prompt.Observe(report.prompt_tokens);
  m.request_generation.Observe(report.generated_tokens);
  m.request_max_tokens.Observe(report.max_tokens);
  m.queue_time.Observe(report.scheduled_s);
  m.prefill_time.Observe(report.first_token_s - report.scheduled_s);
  m.decode_time.Observe(report.end_s - report.first_token_s);
  m.inference_time.Observe(report.end_s - report.scheduled_s);
  m.end_to_end.Observe(report.end_s);
  if (report.generated_tokens > 1) {
    m.per_token.Observe((report.end_s - report.first_token_s) / (report.generated_tokens - 1));
  }
  for (size_t i = 0; i < report.accepted_at.size(); ++i) {
    m.accepted_by_position.Add(m.make.with_common({{"position", std::to_string(i)}}))
        .Increment(report.accepted_at[i]);
  }
}

void ServingMetrics::on_api_finished(int n, int max_generated_tokens) {
  impl_->request_n.Observe(n);
  impl_->request_longest.Observe(max_generated_tokens);
}

void ServingMetrics::on_engine_failed() {
  for (Gauge* gauge : {&impl_->up, &impl_->running, &impl_->waiting}) gauge->Set(0);
}

std::string ServingMetrics::text() const {
  return prometheus::TextSerializer().Serialize(impl_->registry->Collect());
}

}  // namespace ridge
