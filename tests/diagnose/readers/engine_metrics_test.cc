// Every engine's names, with invented values.
#include "diagnose/readers/engine_metrics.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "diagnose/readers/metrics_window.h"
#include "results_support.h"

namespace ridge {
namespace {

using results_test::has_note;
using results_test::observed_value;
using results_test::value_of;
using Q = Quantity;

// `text` has {} for each number that the second page has n times as large.
EvidenceFile observe_pages(const std::vector<std::string>& texts, double window_s = 0) {
  std::vector<MetricsPage> pages;
  for (const std::string& text : texts) {
    for (MetricsPage& page : parse_metrics(text, "p.prom")) pages.push_back(std::move(page));
  }
  const std::vector<EvidenceFile> files = observe_metrics(pages, window_s);
  EXPECT_EQ(files.size(), 1u);
  EXPECT_TRUE(files.front().unknown.empty())
      << fmt::format("{}", fmt::join(files.front().unknown, " "));
  return files.front();
}

std::string histogram_lines(const std::string& name, double sum, double count,
                            const std::string& labels = "") {
  const std::string braces = labels.empty() ? "" : "{" + labels + "}";
  return fmt::format("{0}_sum{1} {2}\n{0}_count{1} {3}\n", name, braces, sum, count);
}

TEST(EngineMetrics, NamesAndPrefixes) {
  EXPECT_EQ(metrics_name("vllm:num_requests_running").rest, "num_requests_running");
  EXPECT_EQ(metrics_name("ray_vllm:num_requests_running").family, MetricsFamily::vllm);
  EXPECT_EQ(metrics_name("ray_vllm_num_requests_running").rest, "num_requests_running");
  EXPECT_EQ(metrics_name("sglang_token_usage").family, MetricsFamily::sglang);
  EXPECT_EQ(metrics_name("llamacpp:n_decode_total").family, MetricsFamily::llamacpp);
  EXPECT_EQ(metrics_name("nv_trt_llm_request_metrics").rest, "request_metrics");
  EXPECT_EQ(metrics_name("num_requests_running").family, MetricsFamily::nim);
  EXPECT_EQ(metrics_name("time_to_first_token_seconds_bucket").family, MetricsFamily::nim);
  EXPECT_EQ(metrics_name("DCGM_FI_DEV_SM_CLOCK").family, MetricsFamily::dcgm);
  for (const char* other : {"vllm", "vllm:", "tgix_queue", "node_cpu_seconds_total", "ray_tasks",
                            "num_requests_running_total_things", "prompt_tokens_x", ""}) {
    EXPECT_EQ(metrics_name(other).family, MetricsFamily::none) << other;
  }
}

std::string vllm_v1(double n) {
  const std::string l = "engine=\"0\",model_name=\"org/model\"";
  return fmt::format(
             "vllm:cache_config_info{{block_size=\"16\",cache_dtype=\"fp8_e4m3\","
             "enable_prefix_caching=\"True\",num_gpu_blocks=\"1000\",engine=\"0\"}} 1.0\n"
             "vllm:num_requests_running{{{0}}} 20\nvllm:num_requests_waiting{{{0}}} 7\n"
             "vllm:num_requests_waiting_by_reason{{reason=\"capacity\",{0}}} 6\n"
             "vllm:num_requests_waiting_by_reason{{reason=\"deferred\",{0}}} 1\n"
             "vllm:kv_cache_usage_perc{{{0}}} 0.97\n"
             "vllm:num_preemptions_total{{{0}}} {1}\n"
             "vllm:prompt_tokens_total{{{0}}} {2}\nvllm:generation_tokens_total{{{0}}} {3}\n"
             "vllm:request_success_total{{finished_reason=\"stop\",{0}}} {4}\n"
             "vllm:request_success_total{{finished_reason=\"length\",{0}}} {5}\n"
             "vllm:request_success_total{{finished_reason=\"error\",{0}}} {6}\n"
             "vllm:prefix_cache_queries_total{{{0}}} {2}\nvllm:prefix_cache_hits_total{{{0}}} {7}\n"
             "vllm:spec_decode_num_drafts_total{{{0}}} {8}\n"
             "vllm:spec_decode_num_draft_tokens_total{{{0}}} {9}\n"
             "vllm:spec_decode_num_accepted_tokens_total{{{0}}} {10}\n"
             "vllm:estimated_flops_per_gpu_total{{{0}}} {11}\n"
             "vllm:estimated_read_bytes_per_gpu_total{{{0}}} {12}\n"
             "vllm:estimated_write_bytes_per_gpu_total{{{0}}} {13}\n",
             l, 3 * n, 10000 * n, 2000 * n, 8 * n, 1 * n, 1 * n, 2500 * n, 100 * n, 400 * n,
             150 * n, 1e15 * n, 8e12 * n, 2e12 * n) +
         histogram_lines("vllm:time_to_first_token_seconds", 5 * n, 10 * n, l) +
         histogram_lines("vllm:inter_token_latency_seconds", 40 * n, 2000 * n, l) +
         histogram_lines("vllm:time_per_output_token_seconds", 90 * n, 2000 * n, l) +
         histogram_lines("vllm:e2e_request_latency_seconds", 60 * n, 10 * n, l) +
         histogram_lines("vllm:request_queue_time_seconds", 3 * n, 10 * n, l) +
         histogram_lines("vllm:request_prefill_time_seconds", 2 * n, 10 * n, l) +
         histogram_lines("vllm:request_decode_time_seconds", 50 * n, 10 * n, l) +
         histogram_lines("vllm:request_prompt_tokens", 9000 * n, 10 * n, l) +
         histogram_lines("vllm:request_generation_tokens", 2000 * n, 10 * n, l) +
         histogram_lines("vllm:iteration_tokens_total", 12000 * n, 500 * n, l);
}

void expect_vllm_v1(const EvidenceFile& file) {
  EXPECT_EQ(file.setup.model, "org/model");
  EXPECT_EQ(file.setup.kv, "fp8");
  EXPECT_EQ(file.setup.prefix_caching, true);
  const std::pair<Q, double> expected[] = {
      {Q::running, 20},
      {Q::waiting, 7},
      {Q::kv_usage, 0.97},
      {Q::kv_tokens, 16000},
      {Q::preemptions, 3},
      {Q::tokens_per_s, 200},
      {Q::requests, 10},
      {Q::requests_per_s, 1},
      {Q::failed, 1},
      {Q::prompt_hit, 0.25},
      {Q::drafted, 4},
      {Q::accepted, 1.5},
      {Q::ttft, 0.5},
      {Q::itl, 0.02},
      {Q::e2e, 6},
      {Q::queue_time, 0.3},
      {Q::prefill_time, 0.2},
      {Q::decode_time, 5},
      {Q::prompt, 900},
      {Q::output, 200},
      {Q::tokens_per_step, 24},
      {Q::step_time, 0.02},
      {Q::flops_per_s, 1e14},
      {Q::bytes_per_s, 1e12},
      {Q::prompt_tokens_per_s, 1000},
  };
  for (const auto& [quantity, value] : expected) {
    EXPECT_NEAR(value_of(file, quantity), value, value * 1e-12) << quantity_info(quantity).name;
  }
  EXPECT_EQ(file.observed.size(), std::size(expected));
  EXPECT_TRUE(has_note(file, "capacity: 6, deferred: 1"));
}

TEST(EngineMetrics, VllmV1) {
  const EvidenceFile file = observe_pages({vllm_v1(5), vllm_v1(6)}, 10);
  EXPECT_EQ(file.kind, "vLLM metrics (v1)");
  expect_vllm_v1(file);
}

TEST(EngineMetrics, VllmThroughRayAndWithUnderscores) {
  for (const char* prefix : {"ray_vllm:", "ray_vllm_", "vllm_"}) {
    std::vector<std::string> texts{vllm_v1(5), vllm_v1(6)};
    for (std::string& text : texts) {
      for (size_t at = 0; (at = text.find("vllm:", at)) != text.npos; at += std::strlen(prefix)) {
        text.replace(at, 5, prefix);
      }
    }
    const EvidenceFile file = observe_pages(texts, 10);
    expect_vllm_v1(file);
    EXPECT_EQ(file.kind.find("Ray") != file.kind.npos, prefix[0] == 'r') << prefix;
  }
}

TEST(EngineMetrics, VllmReplicasAddUp) {
  std::string second = vllm_v1(6);
  for (size_t at = 0; (at = second.find("engine=\"0\"", at)) != second.npos; ++at) {
    second[at + 8] = '1';
  }
  std::string first = vllm_v1(5);
  for (size_t at = 0; (at = first.find("engine=\"0\"", at)) != first.npos; ++at)
    first[at + 8] = '1';
  const EvidenceFile file = observe_pages({vllm_v1(5) + first, vllm_v1(6) + second}, 10);
  EXPECT_EQ(file.setup.dp, 2);
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 400);
  EXPECT_DOUBLE_EQ(value_of(file, Q::running), 40);
  EXPECT_DOUBLE_EQ(value_of(file, Q::kv_usage), 0.97);
  EXPECT_DOUBLE_EQ(value_of(file, Q::kv_tokens), 32000);
  EXPECT_DOUBLE_EQ(value_of(file, Q::step_time), 0.02);
  EXPECT_DOUBLE_EQ(value_of(file, Q::flops_per_s), 1e14);
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl), 0.02);
}

