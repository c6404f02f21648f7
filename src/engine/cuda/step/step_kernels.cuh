// Small kernels between steps: tokens that the step before has chosen, and rows of logits of steps
// that take several launches.
#pragma once

#include <cuda_runtime.h>

#include "engine/cuda/decode/decode.cuh"

namespace ridge::cuda {

// tokens[i] = chosen[-1 - tokens[i]] where it is negative.
void resolve_sampled_tokens(cudaStream_t stream, int* tokens, int count, const int* chosen);

// Rows to copy and where they go.
struct RowMap {
  int from[kMaxRows] = {}, to[kMaxRows] = {};
  int count = 0;
  void add(int from_row, int to_row) {
    from[count] = from_row;
    to[count++] = to_row;
  }
};
// Copies rows of `vocab` logits and the argmax of each.
void copy_rows(cudaStream_t stream, const RowMap& map, int vocab, const float* logits,
               const int* argmax, float* to_logits, int* to_argmax);

}  // namespace ridge::cuda
