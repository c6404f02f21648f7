#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "diagnose/readers/reader.h"
#include "results_support.h"

namespace ridge {
namespace {

using Q = Quantity;
using namespace results_test;

EvidenceFile read_result(const std::string& text) {
  const std::optional<EvidenceFile> file = read_benchmark_result(text, "result.json");
  if (!file) throw Error("not recognised");
  return *file;
}

// 100 requests of 500 + 101 tokens in 20 s; a request takes 0.2 s and 100 x 20 ms.
Json vllm_result() {
  return {{"date", "20260101-000000"},
          {"backend", "vllm"},
          {"model_id", "some/model-8b"},
          {"num_prompts", 100},
          {"request_rate", "inf"},
          {"max_concurrency", 16},
          {"duration", 20.0},
          {"completed", 100},
          {"total_input_tokens", 50000},
          {"total_output_tokens", 10100},
          {"request_throughput", 5.0},
          {"output_throughput", 505.0},
          {"total_token_throughput", 3005.0},
          {"mean_ttft_ms", 200.0},
          {"median_ttft_ms", 150.0},
          {"p99_ttft_ms", 900.0},
          {"mean_tpot_ms", 20.0},
          {"mean_itl_ms", 20.1},
          {"median_itl_ms", 19.0},
          {"p99_itl_ms", 60.0},
          {"mean_e2el_ms", 2200.0}};
}

TEST(BenchmarkResult, VllmFlat) {
  const EvidenceFile file = read_result(vllm_result().dump());
  EXPECT_EQ(file.kind, "vllm bench serve result");
  EXPECT_EQ(file.setup.engine, "vllm");
  EXPECT_EQ(file.setup.model, "some/model-8b");
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 505);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt_tokens_per_s), 2500);
  EXPECT_DOUBLE_EQ(value_of(file, Q::requests_per_s), 5);
  EXPECT_FALSE(observed_value(file, Q::arrivals_per_s));  // "inf"
  EXPECT_DOUBLE_EQ(value_of(file, Q::concurrency), 16);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt), 500);
  EXPECT_DOUBLE_EQ(value_of(file, Q::output), 101);
  EXPECT_DOUBLE_EQ(value_of(file, Q::ttft), 0.2);
  EXPECT_DOUBLE_EQ(value_of(file, Q::ttft_p99), 0.9);
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl), 0.0201);  // agrees with 2 s / 100: as reported
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl_p99), 0.06);
  EXPECT_NEAR(value_of(file, Q::batch), 505 * 0.0201, 1e-9);
  EXPECT_FALSE(observed_value(file, Q::failed));
  EXPECT_TRUE(file.notes.empty());
  for (const Observed& o : file.observed) EXPECT_EQ(o.window_s, 20);
}

// Two stream events a token halve the reported ITL; several tokens an event multiply it.
TEST(BenchmarkResult, SettlesTheTimePerToken) {
  Json halved = vllm_result();
  halved["mean_itl_ms"] = 10.0;
  const EvidenceFile two_events = read_result(halved.dump());
  EXPECT_NEAR(value_of(two_events, Q::itl), 0.02, 1e-9);
  EXPECT_FALSE(observed_value(two_events, Q::itl_p50));
  EXPECT_TRUE(has_note(two_events, "several events"));

  Json speculated = vllm_result();
  speculated["mean_itl_ms"] = 50.0;
  speculated["spec_decode_acceptance_length"] = 2.5;
  const EvidenceFile several = read_result(speculated.dump());
  EXPECT_NEAR(value_of(several, Q::itl), 0.02, 1e-9);
  EXPECT_NEAR(value_of(several, Q::itl_p99), 0.06 / 2.5, 1e-9);
  EXPECT_NEAR(value_of(several, Q::accepted), 1.5, 1e-9);
  EXPECT_TRUE(has_note(several, "several tokens"));
  EXPECT_NEAR(value_of(several, Q::batch), 505 * 0.02, 1e-6);

  // Without the time of a request, TPOT settles.
  Json without = halved;
  without.erase("mean_e2el_ms");
  EXPECT_NEAR(value_of(read_result(without.dump()), Q::itl), 0.02, 1e-9);
  // Without both, the reported one stands.
  without.erase("mean_tpot_ms");
  EXPECT_NEAR(value_of(read_result(without.dump()), Q::itl), 0.01, 1e-9);
}