TEST(EngineMetrics, VllmV0) {
  const EvidenceFile file = observe_pages(
      {"vllm:num_requests_running{model_name=\"m\"} 2\nvllm:num_requests_swapped 3\n"
       "vllm:gpu_cache_usage_perc 0.4\nvllm:cpu_cache_usage_perc 0\n"
       "vllm:gpu_prefix_cache_hit_rate -1\nvllm:avg_generation_throughput_toks_per_s 55\n"
       "vllm:spec_decode_num_draft_tokens_total 400\nvllm:spec_decode_num_accepted_tokens_total "
       "150\n"
       "vllm:spec_decode_num_emitted_tokens_total 250\nvllm:spec_decode_efficiency 0.5\n" +
       histogram_lines("vllm:time_per_output_token_seconds", 3, 100)});
  EXPECT_EQ(file.kind, "vLLM metrics (v0)");
  EXPECT_EQ(file.setup.prefix_caching, false);
  EXPECT_FALSE(observed_value(file, Q::prompt_hit));
  EXPECT_EQ(value_of(file, Q::tokens_per_s), 55);
  EXPECT_EQ(value_of(file, Q::kv_usage), 0.4);
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl), 0.03);
  EXPECT_EQ(value_of(file, Q::drafted), 4);
  EXPECT_EQ(value_of(file, Q::accepted), 1.5);
  EXPECT_TRUE(has_note(file, "3 requests are swapped"));
}

