// RoPE for the tokens of a step, and the append of their keys and values to the KV cache.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "base/weight_format.h"

namespace ridge::cuda {

// Where a token's key and value go in the cache.
struct KvSlot {
  int position;    // in its sequence
  int page, slot;  // page number, and the token's index in that page
};

// Consecutive tokens of one sequence that lie in the same half page (at most 8).
struct RopeRun {
  int row, count;  // first token of the step, number of tokens
};

// Applies q/k norms (optional) and RoPE. Queries go to bf16 rows, keys and values to the cache.
struct RopeArgs {
  const float* qkv;  // [token][(heads + 2 kv_heads) head_dim]
  int heads, kv_heads, head_dim;
  const RopeRun* runs;
  int count;
  const float* q_norm;  // [head_dim]; null: none
  const float* k_norm;  // [head_dim]; null: none
  float eps;
  const float* frequency;  // [head_dim / 2]
  float magnitude;
  const KvSlot* kv_slots;  // [token]
  uint16_t* q;             // [token][heads * head_dim]
  uint8_t* kv;             // this layer's pages
};
// Queues a dependent launch (device.cuh).
void rope_and_append(cudaStream_t stream, KvFormat format, const RopeArgs& args);

}  // namespace ridge::cuda