TEST(BenchmarkResult, DetailedLists) {
  Json result = vllm_result();
  result.erase("mean_e2el_ms");
  result.erase("mean_tpot_ms");
  result["input_lens"] = {10, 20, 30};
  result["output_lens"] = {3, 3, 0};
  result["ttfts"] = {0.5, 0.7, 0.0};  // the last one failed
  result["itls"] = {{0.1, 0.1}, {0.2, 0.2}, Json::array()};
  const EvidenceFile file = read_result(result.dump());
  EXPECT_NEAR(value_of(file, Q::e2e), (0.7 + 1.1) / 2, 1e-9);
}

TEST(BenchmarkResult, RateAndRequestsInFlight) {
  Json paced = vllm_result();
  paced["request_rate"] = 5.2;
  paced["max_concurrency"] = nullptr;
  const EvidenceFile file = read_result(paced.dump());
  EXPECT_DOUBLE_EQ(value_of(file, Q::arrivals_per_s), 5.2);
  EXPECT_NEAR(value_of(file, Q::concurrency), 5 * 2.2, 1e-9);  // Little's law
}

TEST(BenchmarkResult, FailedAndNothingCompleted) {
  Json some = vllm_result();
  some["completed"] = 90;
  const EvidenceFile file = read_result(some.dump());
  EXPECT_DOUBLE_EQ(value_of(file, Q::failed), 10);
  EXPECT_TRUE(has_note(file, "10 of 100 requests failed"));

  Json none = vllm_result();
  none["completed"] = 0;
  none["failed"] = 100;
  const EvidenceFile nothing = read_result(none.dump());
  EXPECT_DOUBLE_EQ(value_of(nothing, Q::failed), 100);
  EXPECT_FALSE(observed_value(nothing, Q::itl));
  EXPECT_TRUE(has_note(nothing, "no request completed"));
}

TEST(BenchmarkResult, ImpossibleValuesAreNoted) {
  Json result = vllm_result();
  result["mean_ttft_ms"] = -5;
  result.erase("mean_e2el_ms");
  std::string text = result.dump();
  const size_t at = text.find("900.0");
  text.replace(at, 5, "NaN");
  const EvidenceFile file = read_result(text);
  EXPECT_FALSE(observed_value(file, Q::ttft));
  EXPECT_FALSE(observed_value(file, Q::ttft_p99));
  EXPECT_TRUE(has_note(file, "mean_ttft_ms is -5"));
}

// More sequences than requests: the figures are of different runs, or tokens are miscounted.
TEST(BenchmarkResult, BatchAboveTheRequestsInFlight) {
  Json result = vllm_result();
  result["max_concurrency"] = 4;
  const EvidenceFile file = read_result(result.dump());
  EXPECT_FALSE(observed_value(file, Q::batch));
  EXPECT_TRUE(has_note(file, "do not agree"));
}

TEST(BenchmarkResult, LinesOfSglang) {
  Json first = {{"backend", "sglang"},
                {"request_rate", 4.0},
                {"max_concurrency", 8},
                {"duration", 10.0},
                {"completed", 40},
                {"total_input_tokens", 40000},
                {"total_output_tokens", 8000},
                {"request_throughput", 4.0},
                {"input_throughput", 4000.0},
                {"output_throughput", 800.0},
                {"mean_e2e_latency_ms", 2000.0},
                {"mean_ttft_ms", 100.0},
                {"median_ttft_ms", 90.0},
                {"mean_itl_ms", 9.5},
                {"concurrency", 7.9},
                {"accept_length", 3.0},
                {"server_info",
                 {{"model_path", "some/model-70b"},
                  {"tp_size", 4},
                  {"quantization", "fp8"},
                  {"disable_cuda_graph", false},
                  {"max_running_requests", 128}}}};
  Json second = first;
  second["concurrency"] = 31.5;
  second["output_throughput"] = 2000.0;
  second["mean_e2e_latency_ms"] = 2600.0;
  second["mean_itl_ms"] = 12.6;
  const EvidenceFile file = read_result(second.dump() + "\n" + first.dump() + "\n");
  EXPECT_EQ(file.kind, "SGLang bench_serving result");
  EXPECT_EQ(file.setup.engine, "sglang");
  EXPECT_EQ(file.setup.model, "some/model-70b");
  EXPECT_EQ(file.setup.tp, 4);
  EXPECT_EQ(file.setup.weights, "fp8");
  EXPECT_EQ(file.setup.eager, false);
  EXPECT_DOUBLE_EQ(value_of(file, Q::concurrency), 31.5);
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 2000);
  EXPECT_DOUBLE_EQ(value_of(file, Q::accepted), 2);
  EXPECT_DOUBLE_EQ(value_of(file, Q::max_running), 128);
  EXPECT_TRUE(has_note(file, "2 runs: run 1"));
  EXPECT_TRUE(has_note(file, "run 2 is not used"));
}