TEST(EngineMetrics, VllmStatesTheCacheOfHybridModels) {
  const EvidenceFile file = observe_pages(
      {"vllm:cache_config_info{block_size=\"16\",num_gpu_blocks=\"1000\",cache_dtype=\"auto\","
       "kv_cache_size_tokens=\"12345\",cpu_offload_gb=\"8.0\"} 1\nvllm:gpu_prefix_cache_hit_rate "
       "0.6\n"});
  EXPECT_EQ(value_of(file, Q::kv_tokens), 12345);
  EXPECT_EQ(value_of(file, Q::prompt_hit), 0.6);
  EXPECT_TRUE(file.setup.kv.empty());
  EXPECT_TRUE(has_note(file, "host memory"));
}

TEST(EngineMetrics, Nim) {
  const EvidenceFile file = observe_pages(
      {"num_requests_running{model_name=\"meta/llama\"} 3\nnum_request_max 64\n"
       "gpu_cache_usage_perc 0.1\nrequest_success_total 5\nrequest_failure_total 2\n"
       "request_finish_total{finished_reason=\"length\"} 5\nprocess_cpu_seconds_total 4\n" +
       histogram_lines("time_per_output_token_seconds", 2, 100)});
  EXPECT_EQ(file.setup.engine, "nim");
  EXPECT_EQ(file.setup.model, "meta/llama");
  EXPECT_EQ(value_of(file, Q::max_running), 64);
  EXPECT_EQ(value_of(file, Q::failed), 2);
  EXPECT_EQ(value_of(file, Q::itl), 0.02);
}

