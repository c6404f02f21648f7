#include "diagnose/engine_settings.h"

#include <span>

namespace ridge {
namespace {

struct EngineSetting {
  Change change;
  std::string_view name;
};

using C = Change;

// docs.vllm.ai, engine arguments and `vllm serve`; max-cudagraph-capture-size since 0.11.
constexpr EngineSetting kVllmSettings[] = {
    {C::more_sequences, "--max-num-seqs"},
    {C::kv_room, "--gpu-memory-utilization"},
    {C::kv_fp8, "--kv-cache-dtype fp8"},
    {C::less_reservation, "--max-model-len"},
    {C::smaller_chunk, "--max-num-batched-tokens"},
    {C::larger_chunk, "--max-num-batched-tokens"},
    {C::cuda_graphs, "without --enforce-eager"},
    {C::graph_sizes, "--max-cudagraph-capture-size"},
    {C::host_processes, "--api-server-count, OMP_NUM_THREADS, more CPU cores"},
    {C::overlap_scheduling, "--async-scheduling"},
    {C::prefix_caching, "--enable-prefix-caching"},
    {C::speculation, "--speculative-config"},
    {C::fewer_drafts, "--speculative-config num_speculative_tokens"},
    {C::device_layers, "--cpu-offload-gb 0"},
    {C::quantized_weights, "--quantization fp8, or a quantized checkpoint"},
    {C::tensor_parallel, "--tensor-parallel-size"},
    {C::data_parallel, "--data-parallel-size"},
    {C::disaggregation, "--kv-transfer-config"},
    {C::custom_all_reduce, "without --disable-custom-all-reduce"},
};

// docs.sglang.io, server arguments and hyperparameter tuning.
constexpr EngineSetting kSglangSettings[] = {
    {C::more_sequences, "--max-running-requests"},
    {C::kv_room, "--mem-fraction-static"},
    {C::kv_fp8, "--kv-cache-dtype fp8_e4m3"},
    {C::less_reservation, "--schedule-conservativeness 0.3"},
    {C::smaller_chunk, "--chunked-prefill-size"},
    {C::larger_chunk, "--chunked-prefill-size"},
    {C::cuda_graphs, "without --disable-cuda-graph"},
    {C::graph_sizes, "--cuda-graph-max-bs"},
    {C::host_processes, "--tokenizer-worker-num, --stream-interval, more CPU cores"},
    {C::overlap_scheduling, "without --disable-overlap-schedule"},
    {C::prefix_caching, "without --disable-radix-cache, --schedule-policy lpm"},
    {C::speculation, "--speculative-algorithm"},
    {C::fewer_drafts, "--speculative-num-steps, --speculative-num-draft-tokens"},
    {C::device_layers, "--cpu-offload-gb 0"},
    {C::quantized_weights, "--quantization fp8, or a quantized checkpoint"},
    {C::tensor_parallel, "--tp-size"},
    {C::data_parallel, "--dp-size"},
    {C::disaggregation, "--disaggregation-mode"},
    {C::custom_all_reduce, "without --disable-custom-all-reduce"},
    {C::more_client_requests, "--max-queued-requests"},
};

// nvidia.github.io/TensorRT-LLM, `trtllm-serve` and its --config file (LlmArgs).
constexpr EngineSetting kTrtllmSettings[] = {
    {C::more_sequences, "max_batch_size"},
    {C::kv_room, "kv_cache_config.free_gpu_memory_fraction"},
    {C::kv_fp8, "kv_cache_config.dtype: fp8"},
    {C::less_reservation, "scheduler_config.capacity_scheduler_policy: MAX_UTILIZATION"},
    {C::smaller_chunk, "max_num_tokens with enable_chunked_prefill"},
    {C::larger_chunk, "max_num_tokens"},
    {C::cuda_graphs, "cuda_graph_config.enable_padding: true"},
    {C::graph_sizes, "cuda_graph_config.max_batch_size"},
    {C::host_processes, "num_postprocess_workers, stream_interval"},
    {C::overlap_scheduling, "disable_overlap_scheduler: false"},
    {C::prefix_caching, "kv_cache_config.enable_block_reuse: true"},
    {C::speculation, "speculative_config"},
    {C::fewer_drafts, "speculative_config.max_draft_len"},
    {C::quantized_weights, "a quantized checkpoint (FP8, NVFP4)"},
    {C::tensor_parallel, "--tp_size"},
    {C::disaggregation, "cache_transceiver_config, trtllm-serve disaggregated"},
    {C::custom_all_reduce, "allreduce_strategy"},
};

// Text Generation Inference, text-generation-launcher. The batch is bounded by tokens.
constexpr EngineSetting kTgiSettings[] = {
    {C::more_sequences, "--max-batch-total-tokens"},
    {C::kv_room, "--cuda-memory-fraction"},
    {C::kv_fp8, "--kv-cache-dtype fp8_e4m3fn"},
    {C::less_reservation, "--max-total-tokens, the requests' max_new_tokens"},
    {C::smaller_chunk, "--max-batch-prefill-tokens"},
    {C::larger_chunk, "--max-batch-prefill-tokens"},
    {C::cuda_graphs, "--cuda-graphs"},
    {C::graph_sizes, "--cuda-graphs"},
    {C::host_processes, "--validation-workers"},
    {C::prefix_caching, "PREFIX_CACHING=1"},
    {C::speculation, "--speculate"},
    {C::fewer_drafts, "--speculate"},
    {C::quantized_weights, "--quantize fp8, or a quantized checkpoint"},
    {C::tensor_parallel, "--num-shard"},
    {C::custom_all_reduce, "without --disable-custom-kernels"},
    {C::more_client_requests, "--max-concurrent-requests"},
};

// llama-server; --spec-draft-n-max was --draft-max before 2026.
constexpr EngineSetting kLlamaSettings[] = {
    {C::more_sequences, "--parallel"},
    {C::kv_room, "--ctx-size"},
    {C::kv_fp8, "--cache-type-k q8_0 --cache-type-v q8_0"},
    {C::less_reservation, "--kv-unified"},
    {C::smaller_chunk, "--ubatch-size"},
    {C::larger_chunk, "--ubatch-size"},
    {C::cuda_graphs, "without GGML_CUDA_DISABLE_GRAPHS"},
    {C::host_processes, "--threads, --threads-http"},
    {C::prefix_caching, "--cache-prompt, --cache-reuse"},
    {C::speculation, "--model-draft"},
    {C::fewer_drafts, "--spec-draft-n-max"},
    {C::device_layers, "-ngl 99"},
    {C::quantized_weights, "a GGUF file with fewer bits"},
    {C::tensor_parallel, "--split-mode row"},
};

// docs.ollama.com: environment of the server, parameters of the model.
constexpr EngineSetting kOllamaSettings[] = {
    {C::more_sequences, "OLLAMA_NUM_PARALLEL"},
    {C::kv_room, "num_ctx (OLLAMA_CONTEXT_LENGTH)"},
    {C::kv_fp8, "OLLAMA_KV_CACHE_TYPE=q8_0 with OLLAMA_FLASH_ATTENTION=1"},
    {C::less_reservation, "num_ctx (OLLAMA_CONTEXT_LENGTH)"},
    {C::smaller_chunk, "num_batch"},
    {C::larger_chunk, "num_batch"},
    {C::host_processes, "num_thread"},
    {C::device_layers, "num_gpu"},
    {C::quantized_weights, "a tag with fewer bits (q4_K_M)"},
    {C::more_client_requests, "OLLAMA_MAX_QUEUE"},
};

// docs.nvidia.com/nim: variables of its own; version 2 hands NIM_PASSTHROUGH_ARGS to vLLM.
constexpr EngineSetting kNimSettings[] = {
    {C::more_sequences, "NIM_PASSTHROUGH_ARGS=\"--max-num-seqs ..\""},
    {C::kv_room, "NIM_KVCACHE_PERCENT"},
    {C::kv_fp8, "NIM_PASSTHROUGH_ARGS=\"--kv-cache-dtype fp8\""},
    {C::less_reservation, "NIM_MAX_MODEL_LEN"},
    {C::smaller_chunk, "NIM_PASSTHROUGH_ARGS=\"--max-num-batched-tokens ..\""},
    {C::larger_chunk, "NIM_PASSTHROUGH_ARGS=\"--max-num-batched-tokens ..\""},
    {C::cuda_graphs, "NIM_PASSTHROUGH_ARGS without --enforce-eager"},
    {C::graph_sizes, "NIM_PASSTHROUGH_ARGS=\"--max-cudagraph-capture-size ..\""},
    {C::host_processes, "NIM_PASSTHROUGH_ARGS=\"--api-server-count ..\""},
    {C::prefix_caching, "NIM_ENABLE_KV_CACHE_REUSE=1"},
    {C::speculation, "NIM_PASSTHROUGH_ARGS=\"--speculative-config ..\""},
    {C::fewer_drafts, "NIM_PASSTHROUGH_ARGS=\"--speculative-config ..\""},
    {C::quantized_weights, "NIM_MODEL_PROFILE of an fp8 or int4 profile"},
    {C::tensor_parallel, "NIM_TENSOR_PARALLEL_SIZE"},
};

constexpr EngineSetting kRidgeSettings[] = {
    {C::more_sequences, "--max-sequences"},
    {C::kv_room, "--kv-tokens"},
    {C::kv_fp8, "--kv fp8"},
    {C::less_reservation, "--context"},
    {C::smaller_chunk, "--chunk"},
    {C::larger_chunk, "--chunk"},
    {C::host_processes, "--threads"},
    {C::prefix_caching, "without --no-prefix-cache"},
    {C::speculation, "--speculate, --draft"},
    {C::fewer_drafts, "--speculate"},
    {C::device_layers, "--device cuda"},
    {C::quantized_weights, "--format"},
    {C::more_client_requests, "--max-waiting"},
};

std::span<const EngineSetting> settings_of(std::string_view engine) {
  if (engine == "vllm") return kVllmSettings;
  if (engine == "sglang") return kSglangSettings;
  if (engine == "trtllm") return kTrtllmSettings;
  if (engine == "tgi") return kTgiSettings;
  if (engine == "llama.cpp") return kLlamaSettings;
  if (engine == "ollama") return kOllamaSettings;
  if (engine == "nim") return kNimSettings;
  if (engine == "ridge") return kRidgeSettings;
  return {};
}

}  // namespace

std::string_view engine_setting(std::string_view engine, Change change) {
  for (const EngineSetting& setting : settings_of(engine)) {
    if (setting.change == change) return setting.name;
  }
  return {};
}

}  // namespace ridge
