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

EvidenceFile read_log(const std::string& text) {
  const std::optional<EvidenceFile> file = read_engine_log(text, "server.log");
  if (!file) throw Error("not recognised");
  return *file;
}

TEST(EngineLog, VllmV1) {
  const EvidenceFile file = read_log(
      "INFO 01-02 10:00:00 [core.py:58] Initializing a V1 LLM engine (v0.9.1) with config: "
      "model='some/model-8b', speculative_config=None, dtype=torch.bfloat16, max_seq_len=8192, "
      "tensor_parallel_size=2, quantization=None, enforce_eager=False, kv_cache_dtype=fp8, "
      "enable_prefix_caching=True, compilation_config={\"level\":3,\"cudagraph_capture_sizes\":"
      "[512,504,496,8,4,2,1],\"max_capture_size\":512}\n"
      "INFO 01-02 10:00:05 [api_server.py] non-default args: {'model': 'some/model-8b', "
      "'max_num_seqs': 64}\n"
      "INFO 01-02 10:00:09 [kv_cache_utils.py:634] GPU KV cache size: 123,456 tokens\n"
      "INFO 01-02 10:00:09 Maximum concurrency for 8,192 tokens per request: 15.07x\n"
      "INFO 01-02 10:00:20 Graph capturing finished in 20 secs, took 0.5 GiB\n"
      "INFO 01-02 10:01:00 [loggers.py:116] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg "
      "generation throughput: 0.0 tokens/s, Running: 0 reqs, Waiting: 0 reqs, GPU KV cache usage: "
      "0.0%, Prefix cache hit rate: 0.0%\n"
      "\x1b[32mINFO\x1b[0m 01-02 10:01:10 [loggers.py:116] Engine 000: Avg prompt throughput: "
      "1000.0 tokens/s, Avg generation throughput: 2,000.0 tokens/s, Running: 60 reqs, Waiting: 8 "
      "reqs, GPU KV cache usage: 90.0%, Prefix cache hit rate: 10.0%\n"
      "INFO 01-02 10:01:20 [loggers.py:116] Engine 000: Avg prompt throughput: 3000.0 tokens/s, "
      "Avg "
      "generation throughput: 2200.0 tokens/s, Running: 64 reqs, Waiting: 12 reqs, GPU KV cache "
      "usage: 98.0%, Prefix cache hit rate: 20.0%\n"
      "INFO 01-02 10:01:20 SpecDecoding metrics: Mean acceptance length: 2.50, Accepted "
      "throughput: "
      "9.00 tokens/s, Per-position acceptance rate: 0.900, 0.600, 0.300, Avg Draft acceptance "
      "rate: "
      "60.0%\n");
  EXPECT_EQ(file.kind, "vLLM log");
  EXPECT_EQ(file.setup.engine, "vllm");
  EXPECT_EQ(file.setup.version, "0.9.1");
  EXPECT_EQ(file.setup.model, "some/model-8b");
  EXPECT_EQ(file.setup.tp, 2);
  EXPECT_EQ(file.setup.weights, "bf16");
  EXPECT_EQ(file.setup.kv, "fp8");
  EXPECT_EQ(file.setup.eager, false);
  EXPECT_EQ(file.setup.prefix_caching, true);
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 2100);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt_tokens_per_s), 2000);
  EXPECT_DOUBLE_EQ(value_of(file, Q::running), 62);
  EXPECT_DOUBLE_EQ(value_of(file, Q::waiting), 10);
  EXPECT_DOUBLE_EQ(value_of(file, Q::kv_usage), 0.94);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt_hit), 0.2);
  EXPECT_DOUBLE_EQ(value_of(file, Q::max_running), 64);
  EXPECT_DOUBLE_EQ(value_of(file, Q::kv_tokens), 123456);
  EXPECT_DOUBLE_EQ(value_of(file, Q::graph_max), 512);
  EXPECT_DOUBLE_EQ(value_of(file, Q::accepted), 1.5);
  EXPECT_DOUBLE_EQ(value_of(file, Q::drafted), 3);
  EXPECT_DOUBLE_EQ(value_of(file, Q::preemptions), 0);
  EXPECT_TRUE(has_note(file, "2 of 3 lines"));
}