std::string ridge_page(double n) {
  return fmt::format(
             "vllm:num_requests_running 6\nvllm:generation_tokens_total {}\n"
             "vllm:prompt_tokens_total {}\nvllm:prompt_tokens_cached_total {}\n"
             "ridge:steps_total{{wall=\"memory\"}} {}\nridge:pages{{state=\"free\"}} 3\n",
             600 * n, 1000 * n, 100 * n, 100 * n) +
         histogram_lines("vllm:iteration_tokens_total", 700 * n, 100 * n) +
         histogram_lines("ridge:step_measured_seconds", 0.6 * n, 80 * n, "phase=\"decode\"") +
         histogram_lines("ridge:step_measured_seconds", 0.4 * n, 20 * n, "phase=\"mixed\"") +
         histogram_lines("ridge:step_predicted_seconds", 0.4 * n, 20 * n, "phase=\"mixed\"") +
         histogram_lines("ridge:step_sequences", 600 * n, 100 * n) +
         histogram_lines("ridge:host_gap_seconds", 0.3 * n, 100 * n);
}

TEST(EngineMetrics, RidgeTimesItsOwnSteps) {
  const EvidenceFile file = observe_pages({ridge_page(2), ridge_page(3)}, 2);
  EXPECT_EQ(file.setup.engine, "ridge");
  EXPECT_EQ(file.kind, "Ridge metrics");
  EXPECT_DOUBLE_EQ(value_of(file, Q::step_time), 0.01);
  EXPECT_DOUBLE_EQ(value_of(file, Q::decode_step), 0.0075);
  EXPECT_DOUBLE_EQ(value_of(file, Q::batch), 6);
  EXPECT_DOUBLE_EQ(value_of(file, Q::engine_busy), 0.5);
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 300);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt_hit), 0.1);
  EXPECT_TRUE(has_note(file, "no work for 30 %"));
}

std::string sglang_page(double n) {
  const std::string l =
      "engine_type=\"unified\",model_name=\"q\",moe_ep_rank=\"0\",pp_rank=\"0\",tp_rank=\"0\"";
  return fmt::format(
             "sglang:num_running_reqs{{{0}}} 40\nsglang:num_queue_reqs{{{0},priority=\"\"}} 9\n"
             "sglang:num_queue_reqs{{{0},priority=\"1\"}} 9\nsglang:num_grammar_queue_reqs 0\n"
             "sglang:token_usage{{{0}}} 0.8\nsglang:max_total_num_tokens{{{0}}} 500000\n"
             "sglang:gen_throughput{{{0}}} 900\nsglang:cache_hit_rate{{{0}}} 0.9\n"
             "sglang:num_retracted_requests_total{{{0}}} {1}\n"
             "sglang:prompt_tokens_total{{{0}}} {2}\nsglang:generation_tokens_total{{{0}}} {3}\n"
             "sglang:cached_tokens_total{{{0},cache_source=\"device\"}} {4}\n"
             "sglang:num_requests_total{{{0}}} {5}\nsglang:num_aborted_requests_total{{{0}}} {5}\n"
             "sglang:spec_accept_length{{{0}}} 2.5\nsglang:spec_accept_rate{{{0}}} 0.5\n"
             "sglang:cuda_graph_passes_total{{{0},mode=\"decode_cuda_graph\"}} {6}\n"
             "sglang:cuda_graph_passes_total{{{0},mode=\"decode_none\"}} {7}\n"
             "sglang:cuda_graph_passes_total{{{0},mode=\"prefill_none\"}} {7}\n"
             "sglang:forward_execution_seconds_total{{{0},category=\"decode\"}} {8}\n"
             "sglang:forward_execution_seconds_total{{{0},category=\"extend\"}} {9}\n"
             "sglang:fwd_occupancy{{{0}}} NaN\n",
             l, 2 * n, 8000 * n, 4000 * n, 2000 * n, 10 * n, 300 * n, 100 * n, 6 * n, 2 * n) +
         histogram_lines("sglang:time_to_first_token_seconds", 12 * n, 10 * n, l) +
         histogram_lines("sglang:inter_token_latency_seconds", 60 * n, 4000 * n, l) +
         histogram_lines("sglang:e2e_request_latency_seconds", 80 * n, 10 * n, l) +
         histogram_lines("sglang:queue_time_seconds", 7 * n, 10 * n, l);
}

