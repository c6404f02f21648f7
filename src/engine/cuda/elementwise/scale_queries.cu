#include "base/ptx/execution.cuh"
#include "engine/cuda/device/device.cuh"
#include "engine/cuda/elementwise/scale_queries.cuh"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 256;

// One block per token.
__global__ void __launch_bounds__(kThreads)
    scale_queries_kernel(const __grid_constant__ ScaleQueriesArgs a) {
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const float position = static_cast<float>(a.kv_slots[blockIdx.x].position + 1);
  const float factor = 1 + a.scale * log1pf(floorf(position / a.floor));
  float4* row = reinterpret_cast<float4*>(a.qkv + size_t(blockIdx.x) * a.stride);
  for (int i = threadIdx.x; i < a.columns / 4; i += kThreads) {
    const float4 q = row[i];
    row[i] = {q.x * factor, q.y * factor, q.z * factor, q.w * factor};
  }
}

}  // namespace

void scale_queries(cudaStream_t stream, int tokens, const ScaleQueriesArgs& args) {
  launch_dependent(scale_queries_kernel, dim3(tokens), kThreads, 0, stream, args);
}

}  // namespace ridge::cuda
