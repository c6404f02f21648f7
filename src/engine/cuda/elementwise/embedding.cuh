// Token embedding: the first operator of a step.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ridge::cuda {

// Rows of the embedding of all tokens, or of this rank's part of the vocabulary.
struct EmbeddingRows {
  const uint16_t* data;  // [count][hidden] in bf16
  int first, count;      // ids of its tokens
};

// residual[i] = scale * the row of tokens[i], for `count` tokens; zeros where that is not here.
// Queues a dependent launch (device.cuh).
void embed(cudaStream_t stream, const int* tokens, int count, const EmbeddingRows& table,
           int hidden, float scale, float* residual);

}  // namespace ridge::cuda