TEST(EngineLog, VllmV0) {
  const EvidenceFile file = read_log(
      "INFO 05-12 12:00:00 llm_engine.py:100] Initializing an LLM engine (v0.4.2) with config: "
      "model='some/model-70b-AWQ', tensor_parallel_size=4, quantization=awq, enforce_eager=True, "
      "kv_cache_dtype=auto)\n"
      "INFO 05-12 12:10:00 # GPU blocks: 1000, # CPU blocks: 512\n"
      "WARNING 05-12 12:11:20 scheduler.py:1057] Sequence group 7 is preempted by "
      "PreemptionMode.RECOMPUTE mode because there is not enough KV cache space. "
      "total_cumulative_preemption_cnt=51\n"
      "INFO 05-12 12:11:25 metrics.py:334] Avg prompt throughput: 650.0 tokens/s, Avg generation "
      "throughput: 69.0 tokens/s, Running: 4 reqs, Swapped: 1 reqs, Pending: 2 reqs, GPU KV cache "
      "usage: 99.5%, CPU KV cache usage: 0.0%.\n"
      "INFO 05-12 12:11:25 metrics.py:350] Prefix cache hit rate: GPU: 45.00%, CPU: 0.00%\n");
  EXPECT_EQ(file.setup.weights, "awq");
  EXPECT_EQ(file.setup.eager, true);
  EXPECT_EQ(file.setup.tp, 4);
  EXPECT_DOUBLE_EQ(value_of(file, Q::kv_tokens), 16000);
  EXPECT_DOUBLE_EQ(value_of(file, Q::preemptions), 51);
  EXPECT_DOUBLE_EQ(value_of(file, Q::waiting), 3);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt_hit), 0.45);
}

TEST(EngineLog, DataParallelEnginesAdd) {
  std::string text;
  for (const char* engine : {"000", "001", "000", "001"}) {
    text += std::string("INFO 10:00:00 Engine ") + engine +
            ": Avg prompt throughput: 10.0 tokens/s, Avg generation throughput: 100.0 tokens/s, "
            "Running: 5 reqs, Waiting: 1 reqs, GPU KV cache usage: 20.0%\n";
  }
  const EvidenceFile file = read_log(text);
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 200);
  EXPECT_DOUBLE_EQ(value_of(file, Q::running), 10);
  EXPECT_DOUBLE_EQ(value_of(file, Q::kv_usage), 0.2);
  EXPECT_EQ(file.setup.dp, 2);
}

TEST(EngineLog, Sglang) {
  const EvidenceFile file = read_log(
      "[2026-01-02 10:00:00] server_args=ServerArgs(model_path='some/model', tp_size=8, "
      "quantization='fp8', kv_cache_dtype='auto', disable_cuda_graph=False, "
      "disable_radix_cache=True, max_running_requests=None)\n"
      "[2026-01-02 10:00:09 TP0] max_total_num_tokens=447386, chunked_prefill_size=8192, "
      "max_running_requests=2048, context_len=131072\n"
      "[2026-01-02 10:00:19 TP0] Capture cuda graph bs [1, 2, 4, 8, 160]\n"
      "[2026-01-02 10:01:00 TP0] Prefill batch. #new-seq: 2, #new-token: 900, #cached-token: 100, "
      "token usage: 0.10, #running-req: 3, #queue-req: 0\n"
      "[2026-01-02 10:01:02 TP0] Decode batch. #running-req: 200, #token: 9000, token usage: 0.80, "
      "cuda graph: True, gen throughput (token/s): 12.00, #queue-req: 5,\n"
      "[2026-01-02 10:01:05 TP0] Decode batch. #running-req: 200, #token: 9000, token usage: 0.82, "
      "accept len: 3.00, cuda graph: True, gen throughput (token/s): 4000.00, #queue-req: 5,\n"
      "[2026-01-02 10:01:10 TP0] Decode batch. #running-req: 200, #token: 9000, token usage: 0.84, "
      "accept len: 3.00, cuda graph: False, gen throughput (token/s): 4100.00, #queue-req: 5,\n"
      "[2026-01-02 10:01:10 TP0] KV cache pool is full. Retract requests. #retracted_reqs: 2, "
      "#new_token_ratio: 0.5 -> 0.9\n");
  EXPECT_EQ(file.kind, "SGLang log");
  EXPECT_EQ(file.setup.model, "some/model");
  EXPECT_EQ(file.setup.tp, 8);
  EXPECT_EQ(file.setup.weights, "fp8");
  EXPECT_EQ(file.setup.prefix_caching, false);
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 4000);  // the pause before does not count
  EXPECT_DOUBLE_EQ(value_of(file, Q::batch), 200);
  EXPECT_DOUBLE_EQ(value_of(file, Q::waiting), 5);
  EXPECT_NEAR(value_of(file, Q::kv_usage), 0.82, 1e-9);
  EXPECT_NEAR(value_of(file, Q::graph_share), 2. / 3, 1e-9);
  EXPECT_DOUBLE_EQ(value_of(file, Q::accepted), 2);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt_hit), 0.1);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt_tokens_per_s), 100);
  EXPECT_DOUBLE_EQ(value_of(file, Q::preemptions), 2);
  EXPECT_DOUBLE_EQ(value_of(file, Q::max_running), 2048);
  EXPECT_DOUBLE_EQ(value_of(file, Q::kv_tokens), 447386);
  EXPECT_DOUBLE_EQ(value_of(file, Q::graph_max), 160);
}