TEST(BenchmarkResult, OneBatchOfSglang) {
  const EvidenceFile file = read_result(
      R"({"run_name": "a", "batch_size": 16, "input_len": 256, "output_len": 32,
          "prefill_latency": 0.05, "prefill_throughput": 81920, "median_decode_latency": 0.008,
          "median_decode_throughput": 2000, "overall_throughput": 15000})");
  EXPECT_DOUBLE_EQ(value_of(file, Q::batch), 16);
  EXPECT_DOUBLE_EQ(value_of(file, Q::decode_step), 0.008);
}

TEST(BenchmarkResult, VllmOffline) {
  const EvidenceFile latency =
      read_result(R"({"avg_latency": 2.5, "latencies": [2.4, 2.6], "percentiles": {"50": 2.5}})");
  EXPECT_EQ(latency.kind, "vllm bench latency result");
  EXPECT_DOUBLE_EQ(value_of(latency, Q::e2e), 2.5);
  const EvidenceFile throughput = read_result(
      R"({"elapsed_time": 10.0, "num_requests": 50, "total_num_tokens": 60000,
          "requests_per_second": 5.0, "tokens_per_second": 6000.0})");
  EXPECT_DOUBLE_EQ(value_of(throughput, Q::requests_per_s), 5);
  EXPECT_FALSE(observed_value(throughput, Q::tokens_per_s));  // prompts are counted in
  EXPECT_TRUE(has_note(throughput, "prompt and output tokens together"));
}

TEST(BenchmarkResult, AiperfReadsUnits) {
  const EvidenceFile file = read_result(R"({
    "time_to_first_token": {"unit": "ms", "avg": 120.0, "p50": 100.0, "p99": 400.0},
    "inter_token_latency": {"unit": "us", "avg": 15000.0, "p50": 14000.0, "p99": 30000.0},
    "request_latency": {"unit": "s", "avg": 1.605},
    "output_token_throughput": {"unit": "tokens/sec", "avg": 600.0},
    "request_throughput": {"unit": "requests/sec", "avg": 6.0},
    "input_sequence_length": {"unit": "tokens", "avg": 550.0},
    "output_sequence_length": {"unit": "tokens", "avg": 100.0},
    "request_count": {"unit": "requests", "avg": 60.0},
    "benchmark_duration": {"unit": "sec", "avg": 10.0},
    "error_summary": [{"error_details": {"code": 500}, "count": 3}],
    "input_config": {"endpoint": {"model_names": ["some/model"]}, "loadgen": {"concurrency": 10}}})");
  EXPECT_EQ(file.kind, "genai-perf or AIPerf result");
  EXPECT_EQ(file.setup.model, "some/model");
  EXPECT_DOUBLE_EQ(value_of(file, Q::ttft), 0.12);
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl), 0.015);
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl_p99), 0.03);
  EXPECT_DOUBLE_EQ(value_of(file, Q::e2e), 1.605);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt_tokens_per_s), 3300);
  EXPECT_DOUBLE_EQ(value_of(file, Q::concurrency), 10);
  EXPECT_DOUBLE_EQ(value_of(file, Q::failed), 3);
}

