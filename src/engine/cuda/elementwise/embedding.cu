#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/scalar.cuh"
#include "engine/cuda/elementwise/embedding.cuh"

namespace ridge::cuda {
namespace {

// One block per token; tokens outside the table give zeros. The wait comes before the release of
// the next kernel: decode attention relies on it (decode_attention.cuh).
__global__ void embed_kernel(const int* tokens, EmbeddingRows table, int hidden, float scale,
                             float* residual) {
  ptx::griddepcontrol_wait();
  ptx::griddepcontrol_launch_dependents();
  const int row = tokens[blockIdx.x] - table.first;
  const bool here = row >= 0 && row < table.count;
  const uint16_t* from = table.data + size_t(here ? row : 0) * hidden;
  float* to = residual + size_t(blockIdx.x) * hidden;
  for (int c = threadIdx.x; c < hidden; c += blockDim.x) {
    to[c] = here ? bf16_value(from[c]) * scale : 0.0f;
  }
}

}  // namespace

void embed(cudaStream_t stream, const int* tokens, int count, const EmbeddingRows& table,
           int hidden, float scale, float* residual) {
  launch_dependent(embed_kernel, dim3(count), 256, 0, stream, tokens, table, hidden, scale,
                   residual);
}

}  // namespace ridge::cuda