TEST(EngineMetrics, Sglang) {
  const EvidenceFile file = observe_pages({sglang_page(3), sglang_page(4)}, 10);
  EXPECT_EQ(file.kind, "SGLang metrics");
  EXPECT_EQ(file.setup.model, "q");
  const std::pair<Q, double> expected[] = {
      {Q::running, 40},        {Q::waiting, 9},       {Q::kv_usage, 0.8},
      {Q::kv_tokens, 5e5},     {Q::preemptions, 2},   {Q::tokens_per_s, 400},
      {Q::prompt_hit, 0.25},   {Q::requests, 10},     {Q::requests_per_s, 1},
      {Q::prompt, 800},        {Q::output, 400},      {Q::itl, 0.015},
      {Q::ttft, 1.2},          {Q::e2e, 8},           {Q::queue_time, 0.7},
      {Q::accepted, 1.5},      {Q::drafted, 3},       {Q::graph_share, 0.75},
      {Q::decode_step, 0.015}, {Q::engine_busy, 0.8}, {Q::prompt_tokens_per_s, 800},
  };
  for (const auto& [quantity, value] : expected) {
    EXPECT_NEAR(value_of(file, quantity), value, value * 1e-12) << quantity_info(quantity).name;
  }
  EXPECT_EQ(file.observed.size(), std::size(expected));
  EXPECT_TRUE(has_note(file, "10 requests were aborted"));
}

TEST(EngineMetrics, SglangCountsTokensWhenRequestsEnd) {
  const char* page =
      "sglang:num_running_reqs 4\nsglang:gen_throughput 350\n"
      "sglang:generation_tokens_total 100\n";
  EXPECT_EQ(value_of(observe_pages({page, page}, 5), Q::tokens_per_s), 350);
  const char* before =
      "sglang:realtime_tokens_total{mode=\"decode\"} 100\n"
      "sglang:realtime_tokens_total{mode=\"prefill_compute\"} 100\n";
  const char* after =
      "sglang:realtime_tokens_total{mode=\"decode\"} 600\n"
      "sglang:realtime_tokens_total{mode=\"prefill_compute\"} 400\n"
      "sglang:realtime_tokens_total{mode=\"prefill_cache\"} 100\n";
  const EvidenceFile file = observe_pages({before, after}, 5);
  EXPECT_EQ(value_of(file, Q::tokens_per_s), 100);
  EXPECT_EQ(value_of(file, Q::prompt_tokens_per_s), 80);
  EXPECT_EQ(value_of(file, Q::prompt_hit), 0.25);
}

