// Results with all names at the outermost level: vLLM's and SGLang's benchmarks and `ridge load`.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "diagnose/readers/client_run.h"
#include "diagnose/readers/engine_arguments.h"
#include "diagnose/readers/json_records.h"

namespace ridge {
namespace {

using nlohmann::json;
using Q = Quantity;

struct FlatName {
  const char* name;
  Quantity quantity;
  double scale;
};

// The first name that has a value counts.
constexpr FlatName kFlatNames[] = {
    {"output_throughput", Q::tokens_per_s, 1},
    {"input_throughput", Q::prompt_tokens_per_s, 1},
    {"request_throughput", Q::requests_per_s, 1},
    {"requests_per_second", Q::requests_per_s, 1},
    {"request_rate", Q::arrivals_per_s, 1},
    {"concurrency", Q::concurrency, 1},
    {"completed", Q::requests, 1},
    {"successful_requests", Q::requests, 1},
    {"num_requests", Q::requests, 1},
    {"failed", Q::failed, 1},
    {"mean_ttft_ms", Q::ttft, 1e-3},
    {"median_ttft_ms", Q::ttft_p50, 1e-3},
    {"p50_ttft_ms", Q::ttft_p50, 1e-3},
    {"p99_ttft_ms", Q::ttft_p99, 1e-3},
    {"mean_itl_ms", Q::itl, 1e-3},
    {"median_itl_ms", Q::itl_p50, 1e-3},
    {"p50_itl_ms", Q::itl_p50, 1e-3},
    {"p99_itl_ms", Q::itl_p99, 1e-3},
    {"mean_e2el_ms", Q::e2e, 1e-3},
    {"mean_e2e_latency_ms", Q::e2e, 1e-3},
    {"avg_latency", Q::e2e, 1},
    {"output_tokens_per_second", Q::tokens_per_s, 1},
};

bool is_flat_result(const json& object) {
  int known = 0;
  for (const char* name : {"output_throughput", "request_throughput", "mean_ttft_ms", "mean_itl_ms",
                           "mean_e2el_ms", "mean_e2e_latency_ms", "mean_tpot_ms"}) {
    known += object.contains(name) ? 1 : 0;
  }
  return known > 0;
}

// Mean of the entries of a list of numbers; failed requests have 0 there.
std::optional<double> mean_of_list(const json& object, std::string_view key) {
  const json* list = json_at(object, {key});
  if (list == nullptr || !list->is_array()) return std::nullopt;
  double sum = 0, count = 0;
  for (const json& value : *list) {
    if (!value.is_number() || !(value.get<double>() > 0)) continue;
    sum += value.get<double>();
    ++count;
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

// With --save-detailed: the time of a request is its TTFT and the gaps after it.
void read_request_lists(const json& object, ClientRun& run) {
  run.set(Q::prompt, mean_of_list(object, "input_lens"), "input_lens");
  run.set(Q::output, mean_of_list(object, "output_lens"), "output_lens");
  run.set(Q::ttft, mean_of_list(object, "ttfts"), "ttfts");
  const json *ttfts = json_at(object, {"ttfts"}), *itls = json_at(object, {"itls"});
  if (ttfts == nullptr || itls == nullptr || !ttfts->is_array() || !itls->is_array()) return;
  double total = 0, count = 0;
  for (size_t i = 0; i < std::min(ttfts->size(), itls->size()); ++i) {
    const json &first = (*ttfts)[i], &gaps = (*itls)[i];
    if (!first.is_number() || !(first.get<double>() > 0) || !gaps.is_array()) continue;
    total += first.get<double>();
    for (const json& gap : gaps) total += gap.is_number() ? std::max(gap.get<double>(), 0.) : 0;
    ++count;
  }
  if (count > 0) run.set(Q::e2e, total / count, "ttfts + itls");
}

void read_speculation(const json& object, ClientRun& run) {
  const auto drafts = json_number(object, "spec_decode_num_drafts");
  if (drafts && *drafts > 0) {
    if (const auto tokens = json_number(object, "spec_decode_draft_tokens")) {
      run.set(Q::drafted, *tokens / *drafts, "spec_decode_draft_tokens / _num_drafts");
    }
    if (const auto tokens = json_number(object, "spec_decode_accepted_tokens")) {
      run.set(Q::accepted, *tokens / *drafts, "spec_decode_accepted_tokens / _num_drafts");
    }
  }
  // The length of a verified run counts the token that the model itself adds.
  for (const char* key : {"spec_decode_acceptance_length", "accept_length"}) {
    const auto length = json_number(object, key);
    if (length && *length > 1) run.set(Q::accepted, *length - 1, fmt::format("{} - 1", key));
  }
}

// What SGLang's server told the client about itself.
void read_server_info(const json& object, ClientRun& run) {
  const json* info = json_at(object, {"server_info"});
  if (info == nullptr || !info->is_object()) return;
  EngineArguments arguments;
  const auto collect = [&](const json& fields) {
    for (const auto& [key, value] : fields.items()) {
      if (value.is_string()) arguments.emplace(key, value.get<std::string>());
      if (value.is_number() || value.is_boolean()) arguments.emplace(key, value.dump());
    }
  };
  collect(*info);
  if (const json* more = json_at(*info, {"server_args"}); more && more->is_object()) collect(*more);
  apply_engine_arguments(arguments, run.setup,
                         [&](Quantity q, double value, std::string_view origin) {
                           run.set(q, value, fmt::format("server_info: {}", origin));
                         });
}

// What the endpoint's own metrics said during `ridge load`.
void read_ridge_fields(const json& object, ClientRun& run) {
  const json* ridge = json_at(object, {"ridge"});
  if (ridge == nullptr || !ridge->is_object()) return;
  run.kind = "ridge load result";
  const auto cached = json_number(*ridge, "cached_input_tokens");
  if (cached && *cached > 0 && run.prompt_tokens && *run.prompt_tokens >= *cached) {
    run.set(Q::prompt_hit, *cached / *run.prompt_tokens, "ridge.cached_input_tokens");
  }
  const json* server = json_at(*ridge, {"server"});
  if (server == nullptr || !server->is_object()) return;
  run.setup.engine = "ridge";
  run.set(Q::preemptions, json_number(*server, "preemptions"), "ridge.server.preemptions");
  const json* steps = json_at(*server, {"steps"});
  if (steps == nullptr || !steps->is_array()) return;
  for (const json& step : *steps) {
    if (json_text(step, "phase") == "decode") {
      run.set(Q::decode_step, json_number(step, "measured_ms"), "ridge.server.steps (decode)",
              1e-3);
    }
  }
}

// SGLang's bench_one_batch: one batch, prefill and decode timed apart, seconds.
bool read_one_batch(const json& object, std::vector<ClientRun>& runs) {
  const auto batch = json_number(object, "batch_size");
  const auto decode = json_number(object, "median_decode_latency");
  if (!batch || !decode) return false;
  ClientRun run;
  run.kind = "SGLang bench_one_batch result";
  run.setup.engine = "sglang";
  run.set(Q::batch, batch, "batch_size");
  run.set(Q::prompt, json_number(object, "input_len"), "input_len");
  run.set(Q::output, json_number(object, "output_len"), "output_len");
  run.set(Q::itl, decode, "median_decode_latency");
  run.set(Q::decode_step, decode, "median_decode_latency");
  run.set(Q::tokens_per_s, json_number(object, "median_decode_throughput"),
          "median_decode_throughput");
  run.set(Q::prefill_time, json_number(object, "prefill_latency"), "prefill_latency");
  run.set(Q::prompt_tokens_per_s, json_number(object, "prefill_throughput"), "prefill_throughput");
  runs.push_back(std::move(run));
  return true;
}

// `vllm bench latency` and `vllm bench throughput`: no server and no lengths.
bool read_offline(const json& object, std::vector<ClientRun>& runs) {
  ClientRun run;
  if (object.contains("avg_latency") && object.contains("latencies")) {
    run.kind = "vllm bench latency result";
    run.notes.push_back(
        "avg_latency is the time of a whole batch; its size and the lengths are not in the file");
  } else if (object.contains("elapsed_time") && object.contains("total_num_tokens")) {
    run.kind = "vllm bench throughput result";
    run.duration_s = json_number(object, "elapsed_time");
    if (!object.contains("output_tokens_per_second")) {
      run.notes.push_back(
          "tokens_per_second counts prompt and output tokens together and is left out");
    }
  } else {
    return false;
  }
  run.setup.engine = "vllm";
  for (const FlatName& f : kFlatNames)
    run.set(f.quantity, json_number(object, f.name), f.name, f.scale);
  runs.push_back(std::move(run));
  return true;
}

}  // namespace

bool read_flat_result(const json& object, std::vector<ClientRun>& runs) {
  if (!object.is_object()) return false;
  if (read_one_batch(object, runs) || read_offline(object, runs)) return true;
  if (!is_flat_result(object)) return false;
  ClientRun run;
  const bool sglang = object.contains("mean_e2e_latency_ms") || object.contains("server_info") ||
                      object.contains("total_output_tokens_retokenized");
  run.kind = sglang ? "SGLang bench_serving result" : "vllm bench serve result";
  run.duration_s = json_number(object, "duration");
  if (!run.duration_s) run.duration_s = json_number(object, "total_latency");
  run.prompt_tokens = json_number(object, "total_input_tokens");
  run.output_tokens = json_number(object, "total_output_tokens");
  run.max_concurrency = json_number(object, "max_concurrency");
  if (const auto tpot = json_number(object, "mean_tpot_ms")) run.time_per_token_s = *tpot * 1e-3;
  for (const FlatName& f : kFlatNames) {
    const auto value = json_number(object, f.name);
    // No request measured: a rate of 0 says nothing.
    if (f.quantity == Q::arrivals_per_s && value && *value == 0) continue;
    run.set(f.quantity, value, f.name, f.scale);
  }
  const auto planned = json_number(object, "num_prompts"), done = run.get(Q::requests);
  if (planned && done && *planned > *done) {
    run.set(Q::failed, *planned - *done, "num_prompts - completed");
  }
  const auto total = json_number(object, "total_token_throughput");
  if (const auto output = run.get(Q::tokens_per_s); total && output && *total > *output) {
    run.set(Q::prompt_tokens_per_s, *total - *output, "total_token_throughput - output_throughput");
  }
  read_request_lists(object, run);
  read_speculation(object, run);
  if (const auto hit = json_number_at(object, {"cache_report", "cache_hit_rate_pct"})) {
    run.set(Q::prompt_hit, hit, "cache_report.cache_hit_rate_pct", 0.01);
  }
  for (const char* key : {"model_id", "model", "tokenizer_id"}) {
    if (run.setup.model.empty()) run.setup.model = json_text(object, key);
  }
  run.setup.engine = engine_of_backend(json_text(object, "backend"));
  run.setup.device = json_text(object, "device");
  run.set(Q::prompt, json_number(object, "input_len"), "input_len");
  run.set(Q::output, json_number(object, "output_len"), "output_len");
  run.set(Q::max_running, json_number(object, "max_num_seqs"), "max_num_seqs");
  const auto tp = json_number(object, "tp");
  if (tp && *tp >= 1 && *tp <= 4096) run.setup.tp = static_cast<int>(*tp);
  read_server_info(object, run);
  read_ridge_fields(object, run);
  runs.push_back(std::move(run));
  return true;
}

bool read_ridge_bench(const json& object, std::vector<ClientRun>& runs) {
  const json* rows = json_at(object, {"rows"});
  if (rows == nullptr || !rows->is_array() || rows->empty() || !object.contains("prompt_s") ||
      !object.contains("tokens")) {
    return false;
  }
  for (const json& row : *rows) {
    if (!row.is_object() || !row.contains("clients")) continue;
    ClientRun run;
    run.kind = "ridge bench --serve result";
    run.setup.engine = "ridge";
    run.setup.model = json_text(object, "model");
    run.setup.device = json_text(object, "device");
    run.duration_s = json_number(row, "seconds");
    run.set(Q::prompt, json_number(object, "prompt"), "prompt");
    run.set(Q::output, json_number(object, "tokens"), "tokens");
    run.set(Q::concurrency, json_number(row, "clients"), "clients");
    run.set(Q::requests, json_number(row, "requests"), "requests");
    run.set(Q::tokens_per_s, json_number(row, "tokens_per_s"), "tokens_per_s");
    // Medians; all requests have the same lengths, so that the means are close.
    for (const Q q : {Q::ttft, Q::ttft_p50}) run.set(q, json_number(row, "ttft_s"), "ttft_s");
    for (const Q q : {Q::itl, Q::itl_p50}) run.set(q, json_number(row, "itl_s"), "itl_s");
    runs.push_back(std::move(run));
  }
  return !runs.empty();
}

}  // namespace ridge
