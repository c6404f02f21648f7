// The metrics: identities between them, vLLM's names and buckets, a text that Prometheus reads, and
// the cost of reporting.
#include "serving/metrics.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>
#include <map>
#include <sstream>
#include <thread>

#include "base/thread_cpu.h"

namespace ridge {
namespace {

MetricsOptions options() {
  return {.model_name = "tiny",
          .engine = 0,
          .page_tokens = 16,
          .pages = 100,
          .max_context = 800,
          .max_sequences = 24,
          .model = "llama-3.1-8b",
          .device = "NVIDIA H200",
          .weights = "fp8",
          .kv = "bf16"};
}

// "name{labels without model_name and engine}" -> value. Checks the common labels on the way.
std::map<std::string, double> parse(const std::string& text) {
  std::map<std::string, double> values;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t open = line.find('{'), close = line.rfind('}');
    EXPECT_NE(close, std::string::npos) << line;
    std::string labels = "," + line.substr(open + 1, close - open - 1);
    for (const std::string common : {",engine=\"0\"", ",model_name=\"tiny\""}) {
      const size_t at = labels.find(common);
      EXPECT_NE(at, std::string::npos) << line;
      if (at != std::string::npos) labels.erase(at, common.size());
    }
    const std::string name =
        line.substr(0, open) + (labels.empty() ? "" : "{" + labels.substr(1) + "}");
    EXPECT_TRUE(values.emplace(name, std::stod(line.substr(close + 1))).second) << name;
  }
  return values;
}

// N requests of p prompt and m generated tokens, one after the other: one step for the prompt, then
// m - 1 of 4 ms.
void serve(ServingMetrics& metrics, int requests, int p, int m) {
  for (int i = 0; i < requests; ++i) {
    metrics.on_prefix_lookup(p, 16);
    metrics.on_first_token(0.012);
    metrics.on_step({.measured_s = 0.010,
                     .predicted_s = 0.008,
                     .roof_s = 0.006,
                     .wall = Wall::compute,
                     .prefill_tokens = p,
                     .prefill_sequences = 1,
                     .generated_tokens = 1,
                     .running = 1,
                     .pages_free = 90,
                     .pages_held = 10});
    for (int t = 1; t < m; ++t) {
      metrics.on_tokens(1, 0.004);
      metrics.on_step({.measured_s = 0.004,
                       .predicted_s = 0.0036,
                       .roof_s = 0.003,
                       .host_gap_s = 0.00002,
                       .wall = Wall::memory,
                       .decode_sequences = 1,
                       .generated_tokens = 1,
                       .running = t + 1 < m ? 1 : 0,
                       .pages_free = 70,
                       .pages_cached = 5,
                       .pages_held = 25});
    }
    metrics.on_finished({.end = i == 0 ? EndReason::stop_string : EndReason::length,
                         .prompt_tokens = p,
                         .cached_tokens = 16,
                         .generated_tokens = m,
                         .max_tokens = m,
                         .scheduled_s = 0.002,
                         .first_token_s = 0.012,
                         .end_s = 0.012 + 0.004 * (m - 1)});
    metrics.on_api_finished(1, m);
  }
}

TEST(Metrics, CountsAndSumsAgreeWithTheRequestsServed) {
  constexpr int kRequests = 7, kPrompt = 40, kTokens = 11;
  ServingMetrics metrics(options());
  serve(metrics, kRequests, kPrompt, kTokens);
  const auto values = parse(metrics.text());
  const auto is = [&](const std::string& name, double wanted) {
    ASSERT_TRUE(values.contains(name)) << name;
    EXPECT_NEAR(values.at(name), wanted, 1e-9 * (1 + wanted)) << name;
  };
  const double n = kRequests, p = kPrompt, m = kTokens;
  is("vllm:time_to_first_token_seconds_count", n);
  is("vllm:inter_token_latency_seconds_count", n * (m - 1));
  is("vllm:inter_token_latency_seconds_sum", n * (m - 1) * 0.004);
  is("vllm:iteration_tokens_total_sum", n * (p + m));
  is("vllm:iteration_tokens_total_count", n * m);
  is("vllm:prompt_tokens_total", n * p);
  is("vllm:prompt_tokens_cached_total", n * 16);
  is("vllm:prefix_cache_queries_total", n * p);
  is("vllm:prefix_cache_hits_total", n * 16);
  is("vllm:generation_tokens_total", n * m);
  is("vllm:request_success_total{finished_reason=\"stop\"}", 1);
  is("vllm:request_success_total{finished_reason=\"length\"}", n - 1);
  is("vllm:request_success_total{finished_reason=\"abort\"}", 0);
  is("vllm:request_success_total{finished_reason=\"error\"}", 0);
  for (const char* name :
       {"e2e_request_latency_seconds", "request_queue_time_seconds", "request_prefill_time_seconds",
        "request_decode_time_seconds", "request_inference_time_seconds", "request_prompt_tokens",
        "request_time_per_output_token_seconds", "request_generation_tokens", "request_params_n",
        "request_params_max_tokens", "request_max_num_generation_tokens"}) {
    is(fmt::format("vllm:{}_count", name), n);
    is(fmt::format("vllm:{}_bucket{{le=\"+Inf\"}}", name), n);
  }
  is("vllm:request_time_per_output_token_seconds_sum", n * 0.004);
  is("vllm:request_prompt_tokens_sum", n * p);
  is("vllm:request_generation_tokens_sum", n * m);
  // The parts of a request add up to it.
  is("vllm:e2e_request_latency_seconds_sum",
     values.at("vllm:request_queue_time_seconds_sum") +
         values.at("vllm:request_prefill_time_seconds_sum") +
         values.at("vllm:request_decode_time_seconds_sum"));
  is("vllm:request_inference_time_seconds_sum",
     values.at("vllm:request_prefill_time_seconds_sum") +
         values.at("vllm:request_decode_time_seconds_sum"));
  is("vllm:num_requests_running", 0);
  is("vllm:kv_cache_usage_perc", 0.25);
  is("ridge:pages{state=\"free\"}", 70);
  is("ridge:pages{state=\"cached\"}", 5);
  is("ridge:pages{state=\"held\"}", 25);
  // Steps by phase.
  is("ridge:step_measured_seconds_sum{phase=\"prefill\"}", n * 0.010);
  is("ridge:step_predicted_seconds_sum{phase=\"prefill\"}", n * 0.008);
  is("ridge:step_measured_seconds_count{phase=\"decode\"}", n * (m - 1));
  is("ridge:step_predicted_seconds_sum{phase=\"decode\"}", n * (m - 1) * 0.0036);
  is("ridge:step_roof_seconds_total{phase=\"decode\"}", n * (m - 1) * 0.003);
  is("ridge:step_share_of_roof_sum{phase=\"decode\"}", n * (m - 1) * 0.75);
  is("ridge:step_measured_seconds_count{phase=\"mixed\"}", 0);
  is("ridge:steps_total{wall=\"memory\"}", n * (m - 1));
  is("ridge:steps_total{wall=\"compute\"}", n);
  is("ridge:host_gap_seconds_sum", n * (m - 1) * 0.00002);
  is("ridge:step_sequences_sum", n * m);
}

TEST(Metrics, BucketsAreThoseOfVllmAndFinerOnes) {
  ServingMetrics metrics(options());
  const std::string text = metrics.text();
  const auto bounds = [&](const std::string& name) {
    std::string list;
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with(name + "_bucket")) continue;
      const size_t at = line.find("le=\"") + 4;
      list += line.substr(at, line.find('"', at) - at) + " ";
    }
    return list;
  };
  EXPECT_EQ(bounds("vllm:time_to_first_token_seconds"),
            "0.001 0.005 0.01 0.02 0.04 0.06 0.08 0.1 0.25 0.5 0.75 1 2.5 5 7.5 10 20 40 80 160 "
            "640 2560 +Inf ");
  const char* tokens =
      "0.0001 0.0002 0.0005 0.001 0.002 0.003 0.004 0.005 0.0075 0.01 0.015 0.02 0.025 0.035 0.05 "
      "0.075 0.1 0.15 0.2 0.3 0.4 0.5 0.75 1 2.5 5 7.5 10 20 40 80 +Inf ";
  EXPECT_EQ(bounds("vllm:inter_token_latency_seconds"), tokens);
  EXPECT_EQ(bounds("vllm:request_time_per_output_token_seconds"), tokens);
  EXPECT_EQ(bounds("vllm:e2e_request_latency_seconds"),
            "0.3 0.5 0.8 1 1.5 2 2.5 5 10 15 20 30 40 50 60 120 240 480 960 1920 7680 +Inf ");
  EXPECT_EQ(bounds("vllm:request_prompt_tokens"), "1 2 5 10 20 50 100 200 500 +Inf ");
  EXPECT_EQ(bounds("vllm:request_params_n"), "1 2 5 10 20 +Inf ");
  EXPECT_EQ(bounds("vllm:iteration_tokens_total"),
            "1 8 16 32 64 128 256 512 1024 2048 4096 8192 16384 +Inf ");
  const auto values = parse(text);
  const std::string info =
      "vllm:cache_config_info{block_size=\"16\",cache_dtype=\"bf16\",enable_prefix_caching="
      "\"True\","
      "kv_cache_max_concurrency=\"2.00\",kv_cache_size_tokens=\"1600\",num_gpu_blocks=\"100\"}";
  EXPECT_TRUE(values.contains(info)) << text;
  EXPECT_EQ(values.at("ridge:max_sequences"), 24);
  EXPECT_TRUE(values.contains(
      "ridge:engine_info{device=\"NVIDIA H200\",model=\"llama-3.1-8b\",weights=\"fp8\"}"))
      << text;
}

