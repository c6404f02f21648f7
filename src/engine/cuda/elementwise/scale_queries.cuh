// Llama 4's attention temperature: in layers without RoPE, queries are multiplied by a factor that
// grows with the logarithm of their position.
#pragma once

#include <cuda_runtime.h>

#include "engine/cuda/elementwise/rope.cuh"

namespace ridge::cuda {

// Multiplies the first `columns` of each row of qkv, in place, by 1 + scale ln(1 + floor((p + 1) /
// floor)), p the token's position.
struct ScaleQueriesArgs {
  float* qkv;           // [token][stride]
  int stride, columns;  // columns: a multiple of 4
  const KvSlot* kv_slots;
  float scale, floor;
};
// Queues a dependent launch (device.cuh).
void scale_queries(cudaStream_t stream, int tokens, const ScaleQueriesArgs& args);

}  // namespace ridge::cuda
