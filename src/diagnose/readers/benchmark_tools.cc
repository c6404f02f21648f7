// Results of genai-perf, AIPerf, GuideLLM and inference-perf: a structure for each metric.
#include <fmt/format.h>

#include <algorithm>

#include "diagnose/readers/client_run.h"
#include "diagnose/readers/json_records.h"

namespace ridge {
namespace {

using nlohmann::json;
using Q = Quantity;

// Seconds in a unit of time; 1 for rates and counts.
double aiperf_unit_scale(std::string_view unit) {
  if (unit == "ms" || unit == "milliseconds") return 1e-3;
  if (unit == "us" || unit == "microseconds") return 1e-6;
  if (unit == "ns" || unit == "nanoseconds") return 1e-9;
  return 1;
}

struct MetricQuantities {
  const char* metric;
  Quantity mean;
  std::optional<Quantity> p50{}, p99{};
};

constexpr MetricQuantities kAiperfMetrics[] = {
    {"time_to_first_token", Q::ttft, Q::ttft_p50, Q::ttft_p99},
    {"inter_token_latency", Q::itl, Q::itl_p50, Q::itl_p99},
    {"request_latency", Q::e2e},
    {"output_token_throughput", Q::tokens_per_s},
    {"request_throughput", Q::requests_per_s},
    {"input_sequence_length", Q::prompt},
    {"output_sequence_length", Q::output},
    {"output_token_count", Q::output},
    {"request_count", Q::requests},
    {"error_request_count", Q::failed},
};

// The load as the tool was told: {"concurrency": 16}, wherever it stands in the configuration.
void read_load_options(const json& config, ClientRun& run) {
  for (const auto& path : {std::initializer_list<std::string_view>{"loadgen"},
                           {"perf_analyzer", "stimulus"},
                           {"load_generator"},
                           {"load"}}) {
    const json* load = json_at(config, path);
    if (load == nullptr) continue;
    if (!run.max_concurrency) run.max_concurrency = json_number(*load, "concurrency");
    run.set(Q::arrivals_per_s, json_number(*load, "request_rate"), "request_rate");
  }
}

// The first name in "model_names": a list or a word.
std::string model_of_config(const json& config) {
  for (const auto& path :
       {std::initializer_list<std::string_view>{"model_names"}, {"endpoint", "model_names"}}) {
    const json* names = json_at(config, path);
    if (names == nullptr) continue;
    const json& first = names->is_array() && !names->empty() ? names->front() : *names;
    if (first.is_string()) return first.get<std::string>();
  }
  return {};
}

// GuideLLM splits a metric by how the requests ended; older files do not.
const json* guidellm_metric(const json& metrics, std::string_view name) {
  for (const auto& path :
       {std::initializer_list<std::string_view>{name, "successful"}, {name, "completed"}, {name}}) {
    const json* metric = json_at(metrics, path);
    if (metric != nullptr && metric->is_object() && metric->contains("mean")) return metric;
  }
  return nullptr;
}

constexpr MetricQuantities kGuidellmMetrics[] = {
    {"time_to_first_token_ms", Q::ttft, Q::ttft_p50, Q::ttft_p99},
    {"inter_token_latency_ms", Q::itl, Q::itl_p50, Q::itl_p99},
    {"request_latency", Q::e2e},
    {"output_tokens_per_second", Q::tokens_per_s},
    {"prompt_tokens_per_second", Q::prompt_tokens_per_s},
    {"requests_per_second", Q::requests_per_s},
    {"request_concurrency", Q::concurrency},
    {"prompt_token_count", Q::prompt},
    {"output_token_count", Q::output},
};

ClientRun guidellm_run(const json& report, const json& benchmark, const json& metrics) {
  ClientRun run;
  run.kind = "GuideLLM result";
  run.duration_s = json_number(benchmark, "duration");
  for (const MetricQuantities& m : kGuidellmMetrics) {
    const json* metric = guidellm_metric(metrics, m.metric);
    if (metric == nullptr) continue;
    const double scale = std::string_view(m.metric).ends_with("_ms") ? 1e-3 : 1;
    run.set(m.mean, json_number(*metric, "mean"), m.metric, scale);
    if (m.p50) run.set(*m.p50, json_number(*metric, "median"), m.metric, scale);
    if (m.p99) run.set(*m.p99, json_number_at(*metric, {"percentiles", "p99"}), m.metric, scale);
  }
  const json* benchmark_totals = json_at(benchmark, {"request_totals"});
  for (const json* totals : {json_at(metrics, {"request_totals"}), benchmark_totals,
                             json_at(benchmark, {"run_stats", "requests_made"})}) {
    if (totals == nullptr) continue;
    run.set(Q::requests, json_number(*totals, "successful"), "request_totals.successful");
    run.set(Q::failed, json_number(*totals, "errored"), "request_totals.errored");
  }
  for (const auto& path : {std::initializer_list<std::string_view>{"config", "strategy", "rate"},
                           {"args", "strategy", "rate"}}) {
    run.set(Q::arrivals_per_s, json_number_at(benchmark, path), "strategy.rate");
  }
  for (const json* place : {json_at(report, {"args"}), json_at(benchmark, {"config", "backend"}),
                            json_at(benchmark, {"worker"}), json_at(benchmark, {"backend"})}) {
    for (const char* key : {"model", "backend_model"}) {
      if (place != nullptr && run.setup.model.empty()) run.setup.model = json_text(*place, key);
    }
  }
  return run;
}

}  // namespace

bool read_aiperf_result(const json& object, std::vector<ClientRun>& runs) {
  if (!object.is_object()) return false;
  const json* nested = json_at(object, {"records"});
  const json& metrics = nested != nullptr && nested->is_object() ? *nested : object;
  const auto stats = [&](std::string_view name) {
    const json* metric = json_at(metrics, {name});
    return metric != nullptr && metric->is_object() && metric->contains("unit") ? metric : nullptr;
  };
  if (!stats("request_latency") && !stats("request_throughput") && !stats("time_to_first_token")) {
    return false;
  }
  ClientRun run;
  run.kind = "genai-perf or AIPerf result";
  for (const MetricQuantities& m : kAiperfMetrics) {
    const json* metric = stats(m.metric);
    if (metric == nullptr) continue;
    const double scale = aiperf_unit_scale(json_text(*metric, "unit"));
    run.set(m.mean, json_number(*metric, "avg"), m.metric, scale);
    if (m.p50) run.set(*m.p50, json_number(*metric, "p50"), m.metric, scale);
    if (m.p99) run.set(*m.p99, json_number(*metric, "p99"), m.metric, scale);
  }
  if (const json* duration = stats("benchmark_duration")) {
    const auto value = json_number(*duration, "avg");
    if (value) run.duration_s = *value * aiperf_unit_scale(json_text(*duration, "unit"));
  }
  if (const json* errors = json_at(object, {"error_summary"}); errors && errors->is_array()) {
    double failed = 0;
    for (const json& error : *errors) failed += json_number(error, "count").value_or(0);
    if (failed > 0) run.set(Q::failed, failed, "error_summary");
  }
  if (const json* config = json_at(object, {"input_config"})) {
    read_load_options(*config, run);
    run.setup.model = model_of_config(*config);
  }
  runs.push_back(std::move(run));
  return true;
}

bool read_guidellm_result(const json& object, std::vector<ClientRun>& runs) {
  const json* benchmarks = json_at(object, {"benchmarks"});
  if (benchmarks == nullptr || !benchmarks->is_array()) return false;
  const size_t before = runs.size();
  for (const json& benchmark : *benchmarks) {
    const json* metrics = json_at(benchmark, {"metrics"});
    const json& of = metrics != nullptr && metrics->is_object() ? *metrics : benchmark;
    if (guidellm_metric(of, "request_latency") == nullptr &&
        guidellm_metric(of, "time_to_first_token_ms") == nullptr &&
        guidellm_metric(of, "output_tokens_per_second") == nullptr) {
      continue;
    }
    runs.push_back(guidellm_run(object, benchmark, of));
  }
  return runs.size() > before;
}

bool read_inference_perf_result(const json& object, std::vector<ClientRun>& runs) {
  const json* done = json_at(object, {"successes"});
  const json* latency = done == nullptr ? nullptr : json_at(*done, {"latency"});
  if (latency == nullptr || !latency->is_object()) return false;
  ClientRun run;
  run.kind = "inference-perf report";
  const auto times = [&](std::string_view name, Quantity mean, std::optional<Quantity> p50,
                         std::optional<Quantity> p99) {
    run.set(mean, json_number_at(*latency, {name, "mean"}), name);
    if (p50) run.set(*p50, json_number_at(*latency, {name, "median"}), name);
    if (p99) run.set(*p99, json_number_at(*latency, {name, "p99"}), name);
  };
  times("time_to_first_token", Q::ttft, Q::ttft_p50, Q::ttft_p99);
  times("inter_token_latency", Q::itl, Q::itl_p50, Q::itl_p99);
  times("request_latency", Q::e2e, std::nullopt, std::nullopt);
  run.time_per_token_s = json_number_at(*latency, {"time_per_output_token", "mean"});
  const auto rate = [&](const char* name, Quantity q) {
    run.set(q, json_number_at(*done, {"throughput", name}), name);
  };
  rate("output_tokens_per_sec", Q::tokens_per_s);
  rate("input_tokens_per_sec", Q::prompt_tokens_per_s);
  rate("requests_per_sec", Q::requests_per_s);
  for (const char* name : {"prompt_len", "prompt_tokens"}) {
    run.set(Q::prompt, json_number_at(*done, {name, "mean"}), name);
  }
  for (const char* name : {"output_len", "output_tokens"}) {
    run.set(Q::output, json_number_at(*done, {name, "mean"}), name);
  }
  run.set(Q::requests, json_number(*done, "count"), "successes.count");
  run.set(Q::failed, json_number_at(object, {"failures", "count"}), "failures.count");
  run.max_concurrency = json_number_at(object, {"load_summary", "concurrency"});
  run.set(Q::arrivals_per_s, json_number_at(object, {"load_summary", "requested_rate"}),
          "load_summary.requested_rate");
  runs.push_back(std::move(run));
  return true;
}

}  // namespace ridge