TEST(Metrics, SpeculationCountsDraftsAndEveryToken) {
  ServingMetrics metrics(options());
  metrics.on_tokens(3, 0.006);
  metrics.on_step({.measured_s = 0.006,
                   .decode_sequences = 2,
                   .drafted_sequences = 1,
                   .draft_tokens = 4,
                   .accepted_tokens = 2,
                   .generated_tokens = 4,
                   .preempted = 1});
  metrics.on_finished(
      {.generated_tokens = 4, .first_token_s = 1, .end_s = 2, .accepted_at = {1, 1}});
  const auto values = parse(metrics.text());
  EXPECT_EQ(values.at("vllm:inter_token_latency_seconds_count"), 3);
  EXPECT_NEAR(values.at("vllm:inter_token_latency_seconds_sum"), 0.006, 1e-12);
  EXPECT_EQ(values.at("vllm:spec_decode_num_drafts_total"), 1);
  EXPECT_EQ(values.at("vllm:spec_decode_num_draft_tokens_total"), 4);
  EXPECT_EQ(values.at("vllm:spec_decode_num_accepted_tokens_total"), 2);
  EXPECT_EQ(values.at("vllm:spec_decode_num_accepted_tokens_per_pos_total{position=\"1\"}"), 1);
  EXPECT_EQ(values.at("vllm:num_preemptions_total"), 1);
}

