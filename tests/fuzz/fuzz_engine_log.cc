// Any bytes as an engine's log: an Error or finite figures of zero or more.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "base/error.h"
#include "diagnose/readers/reader.h"
#include "replay.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const std::optional<ridge::EvidenceFile> file =
        ridge::read_engine_log({reinterpret_cast<const char*>(data), size}, "fuzz");
    if (!file) return 0;
    for (const ridge::Observed& o : file->observed) {
      if (!std::isfinite(o.value) || o.value < 0) std::abort();
    }
    if (file->setup.offloaded && !(*file->setup.offloaded >= 0 && *file->setup.offloaded <= 1)) {
      std::abort();
    }
  } catch (const ridge::Error&) {
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      "INFO 01-02 10:01:10 Engine 000: Avg prompt throughput: 10.0 tokens/s, Avg generation "
      "throughput: 2,000.0 tokens/s, Running: 60 reqs, Waiting: 8 reqs, GPU KV cache usage: 90.0%, "
      "Prefix cache hit rate: 10.0%\nSpecDecoding metrics: Mean acceptance length: 2.50, "
      "Per-position acceptance rate: 0.900, 0.600, Avg Draft acceptance rate: 60.0%\n",
      "Initializing an LLM engine (v0.4.2) with config: model='a/b', dtype=torch.float16, "
      "tensor_parallel_size=4, quantization=awq, enforce_eager=True, max_num_seqs=9\n# GPU blocks: "
      "1000\n'cudagraph_capture_sizes': [8, 4]\n",
      "[2026-01-02 10:01:02 DP0 TP0] Decode batch. #running-req: 200, #token: 9000, token usage: "
      "0.80, accept len: 3.00, cuda graph: True, gen throughput (token/s): 12.00, #queue-req: 5,\n"
      "Prefill batch. #new-seq: 2, #new-token: 900, #cached-token: 100\n#retracted_reqs: 2\n"
      "server_args=ServerArgs(model_path='a', tp_size=8)\nCapture cuda graph bs [1, 2]\n",
      "slot print_timing: id  0 | prompt eval time = 500.00 ms / 100 tokens\n eval time = 2000.00 "
      "ms "
      "/ 50 tokens\noffloaded 20/33 layers to GPU\nprint_info: file size = 4.5 GiB\n",
      "prompt eval rate: 200 tokens/s\neval rate: 50.00 tokens/s\n",
      "total_time=\"2.5s\" queue_time=\"500ms\" time_per_token=\"20ms\"\n",
  };
}
