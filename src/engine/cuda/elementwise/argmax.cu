#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/scalar.cuh"
#include "engine/cuda/elementwise/argmax.cuh"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kBlocksPerRow = 8;

// keys[row] = the largest logit_key(logit, index) of the row, over kBlocksPerRow blocks.
__global__ void __launch_bounds__(kThreads)
    row_maximum_kernel(const float* logits, int vocab, unsigned long long* keys) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const float* row = logits + size_t(blockIdx.x) * vocab;
  unsigned long long key = 0;
  for (int i = blockIdx.y * kThreads + threadIdx.x; i < vocab; i += kBlocksPerRow * kThreads) {
    key = max(key, logit_key(row[i], i));
  }
  for (int offset = 16; offset; offset /= 2) {
    key = max(key, __shfl_xor_sync(0xffffffffu, key, offset));
  }
  if (threadIdx.x % 32 == 0) atomicMax(keys + blockIdx.x, key);
}

// Extracts the indices and clears the keys for the next call.
__global__ void index_kernel(unsigned long long* keys, int rows, int* argmax) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  for (int row = threadIdx.x; row < rows; row += blockDim.x) {
    argmax[row] = key_token(keys[row]);
    keys[row] = 0;
  }
}

}  // namespace

void argmax_rows(cudaStream_t stream, const float* logits, int rows, int vocab,
                 unsigned long long* keys, int* argmax) {
  launch_dependent(row_maximum_kernel, dim3(rows, kBlocksPerRow), kThreads, 0, stream, logits,
                   vocab, keys);
  launch_dependent(index_kernel, dim3(1), 256, 0, stream, keys, rows, argmax);
}

}  // namespace ridge::cuda