TEST(Metrics, RequestsThatEndInTheQueueHaveNoLatencies) {
  ServingMetrics metrics(options());
  metrics.on_finished({.end = EndReason::cancelled, .prompt_tokens = 9, .end_s = 3});
  metrics.on_finished({.end = EndReason::failed, .prompt_tokens = 9, .end_s = 3});
  // Between steps only the state changes.
  metrics.on_step({.running = 3, .waiting = 2, .pages_free = 100});
  const auto values = parse(metrics.text());
  EXPECT_EQ(values.at("vllm:request_success_total{finished_reason=\"abort\"}"), 1);
  EXPECT_EQ(values.at("vllm:request_success_total{finished_reason=\"error\"}"), 1);
  EXPECT_EQ(values.at("vllm:e2e_request_latency_seconds_count"), 0);
  EXPECT_EQ(values.at("vllm:prompt_tokens_total"), 0);
  EXPECT_EQ(values.at("vllm:num_requests_running"), 3);
  EXPECT_EQ(values.at("vllm:num_requests_waiting"), 2);
  EXPECT_EQ(values.at("vllm:iteration_tokens_total_count"), 0);
}

TEST(Metrics, PrometheusReadsTheText) {
  if (system("command -v promtool >/dev/null 2>&1") != 0) GTEST_SKIP() << "promtool is missing";
  MetricsOptions strange = options();
  strange.model_name = "a \"quoted\" \\ name\nof two lines";
  ServingMetrics metrics(strange);
  serve(metrics, 2, 30, 4);
  const std::string path = fmt::format("{}/metrics-{}", testing::TempDir(), getpid());
  std::ofstream(path) << metrics.text();
  // 0: nothing to say. 3: read well, and remarks on style (vLLM's names have colons).
  const int status =
      system(fmt::format("promtool check metrics < {} > {}.out 2>&1", path, path).c_str());
  std::stringstream said;
  said << std::ifstream(path + ".out").rdbuf();
  EXPECT_TRUE(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3) << said.str();
  EXPECT_EQ(said.str().find("error"), std::string::npos) << said.str();
  unlink(path.c_str());
  unlink((path + ".out").c_str());
}