TEST(BenchmarkResult, Guidellm) {
  const auto metric = [](double mean) {
    return Json{{"successful",
                 {{"mean", mean}, {"median", mean * 0.9}, {"percentiles", {{"p99", mean * 3}}}}},
                {"errored", {{"mean", 0}}}};
  };
  const auto run = [&](double streams) {
    return Json{{"duration", 30.0},
                {"metrics",
                 {{"request_totals", {{"successful", 60}, {"errored", 2}, {"incomplete", 1}}},
                  {"request_concurrency", metric(streams)},
                  {"requests_per_second", metric(2)},
                  {"output_tokens_per_second", metric(streams * 50)},
                  {"prompt_token_count", metric(256)},
                  {"output_token_count", metric(101)},
                  {"time_to_first_token_ms", metric(100)},
                  {"inter_token_latency_ms", metric(19)},
                  {"request_latency", metric(2)}}}};
  };
  const Json report{{"args", {{"model", "some/model"}}}, {"benchmarks", {run(4), run(8), run(2)}}};
  const EvidenceFile file = read_result(report.dump());
  EXPECT_EQ(file.kind, "GuideLLM result");
  EXPECT_EQ(file.setup.model, "some/model");
  EXPECT_DOUBLE_EQ(value_of(file, Q::concurrency), 8);
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl), 0.019);
  EXPECT_DOUBLE_EQ(value_of(file, Q::ttft_p99), 0.3);
  EXPECT_DOUBLE_EQ(value_of(file, Q::requests), 60);
  EXPECT_TRUE(has_note(file, "3 runs: run 2"));
}

TEST(BenchmarkResult, InferencePerf) {
  const EvidenceFile file = read_result(R"({
    "load_summary": {"count": 480, "requested_rate": 8.0, "achieved_rate": 8.1},
    "successes": {"count": 478,
      "latency": {"request_latency": {"mean": 4.1, "median": 4.0, "p99": 7.0},
                  "time_per_output_token": {"mean": 0.0402},
                  "time_to_first_token": {"mean": 0.1, "median": 0.09, "p99": 0.5},
                  "inter_token_latency": {"mean": 0.02, "median": 0.001, "p99": 0.08}},
      "throughput": {"input_tokens_per_sec": 1600, "output_tokens_per_sec": 800,
                     "total_tokens_per_sec": 2400, "requests_per_sec": 7.9},
      "prompt_len": {"mean": 200}, "output_len": {"mean": 101}},
    "failures": {"count": 2, "request_latency": null}})");
  EXPECT_EQ(file.kind, "inference-perf report");
  EXPECT_NEAR(value_of(file, Q::itl), 0.04, 1e-9);  // two events a token
  EXPECT_DOUBLE_EQ(value_of(file, Q::arrivals_per_s), 8);
  EXPECT_DOUBLE_EQ(value_of(file, Q::failed), 2);
}

TEST(BenchmarkResult, RidgeLoadAndBench) {
  Json load = vllm_result();
  load["backend"] = "openai";
  load["ridge"] = {{"cached_input_tokens", 25000},
                   {"server",
                    {{"preemptions", 3},
                     {"steps", {{{"phase", "decode"}, {"steps", 9}, {"measured_ms", 18.5}}}}}}};
  const EvidenceFile file = read_result(load.dump(2));
  EXPECT_EQ(file.kind, "ridge load result");
  EXPECT_EQ(file.setup.engine, "ridge");
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt_hit), 0.5);
  EXPECT_DOUBLE_EQ(value_of(file, Q::preemptions), 3);
  EXPECT_DOUBLE_EQ(value_of(file, Q::decode_step), 0.0185);

  const EvidenceFile bench = read_result(R"({"model": "m.gguf", "device": "some CPU", "prompt": 32,
    "tokens": 64, "prompt_s": 0.1, "rows": [
      {"clients": 1, "requests": 4, "seconds": 2, "tokens_per_s": 128, "step_s": 0.007,
       "share_of_ceiling": 0.9, "ttft_s": 0.01, "itl_s": 0.0078},
      {"clients": 4, "requests": 16, "seconds": 3, "tokens_per_s": 340, "step_s": 0.01,
       "share_of_ceiling": 0.9, "ttft_s": 0.02, "itl_s": 0.0115}]})");
  EXPECT_EQ(bench.kind, "ridge bench --serve result");
  EXPECT_DOUBLE_EQ(value_of(bench, Q::concurrency), 4);
  EXPECT_NEAR(value_of(bench, Q::batch), 340 * 0.0115, 1e-9);
}

