#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "diagnose/readers/reader.h"
#include "results_support.h"

namespace ridge {
namespace {

using Q = Quantity;
using namespace results_test;

EvidenceFile read_requests(const std::string& text) {
  const std::optional<EvidenceFile> file = read_request_log(text, "requests.jsonl");
  if (!file) throw Error("not recognised");
  return *file;
}

// A request arrives every second, waits 0.5 s, prefills for 0.5 s and decodes 101 tokens in 10 s:
// about ten decode and one is in the queue half of the time. The arrivals are of another clock.
std::string steady_requests(const char* format) {
  std::string text;
  for (int i = 0; i < 200; ++i) {
    text += fmt::format(fmt::runtime(format), 1.7e9 + i, 50 + i, 50.5 + i, 51. + i, 61. + i);
  }
  return text;
}

void expect_steady(const EvidenceFile& file) {
  EXPECT_NEAR(value_of(file, Q::batch), 10, 0.2);
  EXPECT_NEAR(value_of(file, Q::running), 10.5, 0.2);
  EXPECT_NEAR(value_of(file, Q::waiting), 0.5, 0.05);
  EXPECT_NEAR(value_of(file, Q::tokens_per_s), 101, 2);
  // Half of the drain counts as steady: 5 of 200 s without prompts.
  EXPECT_NEAR(value_of(file, Q::prompt_tokens_per_s), 1000, 30);
  EXPECT_NEAR(value_of(file, Q::arrivals_per_s), 1, 1e-9);
  EXPECT_NEAR(value_of(file, Q::itl), 0.1, 1e-9);
  EXPECT_NEAR(value_of(file, Q::ttft), 1, 1e-9);
  EXPECT_NEAR(value_of(file, Q::queue_time), 0.5, 1e-9);
  EXPECT_NEAR(value_of(file, Q::prefill_time), 0.5, 1e-9);
  EXPECT_NEAR(value_of(file, Q::e2e), 11, 1e-9);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt), 1000);
  EXPECT_DOUBLE_EQ(value_of(file, Q::output), 101);
  EXPECT_TRUE(has_note(file, "of warm-up"));
}

TEST(RequestLog, JsonLines) {
  expect_steady(read_requests(steady_requests(
      "{{\"request_id\": \"a\", \"input_toks\": 1000, \"output_toks\": 101, \"arrival_time\": {}, "
      "\"queued_ts\": {}, \"scheduled_ts\": {}, \"first_token_ts\": {}, \"last_token_ts\": "
      "{}}}\n")));
}

TEST(RequestLog, Csv) {
  expect_steady(read_requests(
      "arrival_time,queued_ts,scheduled_ts,first_token_ts,last_token_ts,prompt_tokens,"
      "output_tokens\n" +
      steady_requests("{},{},{},{},{},1000,101\n")));
}

// The times of the steady part do not change with what is before and after it.
TEST(RequestLog, WarmUpAndDrainDoNotDilute) {
  std::string text = "start_time,ttft,latency,input_tokens,output_tokens\n";
  for (int i = 0; i < 100; ++i) text += "10,1,101,100,1001\n";  // all at once
  text += "0,0.1,0.2,100,2\n";                                  // a warm-up request
  text += "300,0.1,0.2,100,2\n";                                // a straggler
  const EvidenceFile file = read_requests(text);
  EXPECT_NEAR(value_of(file, Q::concurrency), 100, 1e-6);
  EXPECT_NEAR(value_of(file, Q::tokens_per_s), 100 * 1001 / 101., 10);
  EXPECT_NEAR(value_of(file, Q::itl), 0.1, 1e-9);
}

TEST(RequestLog, DurationsAlone) {
  const EvidenceFile file = read_requests(
      "{\"ttft\": 0.5, \"latency\": 2.5, \"prompt_tokens\": 10, \"output_tokens\": 21}\n"
      "{\"ttft\": 1.5, \"latency\": 3.5, \"prompt_tokens\": 30, \"output_tokens\": 21}\n");
  EXPECT_DOUBLE_EQ(value_of(file, Q::ttft), 1);
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl), 0.1);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt), 20);
  EXPECT_FALSE(observed_value(file, Q::tokens_per_s));
}