TEST(EngineMetrics, TensorRtLlm) {
  const auto page = [](double n) {
    return fmt::format(
               "trtllm_num_requests_running{{model_name=\"a\"}} 12\ntrtllm_num_requests_waiting 5\n"
               "trtllm_num_generation_requests 10\ntrtllm_num_paused_requests 1\n"
               "trtllm_max_batch_size_runtime 64\ntrtllm_kv_cache_utilization 0.6\n"
               "trtllm_kv_cache_max_blocks 100\ntrtllm_kv_cache_tokens_per_block 32\n"
               "trtllm_iteration_latency_seconds 0.03\ntrtllm_kv_cache_hit_rate 0.1\n"
               "trtllm_prompt_tokens_total {}\ntrtllm_prompt_cached_tokens_total {}\n"
               "trtllm_generation_tokens_total {}\n"
               "trtllm_request_success_total{{finished_reason=\"stop\"}} {}\n"
               "trtllm_spec_decode_acceptance_length 3\n"
               "trtllm_spec_decode_num_draft_tokens_total {}\n"
               "trtllm_spec_decode_num_accepted_tokens_total {}\n"
               "trtllm_model_config_info{{model=\"org/x\",quantization=\"fp8\",gpu_type=\"H200\"}} "
               "1\n"
               "trtllm_parallel_config_info{{tp_size=\"4\",pp_size=\"1\"}} 1\n"
               "trtllm_kv_cache_config_info{{enable_block_reuse=\"True\"}} 1\n",
               1000 * n, 300 * n, 500 * n, 5 * n, 400 * n, 200 * n) +
           histogram_lines("trtllm_time_per_output_token_seconds", 0.15 * n, 5 * n) +
           histogram_lines("trtllm_request_queue_time_seconds", 10 * n, 5 * n);
  };
  const EvidenceFile file = observe_pages({page(1), page(2)}, 5);
  EXPECT_EQ(file.setup.engine, "trtllm");
  EXPECT_EQ(file.setup.model, "org/x");
  EXPECT_EQ(file.setup.device, "H200");
  EXPECT_EQ(file.setup.weights, "fp8");
  EXPECT_EQ(file.setup.tp, 4);
  EXPECT_EQ(file.setup.prefix_caching, true);
  EXPECT_EQ(value_of(file, Q::batch), 10);
  EXPECT_EQ(value_of(file, Q::max_running), 64);
  EXPECT_EQ(value_of(file, Q::kv_tokens), 3200);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt_hit), 0.3);
  EXPECT_EQ(value_of(file, Q::tokens_per_s), 100);
  EXPECT_EQ(value_of(file, Q::prompt), 200);
  EXPECT_EQ(value_of(file, Q::output), 100);
  EXPECT_EQ(value_of(file, Q::step_time), 0.03);
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl), 0.03);
  EXPECT_EQ(value_of(file, Q::queue_time), 2);
  EXPECT_EQ(value_of(file, Q::accepted), 2);
  EXPECT_EQ(value_of(file, Q::drafted), 4);
}

TEST(EngineMetrics, TritonBackend) {
  const EvidenceFile file = observe_pages(
      {"nv_trt_llm_request_metrics{model=\"t\",request_type=\"waiting\",version=\"1\"} 3\n"
       "nv_trt_llm_request_metrics{model=\"t\",request_type=\"active\",version=\"1\"} 8\n"
       "nv_trt_llm_request_metrics{model=\"t\",request_type=\"max\",version=\"1\"} 16\n"
       "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"fraction\",model=\"t\"} 0.5\n"
       "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"max\",model=\"t\"} 10\n"
       "nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type=\"tokens_per\",model=\"t\"} 64\n"
       "nv_trt_llm_inflight_batcher_metrics{inflight_batcher_specific_metric="
       "\"generation_requests\",model=\"t\"} 6\n"});
  EXPECT_EQ(file.setup.engine, "trtllm");
  EXPECT_EQ(value_of(file, Q::waiting), 3);
  EXPECT_EQ(value_of(file, Q::running), 8);
  EXPECT_EQ(value_of(file, Q::max_running), 16);
  EXPECT_EQ(value_of(file, Q::kv_usage), 0.5);
  EXPECT_EQ(value_of(file, Q::kv_tokens), 640);
  EXPECT_EQ(value_of(file, Q::batch), 6);
}