TEST(EngineLog, LlamaCpp) {
  const EvidenceFile file = read_log(
      "ggml_cuda_init: found 1 CUDA devices:\n"
      "  Device 0: NVIDIA GeForce RTX 3060, compute capability 8.6, VMM: yes\n"
      "print_info: file type   = Q4_K - Medium\n"
      "print_info: file size   = 4.50 GiB (4.89 BPW)\n"
      "print_info: general.name     = Some 8B Instruct\n"
      "load_tensors: offloaded 20/33 layers to GPU\n"
      "srv    load_model: initializing slots, n_slots = 4\n"
      "slot print_timing: id  0 | task 0 |\n"
      "prompt eval time =     500.00 ms /   100 tokens (    5.00 ms per token,   200.00 tokens per "
      "second)\n"
      "       eval time =    2000.00 ms /    50 tokens (   40.00 ms per token,    25.00 tokens per "
      "second)\n"
      "      total time =    2500.00 ms /   150 tokens\n");
  EXPECT_EQ(file.setup.engine, "llama.cpp");
  EXPECT_EQ(file.setup.device, "NVIDIA GeForce RTX 3060");
  EXPECT_EQ(file.setup.model, "Some 8B Instruct");
  EXPECT_EQ(file.setup.weights, "q4_k_m");
  EXPECT_NEAR(file.setup.weight_bytes, 4.5 * 0x1p30, 1);
  EXPECT_NEAR(*file.setup.offloaded, 13. / 33, 1e-9);
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl), 0.04);
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 25);
  EXPECT_DOUBLE_EQ(value_of(file, Q::batch), 1);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prefill_time), 0.5);
  EXPECT_DOUBLE_EQ(value_of(file, Q::prompt), 100);
  EXPECT_DOUBLE_EQ(value_of(file, Q::max_running), 4);
  // With several slots the speed of one is not that of the server.
  const EvidenceFile slots = read_log(
      "slot print_timing: id  0 | task 0 | eval time = 200.00 ms / 50 tokens (4.00 ms per token)\n"
      "slot print_timing: id  1 | task 1 | eval time = 200.00 ms / 50 tokens (4.00 ms per "
      "token)\n");
  EXPECT_FALSE(observed_value(slots, Q::tokens_per_s));
  EXPECT_DOUBLE_EQ(value_of(slots, Q::itl), 0.004);
}

TEST(EngineLog, OllamaAndTgi) {
  const EvidenceFile ollama = read_log(
      "total duration:       4.5s\nprompt eval count:    26 token(s)\n"
      "prompt eval duration: 130ms\nprompt eval rate:     200.00 tokens/s\n"
      "eval count:           250 token(s)\neval duration:        4.2s\n"
      "eval rate:            50.00 tokens/s\n");
  EXPECT_EQ(ollama.setup.engine, "ollama");
  EXPECT_DOUBLE_EQ(value_of(ollama, Q::tokens_per_s), 50);
  EXPECT_DOUBLE_EQ(value_of(ollama, Q::prefill_time), 0.13);

  const EvidenceFile tgi = read_log(
      "2026-01-02T10:00:00Z INFO generate{total_time=\"2.5s\" validation_time=\"300.5\xc2\xb5s\" "
      "queue_time=\"500ms\" inference_time=\"2s\" time_per_token=\"20ms\" seed=None}: Success\n");
  EXPECT_EQ(tgi.setup.engine, "tgi");
  EXPECT_DOUBLE_EQ(value_of(tgi, Q::itl), 0.02);
  EXPECT_DOUBLE_EQ(value_of(tgi, Q::queue_time), 0.5);
  EXPECT_DOUBLE_EQ(value_of(tgi, Q::e2e), 2.5);
}