// While another thread reads the text. Measured in the thread's own CPU time and compared with that
// of writing a number as text, about 100 ns: how fast the machine is and what else it does is not
// the question.
TEST(Metrics, ReportsCostNoMoreThanSomeNumbersAsText) {
  ServingMetrics metrics(options());
  serve(metrics, 1, 30, 4);
  std::atomic<bool> done = false;
  std::atomic<int> reads = 0;
  std::thread reader([&] {
    while (!done) {
      (void)metrics.text();
      ++reads;
    }
  });
  const auto nanoseconds = [](auto&& report) {
    constexpr int kCalls = 20'000;
    double best = 1e9;
    for (int run = 0; run < 5; ++run) {
      const double start = thread_cpu_s();
      for (int i = 0; i < kCalls; ++i) report(i);
      best = std::min(best, 1e9 * (thread_cpu_s() - start) / kCalls);
    }
    return best;
  };
  size_t length = 0;
  const double number =
      nanoseconds([&](int i) { length += fmt::format("{:.6f}", 0.003 + 1e-7 * i).size(); });
  EXPECT_GT(length, 0u);
  const double tokens = nanoseconds([&](int i) { metrics.on_tokens(1, 0.003 + 1e-7 * i); });
  const StepReport step{.measured_s = 0.004,
                        .predicted_s = 0.0036,
                        .roof_s = 0.003,
                        .host_gap_s = 1e-5,
                        .decode_sequences = 64,
                        .generated_tokens = 64};
  const double steps = nanoseconds([&](int) { metrics.on_step(step); });
  const RequestReport request{.generated_tokens = 9, .first_token_s = 1, .end_s = 2};
  const double finished = nanoseconds([&](int) { metrics.on_finished(request); });
  done = true;
  reader.join();
  fmt::print(
      "on_tokens {:.0f} ns, on_step {:.0f} ns, on_finished {:.0f} ns, a number {:.0f} ns, "
      "{} reads\n",
      tokens, steps, finished, number, reads.load());
#ifdef NDEBUG  // sanitizer builds undefine it
  EXPECT_LT(tokens, 4 * number);
  EXPECT_LT(steps, 16 * number);
  EXPECT_LT(finished, 16 * number);
#endif
}

}  // namespace
}  // namespace ridge