constexpr const char* kPrinted = R"(
INFO 01-01 Namespace(backend='vllm', base_url=None, model='some/model-7b', request_rate=inf)
Traffic request rate: inf
Burstiness factor: 1.0 (Poisson process)
Maximum request concurrency: 32
100%|#######| 32/32 [02:30<00:00,  4.71s/it]
============ Serving Benchmark Result ============
Successful requests:                     32
Benchmark duration (s):                  150.00
Total input tokens:                      65536
Total generated tokens:                  64000
Request throughput (req/s):              0.21
Output token throughput (tok/s):         426.67
Total Token throughput (tok/s):          863.57
---------------Time to First Token----------------
Mean TTFT (ms):                          7,200.50
Median TTFT (ms):                        7000.00
P99 TTFT (ms):                           11000.00
-----Time per Output Token (excl. 1st token)------
Mean TPOT (ms):                          70.00
---------------Inter-token Latency----------------
Mean ITL (ms):                           70.10
Median ITL (ms):                         68.00
P99 ITL (ms):                            72.00
==================================================
)";

TEST(BenchmarkResult, PrintedTable) {
  const EvidenceFile file = read_result(kPrinted);
  EXPECT_EQ(file.kind, "vllm bench serve result");
  EXPECT_EQ(file.setup.model, "some/model-7b");
  EXPECT_EQ(file.setup.engine, "vllm");
  EXPECT_DOUBLE_EQ(value_of(file, Q::concurrency), 32);
  EXPECT_DOUBLE_EQ(value_of(file, Q::ttft), 7.2005);
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl), 0.0701);
  EXPECT_DOUBLE_EQ(value_of(file, Q::output), 2000);
  // Quoted in a script, and cut off.
  std::string quoted;
  for (const char c : std::string(kPrinted)) {
    quoted += c;
    if (c == '\n') quoted += "# ";
  }
  EXPECT_DOUBLE_EQ(value_of(read_result(quoted), Q::itl), 0.0701);
  const std::string cut = std::string(kPrinted).substr(0, std::string(kPrinted).find("Mean TPOT"));
  EXPECT_DOUBLE_EQ(value_of(read_result(cut), Q::tokens_per_s), 426.67);
}

TEST(BenchmarkResult, PrintedBySglang) {
  const EvidenceFile file = read_result(R"(
============ Serving Benchmark Result ============
Backend:                                 sglang
Traffic request rate:                    4.0
Max request concurrency:                 not set
Successful requests:                     100
Benchmark duration (s):                  25.00
Total input tokens:                      10000
Total generated tokens:                  20000
Total generated tokens (retokenized):    19990
Request throughput (req/s):              4.00
Input token throughput (tok/s):          400.00
Output token throughput (tok/s):         800.00
Concurrency:                             8.40
Accept length:                           2.00
----------------End-to-End Latency----------------
Mean E2E Latency (ms):                   2100.00
---------------Time to First Token----------------
Mean TTFT (ms):                          110.00
---------------Inter-Token Latency----------------
Mean ITL (ms):                           20.00
==================================================
)");
  EXPECT_EQ(file.setup.engine, "sglang");
  EXPECT_DOUBLE_EQ(value_of(file, Q::arrivals_per_s), 4);
  EXPECT_DOUBLE_EQ(value_of(file, Q::concurrency), 8.4);
  EXPECT_DOUBLE_EQ(value_of(file, Q::accepted), 1);
  EXPECT_NEAR(value_of(file, Q::itl), 0.01, 1e-9);  // an event carries two tokens
}

TEST(BenchmarkResult, PrintedOffline) {
  const EvidenceFile file = read_result(
      "Processed prompts: 100%\nThroughput: 12.50 requests/s, 4567.80 total tokens/s, 1234.50 "
      "output tokens/s\n");
  EXPECT_DOUBLE_EQ(value_of(file, Q::requests_per_s), 12.5);
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 1234.5);
}

