// Any bytes as a client's result, a llama-bench result or a log of requests: an Error or finite
// figures of zero or more.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "diagnose/readers/reader.h"
#include "replay.h"

namespace {

template <typename Read>
void check(Read read) {
  try {
    const std::optional<ridge::EvidenceFile> file = read();
    if (!file) return;
    if (file->kind.empty()) std::abort();
    for (const ridge::Observed& o : file->observed) {
      if (!std::isfinite(o.value) || o.value < 0 || o.origin.empty()) std::abort();
    }
  } catch (const ridge::Error&) {
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check([&] { return ridge::read_benchmark_result(text, "fuzz"); });
  check([&] { return ridge::read_llama_bench(text, "fuzz"); });
  check([&] { return ridge::read_request_log(text, "fuzz"); });
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      "{\"backend\": \"vllm\", \"request_rate\": \"inf\", \"max_concurrency\": 8, \"duration\": "
      "9.5, "
      "\"completed\": 40, \"num_prompts\": 44, \"total_input_tokens\": 4000, "
      "\"total_output_tokens\": 800, \"mean_ttft_ms\": 90.5, \"p99_ttft_ms\": NaN, "
      "\"mean_itl_ms\": 9.5, \"mean_e2el_ms\": 300, \"ttfts\": [0.1, 0], \"itls\": [[0.1], []]}\n",
      "{\"request_latency\": {\"unit\": \"ms\", \"avg\": 5, \"p50\": 4}, \"request_count\": "
      "{\"unit\": "
      "\"requests\", \"avg\": 6}}",
      "{\"benchmarks\": [{\"duration\": 3, \"metrics\": {\"request_latency\": {\"successful\": "
      "{\"mean\": 2, \"percentiles\": {\"p99\": 3}}}}}]}",
      "{\"successes\": {\"count\": 4, \"latency\": {\"request_latency\": {\"mean\": 1}}}}",
      "Maximum request concurrency: 32\n== Serving Benchmark Result ==\nSuccessful requests: 32\n"
      "Mean TTFT (ms): 7,200.50\nMean ITL (ms): 70\n==================================\n",
      "rate_rps,ttft_mean_ms,e2e_mean_ms,output_len\n2,50,1050,101\n",
      "[{\"n_prompt\": 0, \"n_gen\": 128, \"n_depth\": 4, \"avg_ts\": 100, \"model_size\": 5000, "
      "\"n_gpu_layers\": 20, \"model_filename\": \"a-Q4_K_M.gguf\"}]",
      "| model | size | ngl | test | t/s |\n| a Q8_0 | 4.5 GiB | 99 | tg128 @ d64 | 80 ± 3 |\n",
      "{\"input_toks\": 9, \"output_toks\": 5, \"arrival_time\": 1.7e9, \"queued_ts\": 1, "
      "\"scheduled_ts\": 2, \"first_token_ts\": 3, \"last_token_ts\": 7}\n",
      "t,prompt_throughput,gen_throughput,running,waiting,kv_cache_pct\n1,5,9,2,0,5.0\n2,9,4,1,4,"
      "8\n",
  };
}
