// Greedy sampling: the index of the largest logit of each row.
#pragma once

#include <cuda_runtime.h>

namespace ridge::cuda {

// argmax[row] = index of the largest of logits[row][vocab]; of equal logits the lowest index.
// `keys`: scratch for one 64-bit key per row, zero before the first call and zero again after each.
// Queues dependent launches (device.cuh).
void argmax_rows(cudaStream_t stream, const float* logits, int rows, int vocab,
                 unsigned long long* keys, int* argmax);

}  // namespace ridge::cuda