TEST(BenchmarkResult, TableOfRuns) {
  const EvidenceFile file = read_result(
      "model,gpu,tp,rate_rps,duration_s,prompt_len,output_len,ok,failed,achieved_rps,out_tok_s,"
      "ttft_mean_ms,ttft_p99_ms,e2e_mean_ms,reported_itl_mean_ms\n"
      "some/model,H100,1,2,100,500,101,200,0,2.0,202,50,90,1050,5.0\n"
      "some/model,H100,2,8,100,500,101,800,4,8.0,600,100,400,2100,10.0\n");
  EXPECT_EQ(file.setup.model, "some/model");
  EXPECT_EQ(file.setup.device, "H100");
  EXPECT_EQ(file.setup.tp, 2);
  EXPECT_DOUBLE_EQ(value_of(file, Q::arrivals_per_s), 8);
  EXPECT_NEAR(value_of(file, Q::concurrency), 8 * 2.1, 1e-9);
  EXPECT_NEAR(value_of(file, Q::itl), 0.02, 1e-9);          // two events a token
  EXPECT_NEAR(value_of(file, Q::tokens_per_s), 808, 1e-9);  // the client counts fewer
  EXPECT_TRUE(has_note(file, "counts tokens another way"));
  EXPECT_TRUE(has_note(file, "2 runs: run 2"));
}

// The README of the folder: E2E and TTFT are right, the reported ITL counts two events a token.
TEST(BenchmarkResult, RealRates) {
  const std::filesystem::path path = evidence_folder() / "serving/h100_vllm0.15_rates.csv";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const std::string text = read_file(path.string(), 1 << 20);
  const std::string header = text.substr(0, text.find('\n') + 1);
  size_t rows = 0;
  for (size_t begin = header.size(); begin < text.size(); ++rows) {
    const size_t end = text.find('\n', begin) + 1;
    const EvidenceFile file = read_result(header + text.substr(begin, end - begin));
    EXPECT_EQ(file.setup.device, "H100");
    EXPECT_TRUE(has_note(file, "a token makes several events")) << file.path << rows;
    EXPECT_GT(value_of(file, Q::e2e), value_of(file, Q::ttft));
    EXPECT_NEAR(value_of(file, Q::e2e),
                value_of(file, Q::ttft) + value_of(file, Q::itl) * (value_of(file, Q::output) - 1),
                1e-6);
    begin = end;
  }
  EXPECT_GT(rows, 10u);
}

// Brackets that never close must not make the reader quadratic.
TEST(BenchmarkResult, BrokenBracketsTakeLinearTime) {
  std::string text = "{\"mean_ttft_ms\": 5, \"a\": [\n";
  for (int i = 0; i < 400'000; ++i) text += "{\n";
  const auto start = std::chrono::steady_clock::now();
  try {
    read_benchmark_result(text, "x");
  } catch (const Error&) {
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(BenchmarkResult, CutOffFilesAreReadSoFar) {
  const std::string text = vllm_result().dump();
  const EvidenceFile file = read_result(text.substr(0, text.find("\"mean_itl_ms\"")));
  EXPECT_DOUBLE_EQ(value_of(file, Q::ttft), 0.2);
  EXPECT_TRUE(has_note(file, "cut off"));
  // A broken line does not hide the others.
  const EvidenceFile lines = read_result("{\"mean_ttft_ms\": }\n" + text + "\n");
  EXPECT_DOUBLE_EQ(value_of(lines, Q::ttft), 0.2);
  EXPECT_TRUE(has_note(lines, "line 1: not valid JSON"));
}

TEST(BenchmarkResult, OtherFilesAreNotResults) {
  for (const char* text :
       {"", "{", "[]", "{}", "null", "{\"traceEvents\": []}", "vllm:num_requests_running 3\n",
        "{\"request_latency\": 5}", "{\"successes\": 3}", "{\"benchmarks\": [1, null]}",
        "{\"benchmarks\": [{\"metrics\": {\"request_latency\": null}}]}",
        "{\"rows\": [], \"tokens\": 1, \"prompt_s\": 2}", "Throughput: fast\n"}) {
    EXPECT_FALSE(read_benchmark_result(text, "x")) << text;
  }
}

TEST(BenchmarkResult, NothingUsableIsAnError) {
  EXPECT_THROW(read_benchmark_result("{\"mean_ttft_ms\": -1}", "x"), Error);
  EXPECT_THROW(read_benchmark_result("{\"mean_ttft_ms\": null}", "x"), Error);
}

}  // namespace
}  // namespace ridge
