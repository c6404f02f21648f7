#include "engine/cuda/device/device.cuh"
#include "engine/cuda/step/step_kernels.cuh"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 256, kBlocksPerRow = 16;

__global__ void resolve_kernel(int* tokens, int count, const int* chosen) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i < count && tokens[i] < 0) tokens[i] = chosen[-1 - tokens[i]];
}

__global__ void copy_rows_kernel(const __grid_constant__ RowMap map, int vocab, const float* logits,
                                 const int* argmax, float* to_logits, int* to_argmax) {
  const int from = map.from[blockIdx.y], to = map.to[blockIdx.y];
  for (int i = blockIdx.x * kThreads + threadIdx.x; i < vocab; i += kBlocksPerRow * kThreads) {
    to_logits[size_t(to) * vocab + i] = logits[size_t(from) * vocab + i];
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) to_argmax[to] = argmax[from];
}

}  // namespace

void resolve_sampled_tokens(cudaStream_t stream, int* tokens, int count, const int* chosen) {
  resolve_kernel<<<(count + kThreads - 1) / kThreads, kThreads, 0, stream>>>(tokens, count, chosen);
  check(cudaGetLastError(), "resolving sampled tokens");
}

void copy_rows(cudaStream_t stream, const RowMap& map, int vocab, const float* logits,
               const int* argmax, float* to_logits, int* to_argmax) {
  copy_rows_kernel<<<dim3(kBlocksPerRow, map.count), kThreads, 0, stream>>>(
      map, vocab, logits, argmax, to_logits, to_argmax);
  check(cudaGetLastError(), "copying rows of logits");
}

}  // namespace ridge::cuda
