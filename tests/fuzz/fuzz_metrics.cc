// Any bytes as Prometheus text: an Error or observations that can be.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "diagnose/readers/metrics_window.h"
#include "replay.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto require = [](bool holds) {
    if (!holds) std::abort();
  };
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  ridge::is_prometheus_text(text.substr(0, 4096));
  try {
    const std::vector<ridge::MetricsPage> pages = ridge::parse_metrics(text, "fuzz");
    require(!pages.empty());
    for (const ridge::MetricsPage& page : pages) {
      require(!page.samples.empty());
      for (const ridge::MetricSample& sample : page.samples) require(!sample.name.empty());
    }
    for (const double window_s : {0., 30.}) {
      for (const ridge::EvidenceFile& file : ridge::observe_metrics(pages, window_s)) {
        require(!file.kind.empty() && !file.window.empty());
        for (const ridge::Observed& o : file.observed) {
          require(std::isfinite(o.value) && o.value >= 0 && !o.origin.empty());
          const bool share = ridge::quantity_info(o.quantity).unit == ridge::QuantityUnit::share;
          require(!share || o.value <= 1);
        }
      }
    }
  } catch (const ridge::Error&) {
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      "# TYPE vllm:num_requests_running gauge\n"
      "vllm:num_requests_running{engine=\"0\",model_name=\"a \\\"b\\\"\"} 3.0 1700000000000\n"
      "vllm:generation_tokens_total{engine=\"0\"} 10\n"
      "vllm:inter_token_latency_seconds_bucket{le=\"0.01\"} 1\n"
      "vllm:inter_token_latency_seconds_bucket{le=\"0.1\"} 8\n"
      "vllm:inter_token_latency_seconds_bucket{le=\"+Inf\"} 9\n"
      "vllm:inter_token_latency_seconds_sum 0.5\nvllm:inter_token_latency_seconds_count 9\n"
      "# EOF\n1763288266\n"
      "vllm:num_requests_running{engine=\"0\",model_name=\"a \\\"b\\\"\"} 4.0\n"
      "vllm:generation_tokens_total{engine=\"0\"} 5\nridge:step_measured_seconds_sum 1\n"
      "ridge:step_measured_seconds_count 7\nprocess_start_time_seconds 1.7e9\n",
      "HTTP/1.1 200 OK\r\nDate: Mon, 16 Nov 2026 10:17:06 GMT\r\n\r\n"
      "sglang:num_running_reqs{tp_rank=\"0\",dp_rank=\"1\"} 5\nsglang:spec_accept_length 2.5\n"
      "sglang:forward_execution_seconds_total{category=\"decode\"} 5\n"
      "sglang:cuda_graph_passes_total{mode=\"decode_none\"} 5\n",
      "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-1\",modelName=\"A100\"} 90\n"
      "DCGM_FI_PROF_DRAM_ACTIVE{gpu=\"0\",UUID=\"GPU-1\",GPU_I_ID=\"3\"} 0.5\n"
      "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS{gpu=\"0\"} 4\n"
      "DCGM_FI_DEV_SM_CLOCK{gpu=\"0\"} 9223372036854775794\n"
      "# TYPE DCGM_FI_PROF_PCIE_TX_BYTES counter\nDCGM_FI_PROF_PCIE_TX_BYTES{gpu=\"0\"} 5\n",
      "tgi_request_generated_tokens_sum 31\ntgi_request_generated_tokens_count 3\n"
      "tgi_batch_inference_count{method=\"decode\"} 10\nllamacpp:n_busy_slots_per_decode 2\n"
      "llamacpp:n_decode_total 20\ntrtllm_kv_cache_max_blocks 3\n"
      "trtllm_kv_cache_tokens_per_block 32\nnv_trt_llm_request_metrics{request_type=\"max\"} 5\n"
      "dynamo_frontend_requests_total 3\nnum_requests_running 3\n",
  };
}
