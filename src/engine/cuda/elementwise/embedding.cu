#include "engine/cuda/device.cuh"
#include "engine/cuda/elementwise/embedding.cuh"
#include "engine/cuda/elementwise/scalar.cuh"

namespace ridge::cuda {
namespace {

// One block per token. The wait comes before the release of the next kernel: decode attention
// relies on it (decode_attention.cuh).
__global__ void embed_kernel(const int* tokens, const uint16_t* table, int hidden, float scale,
                             float* residual) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const uint16_t* from = table + size_t(tokens[blockIdx.x]) * hidden;
  float* to = residual + size_t(blockIdx.x) * hidden;
  for (int c = threadIdx.x; c < hidden; c += blockDim.x) to[c] = bf16_value(from[c]) * scale;
}

}  // namespace

void embed(cudaStream_t stream, const int* tokens, int count, const uint16_t* table, int hidden,
           float scale, float* residual) {
  launch_dependent(embed_kernel, dim3(count), 256, 0, stream, tokens, table, hidden, scale,
                   residual);
}

}  // namespace ridge::cuda
