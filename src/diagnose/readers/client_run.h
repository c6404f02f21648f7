// One run of a client that measured an endpoint, as its own tool reports it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "diagnose/evidence.h"

namespace ridge {

struct ClientRun {
  std::string kind;  // of EvidenceFile
  RunSetup setup;
  std::vector<Observed> observed;
  std::vector<std::string> notes;
  // What helps to check and derive, seconds and tokens.
  std::optional<double> duration_s, time_per_token_s, max_concurrency, prompt_tokens, output_tokens;

  // Adds value x scale. Negative values become a note; a quantity that is there stays.
  void set(Quantity quantity, const std::optional<double>& value, std::string_view origin,
           double scale = 1);
  std::optional<double> get(Quantity quantity) const;
  void drop(Quantity quantity);
};

// Adds what follows from the reported figures: mean lengths, rates, requests in flight and the
// batch by Little's law. Settles the time per token: tools take the inter-token latency between
// stream events, and an event is not always one token; (e2e - ttft) / (output - 1) is.
void complete_run(ClientRun& run);

// The run with most requests in flight; the others become notes. At least one run.
EvidenceFile choose_run(std::vector<ClientRun> runs, const std::string& name);

// "vllm", "sglang-oai", "tensorrt-llm" -> the engine's name of RunSetup; empty for "openai".
std::string engine_of_backend(std::string_view backend);

// --- Formats. False where the object is of another.

// `vllm bench serve|latency|throughput`, SGLang bench_serving, bench_one_batch and
// bench_offline_throughput, `ridge load`: names at the outermost level.
bool read_flat_result(const nlohmann::json& object, std::vector<ClientRun>& runs);
// `ridge bench --serve --json`: a run for each number of clients.
bool read_ridge_bench(const nlohmann::json& object, std::vector<ClientRun>& runs);
// genai-perf and AIPerf: {metric: {unit, avg, p50, p99}}.
bool read_aiperf_result(const nlohmann::json& object, std::vector<ClientRun>& runs);
bool read_guidellm_result(const nlohmann::json& object, std::vector<ClientRun>& runs);
bool read_inference_perf_result(const nlohmann::json& object, std::vector<ClientRun>& runs);

// A table with a row for each run and such names as columns, in any order of their words
// (ttft_mean_ms): each row as an object. Empty where the header has none.
std::vector<nlohmann::json> tabled_results(std::string_view text);

// What vLLM's and SGLang's tools print: each table as the object that the tool would have saved.
std::vector<nlohmann::json> printed_results(std::string_view text);

}  // namespace ridge
