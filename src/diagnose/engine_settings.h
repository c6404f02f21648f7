// What a change of the setup is called in each engine.
#pragma once

#include <cstdint>
#include <string_view>

namespace ridge {

enum class Change : uint8_t {
  more_sequences,        // a higher limit of sequences that run at once
  kv_room,               // more of the memory for the KV cache
  kv_fp8,                // KV in 8 bits
  less_reservation,      // admit requests that reserve less of the cache
  smaller_chunk,         // fewer prompt tokens a step: smoother decode
  larger_chunk,          // more prompt tokens a step: faster prefill
  cuda_graphs,           // launch decode steps from CUDA graphs
  graph_sizes,           // graphs for larger batches
  host_processes,        // more host processes and threads: API, tokenizer, detokenizer
  overlap_scheduling,    // schedule the next step while this one runs
  prefix_caching,        // keep prompts' KV for later requests
  speculation,           // verify drafted tokens
  fewer_drafts,          // fewer draft tokens a step
  device_layers,         // all weights in the device's memory
  quantized_weights,     // weights in fewer bits
  tensor_parallel,       // size of the tensor-parallel group
  data_parallel,         // replicas in one engine
  disaggregation,        // prefill and decode on different devices
  custom_all_reduce,     // the all-reduce that the engine runs inside a node
  more_client_requests,  // requests that the engine accepts before it refuses
  count_
};
inline constexpr size_t kChanges = static_cast<size_t>(Change::count_);

// The setting's name as its documentation writes it, with the value where there is one useful
// value:
// "--kv-cache-dtype fp8". Empty where the engine is not known or has no such setting. Engines are
// named as in RunSetup: vllm, sglang, trtllm, tgi, llama.cpp, ollama, nim, ridge.
std::string_view engine_setting(std::string_view engine, Change change);

}  // namespace ridge