TEST(RequestLog, Aiperf) {
  std::string text;
  for (int i = 0; i < 20; ++i) {
    text += fmt::format(
        "{{\"metadata\": {{\"request_start_ns\": {}, \"request_end_ns\": {}}}, \"metrics\": "
        "{{\"input_sequence_length\": {{\"value\": 550, \"unit\": \"tokens\"}}, "
        "\"time_to_first_token\": {{\"value\": 200.0, \"unit\": \"ms\"}}, \"request_latency\": "
        "{{\"value\": 1200.0, \"unit\": \"ms\"}}, \"output_sequence_length\": {{\"value\": 101, "
        "\"unit\": \"tokens\"}}}}, \"error\": null}}\n",
        1'700'000'000'000'000'000 + i * 100'000'000ll,
        1'700'000'001'200'000'000 + i * 100'000'000ll);
  }
  text +=
      "{\"metadata\": {\"request_start_ns\": 1, \"request_end_ns\": 2}, \"metrics\": {}, "
      "\"error\": {\"code\": 499}}\n";
  const EvidenceFile file = read_requests(text);
  EXPECT_NEAR(value_of(file, Q::ttft), 0.2, 1e-6);
  EXPECT_NEAR(value_of(file, Q::itl), 0.01, 1e-6);
  EXPECT_NEAR(value_of(file, Q::concurrency), 11, 1.5);
  EXPECT_DOUBLE_EQ(value_of(file, Q::failed), 1);
}

TEST(RequestLog, TimeSeries) {
  const EvidenceFile file = read_requests(
      "t,prompt_throughput,gen_throughput,running,waiting,kv_cache_pct\n"
      "1,500,10,2,0,5.0\n2,900,400,10,4,80.0\n3,1100,600,12,6,90.0\n4,0,50,1,0,4.0\n");
  EXPECT_EQ(file.kind, "time series of an engine");
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 500);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt_tokens_per_s), 1000);
  EXPECT_DOUBLE_EQ(value_of(file, Q::running), 11);
  EXPECT_DOUBLE_EQ(value_of(file, Q::waiting), 5);
  EXPECT_DOUBLE_EQ(value_of(file, Q::kv_usage), 0.85);
  EXPECT_TRUE(has_note(file, "rows 2 to 3"));
}

TEST(RequestLog, OtherFiles) {
  for (const char* text :
       {"", "a,b\n1,2\n", "{}", "[]", "TIMESTAMP,ContextTokens,GeneratedTokens\n1,2,3\n",
        "{\"timestamp\": 5, \"input_length\": 10, \"output_length\": 3, \"hash_ids\": [1]}\n",
        "{\"token\": 1}"}) {
    EXPECT_FALSE(read_request_log(text, "x")) << text;
  }
}

TEST(RequestLog, Hostile) {
  // The last token before the first; nothing runs; no number at all.
  EXPECT_THROW(
      read_request_log("{\"first_token_ts\": 5, \"last_token_ts\": 3, \"queued_ts\": 1}", "x"),
      Error);
  EXPECT_THROW(read_request_log("running,waiting\n0,5\n", "x"), Error);
  EXPECT_THROW(read_request_log("running,waiting\n", "x"), Error);
  EXPECT_THROW(read_request_log("ttft,output_tokens\nnan,5\n", "x"), Error);
  const EvidenceFile file = read_requests(
      "{\"arrival_time\": 1, \"first_token_ts\": 2, \"last_token_ts\": 3, \"output_tokens\": 5}\n"
      "{\"arrival_time\": 1, \"first_token_ts\": 9, \"last_token_ts\": 3, \"output_tokens\": 5}\n"
      "{\"arrival_time\": 1, \"first_to");
  EXPECT_TRUE(has_note(file, "not in order"));
  EXPECT_TRUE(has_note(file, "cut off"));
}

// vLLM on an RTX 4090 with a small cache: 300 requests at about 10/s, the cache fills.
TEST(RequestLog, RealRequestsAndSeries) {
  const std::filesystem::path folder = evidence_folder() / "serving/rtx4090_llama-3.1-8b";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  const EvidenceFile requests =
      read_requests(read_file((folder / "requests.jsonl").string(), 1 << 22));
  const EvidenceFile series =
      read_requests(read_file((folder / "timeseries.csv").string(), 1 << 22));
  EXPECT_DOUBLE_EQ(value_of(requests, Q::requests), 300);
  EXPECT_NEAR(value_of(requests, Q::arrivals_per_s), 10, 1.5);
  EXPECT_GT(value_of(series, Q::kv_usage), 0.85);
  EXPECT_GT(value_of(series, Q::waiting), 10);
  // Two recordings of the same run.
  EXPECT_NEAR(value_of(requests, Q::tokens_per_s) / value_of(series, Q::tokens_per_s), 1, 0.05);
  EXPECT_NEAR(value_of(requests, Q::running) / value_of(series, Q::running), 1, 0.1);
  EXPECT_NEAR(value_of(requests, Q::waiting) / value_of(series, Q::waiting), 1, 0.1);
  // The workload of the folder has no times: it is no log.
  EXPECT_FALSE(read_request_log(read_file((folder / "workload.block16.jsonl").string(), 1 << 22),
                                "workload"));
}

}  // namespace
}  // namespace ridge
