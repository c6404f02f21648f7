// Token embedding: the first operator of a step.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ridge::cuda {

// residual[i] = scale * table[tokens[i]], for `count` tokens. `table` is [vocab][hidden] in bf16.
// Queues a dependent launch (device.cuh).
void embed(cudaStream_t stream, const int* tokens, int count, const uint16_t* table, int hidden,
           float scale, float* residual);

}  // namespace ridge::cuda