TEST(EngineMetrics, Tgi) {
  const auto page = [](double n) {
    return fmt::format(
               "# TYPE tgi_request_success counter\ntgi_request_success {0}\n"
               "# TYPE tgi_request_failure counter\ntgi_request_failure{{err=\"overloaded\"}} {1}\n"
               "# TYPE tgi_request_count counter\ntgi_request_count {0}\n"
               "# TYPE tgi_batch_inference_count counter\n"
               "tgi_batch_inference_count{{method=\"decode\"}} {2}\n"
               "tgi_batch_inference_count{{method=\"prefill\"}} {1}\n"
               "tgi_queue_size 4\ntgi_batch_current_size 3\n",
               10 * n, 2 * n, 100 * n) +
           histogram_lines("tgi_request_generated_tokens", 310 * n, 10 * n) +
           histogram_lines("tgi_request_input_length", 500 * n, 10 * n) +
           histogram_lines("tgi_request_mean_time_per_token_duration", 0.5 * n, 10 * n) +
           histogram_lines("tgi_request_queue_duration", 5 * n, 10 * n) +
           histogram_lines("tgi_request_inference_duration", 20 * n, 10 * n) +
           histogram_lines("tgi_request_duration", 25 * n, 10 * n) +
           histogram_lines("tgi_request_skipped_tokens", 0, 310 * n) +
           histogram_lines("tgi_batch_forward_duration", 4 * n, 100 * n, "method=\"decode\"") +
           histogram_lines("tgi_batch_inference_duration", 0.6 * n, 2 * n, "method=\"prefill\"") +
           histogram_lines("tgi_batch_inference_duration", 5 * n, 100 * n, "method=\"decode\"");
  };
  const EvidenceFile file = observe_pages({page(1), page(3)}, 10);
  EXPECT_EQ(file.setup.engine, "tgi");
  const std::pair<Q, double> expected[] = {
      {Q::running, 3},
      {Q::waiting, 4},
      {Q::requests, 20},
      {Q::requests_per_s, 2},
      {Q::failed, 4},
      {Q::tokens_per_s, 62},
      {Q::prompt, 50},
      {Q::output, 31},
      {Q::itl, 0.05},
      {Q::e2e, 2.5},
      {Q::queue_time, 0.5},
      {Q::decode_step, 0.04},
      {Q::prefill_time, 0.3},
      {Q::ttft, 0.8},
      {Q::decode_time, 1.7},
      {Q::batch, 3},
      {Q::prompt_tokens_per_s, 100},
  };
  for (const auto& [quantity, value] : expected) {
    EXPECT_NEAR(value_of(file, quantity), value, value * 1e-12) << quantity_info(quantity).name;
  }
  EXPECT_EQ(file.observed.size(), std::size(expected));
}

TEST(EngineMetrics, LlamaCpp) {
  const auto page = [](double n, double slots) {
    return fmt::format(
        "llamacpp:prompt_tokens_total {}\nllamacpp:prompt_seconds_total {}\n"
        "llamacpp:prompt_tokens_cached_total {}\n"
        "llamacpp:tokens_predicted_total {}\nllamacpp:tokens_predicted_seconds_total {}\n"
        "llamacpp:n_decode_total {}\nllamacpp:n_busy_slots_per_decode {}\n"
        "llamacpp:prompt_tokens_seconds 500\nllamacpp:predicted_tokens_seconds 20\n"
        "llamacpp:requests_processing 4\nllamacpp:requests_deferred 2\n"
        "llamacpp:kv_cache_usage_ratio 0.3\nllamacpp:n_tokens_max 77\n",
        300 * n, 0.5 * n, 100 * n, 800 * n, 32 * n, 200 * n, slots);
  };
  const EvidenceFile one = observe_pages({page(1, 2.5)});
  EXPECT_EQ(value_of(one, Q::batch), 2.5);
  EXPECT_DOUBLE_EQ(value_of(one, Q::itl), 0.04);
  EXPECT_FALSE(observed_value(one, Q::step_time));
  // The slots of the window: (3 x 400 - 2 x 200) / 200.
  const EvidenceFile file = observe_pages({page(1, 2), page(2, 3)}, 8);
  EXPECT_EQ(file.setup.engine, "llama.cpp");
  EXPECT_DOUBLE_EQ(value_of(file, Q::batch), 4);
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 100);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt_tokens_per_s), 50);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt_hit), 0.25);
  EXPECT_DOUBLE_EQ(value_of(file, Q::step_time), 0.04);
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_step), 5.5);
  EXPECT_EQ(value_of(file, Q::waiting), 2);
  EXPECT_TRUE(has_note(file, "600 tok/s"));
}

TEST(EngineMetrics, DynamoAsksForTheEngine) {
  std::vector<MetricsPage> pages = parse_metrics(
      "dynamo_frontend_inflight_requests{model=\"m\"} 5\ndynamo_frontend_queued_requests 2\n" +
          histogram_lines("dynamo_frontend_time_to_first_token_seconds", 4, 8),
      "p");
  const EvidenceFile file = observe_metrics(pages, 0).front();
  EXPECT_EQ(file.kind, "Dynamo frontend metrics");
  EXPECT_EQ(value_of(file, Q::ttft), 0.5);
  EXPECT_TRUE(has_note(file, "engines' own"));
}

}  // namespace
}  // namespace ridge