// One line that says enough.
TEST(EngineLog, SingleLines) {
  const EvidenceFile warning = read_log(
      "WARNING 01-02 10:00:00 scheduler.py:1754] Sequence group 21 is preempted by RECOMPUTE, "
      "total_num_cumulative_preemption=101\n");
  EXPECT_EQ(value_of(warning, Q::preemptions), 101);
  const EvidenceFile layers = read_log("load_tensors: offloaded 5/37 layers to GPU\n");
  EXPECT_NEAR(*layers.setup.offloaded, 32. / 37, 1e-9);
  const char* head = "NAME  ID  SIZE  PROCESSOR  UNTIL\n";
  const EvidenceFile split =
      read_log(std::string(head) + "some:70b  abc  41 GB   42%/58% CPU/GPU 4 minutes from now\n");
  EXPECT_EQ(split.setup.model, "some:70b");
  EXPECT_NEAR(*split.setup.offloaded, 0.42, 1e-9);
  const EvidenceFile device = read_log("some:8b  abc  5.4 GB  100% GPU  4 minutes from now\n");
  EXPECT_EQ(*device.setup.offloaded, 0);
  const EvidenceFile drafts = read_log(
      "[2025-01-02 10:00:00] Decode batch, #running-req: 1, #token: 353, token usage: 0.00, accept "
      "len: 2.16, accept rate: 0.54, gen throughput (token/s): 178.9, #queue-req: 0\n");
  EXPECT_EQ(value_of(drafts, Q::drafted), 3);
}

TEST(EngineLog, RunSettings) {
  const EvidenceFile file = read_log(
      "{\"model\": \"some/model\", \"vllm_version\": \"0.19.0\", \"engine_kwargs\": "
      "{\"tensor_parallel_size\": 2, \"max_num_seqs\": 64, \"dtype\": \"bfloat16\"}, "
      "\"kv_cache\": {\"num_kv_tokens\": 41408}, \"hardware\": {\"device_name\": \"NVIDIA "
      "A10\", \"device_count\": 2}}");
  EXPECT_EQ(file.setup.model, "some/model");
  EXPECT_EQ(file.setup.device, "NVIDIA A10");
  EXPECT_EQ(file.setup.tp, 2);
  EXPECT_EQ(file.setup.devices, 2);
  EXPECT_DOUBLE_EQ(value_of(file, Q::kv_tokens), 41408);
  EXPECT_DOUBLE_EQ(value_of(file, Q::max_running), 64);
  EXPECT_THROW(read_engine_log("{\"engine_kwargs\": 5}", "x"), Error);
}

// 2588 blocks of 16 tokens on an RTX 4090.
TEST(EngineLog, RealRunSettings) {
  const std::filesystem::path path = evidence_folder() / "serving/rtx4090_llama-3.1-8b/meta.json";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is not there";
  const std::string text = read_file(path.string(), 1 << 20);
  EXPECT_FALSE(read_benchmark_result(text, "x"));
  EXPECT_FALSE(read_request_log(text, "x"));
  const EvidenceFile file = read_log(text);
  EXPECT_EQ(file.setup.device, "NVIDIA GeForce RTX 4090");
  EXPECT_EQ(file.setup.model, "meta-llama/Llama-3.1-8B");
  EXPECT_DOUBLE_EQ(value_of(file, Q::kv_tokens), 2588 * 16);
  EXPECT_DOUBLE_EQ(value_of(file, Q::max_running), 256);
}

TEST(EngineLog, Hostile) {
  EXPECT_FALSE(read_engine_log("", "x"));
  EXPECT_FALSE(read_engine_log("nothing here\nRunning: 5 reqs\n", "x"));
  EXPECT_FALSE(read_engine_log("{\"a\": 1}", "x"));
  // Idle all the time: no load, no speed, but preemptions can be told.
  const EvidenceFile idle = read_log(
      "Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 0 "
      "reqs, Waiting: 0 reqs, GPU KV cache usage: 0.0%\n");
  EXPECT_FALSE(observed_value(idle, Q::tokens_per_s));
  EXPECT_TRUE(has_note(idle, "0 of 1 lines"));
  // Numbers that are none, and lines that end in the middle.
  for (const char* text :
       {"Avg prompt throughput: nan tokens/s, Running: -5 reqs, Waiting:",
        "Decode batch. #running-req: 1e999, gen throughput (token/s): -3",
        "Decode batch. #running-req: 7", "eval time = -3 ms / 5 tokens", "eval rate:", "\x1b[",
        "Initializing an LLM engine (v", "ServerArgs(", "Capture cuda graph bs [",
        "offloaded 5/0 layers to GPU", "Mean acceptance length: 0.1"}) {
    try {
      read_engine_log(text, "x");
    } catch (const Error&) {
    }
  }
}

}  // namespace
}  // namespace ridge
