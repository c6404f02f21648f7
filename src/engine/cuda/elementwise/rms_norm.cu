#include "base/ptx/async_copy.cuh"
#include "base/ptx/execution.cuh"
#include "engine/cuda/device.cuh"
#include "engine/cuda/elementwise/rms_norm.cuh"
#include "engine/cuda/elementwise/scalar.cuh"
#include "engine/cuda/layout/tiles.cuh"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 512, kWarps = kThreads / 32;

__device__ float block_sum(float value) {
  __shared__ float warp_sums[kWarps];
  for (int offset = 16; offset; offset /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, offset);
  }
  __syncthreads();  // an earlier sum has been read
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  value = 0;
  for (int w = 0; w < kWarps; ++w) value += warp_sums[w];
  return value;
}

__device__ float4 load_float4(const float* from, int i) {
  return reinterpret_cast<const float4*>(from)[i];
}
__device__ float squares(float4 v) { return v.x * v.x + v.y * v.y + v.z * v.z + v.w * v.w; }

// Four columns of what is added to a row of the residual.
__device__ __forceinline__ float4 added_float4(const RmsNormArgs& a, int row, int i) {
  if (a.added) return load_float4(a.added + size_t(row) * a.hidden, i);
  float4 sum = {0, 0, 0, 0};
  for (int k = 0; k < a.experts.top_k; ++k) {
    const int assignment = row * a.experts.top_k + k;
    const float4 y = load_float4(a.experts.rows + size_t(a.experts.slot[assignment]) * a.hidden, i);
    const float w = a.experts.weight[assignment];
    sum = {sum.x + w * y.x, sum.y + w * y.y, sum.z + w * y.z, sum.w + w * y.w};
  }
  return sum;
}

// One block per token. Rows are read twice, the second time from L1.
__global__ void __launch_bounds__(kThreads) rms_norm_kernel(const __grid_constant__ RmsNormArgs a) {
  ptx::griddepcontrol_launch_dependents();
  const int fours = a.hidden / 4;
  for (int i = threadIdx.x * 8; i < fours; i += kThreads * 8) {
    ptx::prefetch_l2(a.norm + i * 4);
    if (a.added_norm) ptx::prefetch_l2(a.added_norm + i * 4);
  }
  ptx::griddepcontrol_wait();
  const int row = a.rows ? a.rows[blockIdx.x] : blockIdx.x;
  float* residual = a.residual + size_t(row) * a.hidden;
  if (a.added || a.experts.rows) {
    float scale = 1;
    if (a.added_norm) {
      float sum = 0;
      for (int i = threadIdx.x; i < fours; i += kThreads) sum += squares(added_float4(a, row, i));
      scale = rsqrtf(block_sum(sum) / a.hidden + a.eps);
    }
    for (int i = threadIdx.x; i < fours; i += kThreads) {
      const float4 y = added_float4(a, row, i), one = {1, 1, 1, 1};
      const float4 w = a.added_norm ? load_float4(a.added_norm, i) : one;
      float4 r = load_float4(residual, i);
      r.x += y.x * scale * w.x, r.y += y.y * scale * w.y;
      r.z += y.z * scale * w.z, r.w += y.w * scale * w.w;
      reinterpret_cast<float4*>(residual)[i] = r;  // the same thread reads it below
    }
  }
  float sum = 0;
  for (int i = threadIdx.x; i < fours; i += kThreads) sum += squares(load_float4(residual, i));
  const float scale = rsqrtf(block_sum(sum) / a.hidden + a.eps);
  for (int i = threadIdx.x; i < fours; i += kThreads) {
    const float4 r = load_float4(residual, i), w = load_float4(a.norm, i);
    const uint2 packed = {pack_bf16(r.x * scale * w.x, r.y * scale * w.y),
                          pack_bf16(r.z * scale * w.z, r.w * scale * w.w)};
    *reinterpret_cast<uint2*>(a.out + wide_at(i * 4, blockIdx.x, a.padded)) = packed;
  }
}

}  // namespace

void rms_norm(cudaStream_t stream, const RmsNormArgs& args) {
  [[maybe_unused]] static const bool ready = prefer_max_shared_memory(rms_norm_kernel);
  launch_dependent(rms_norm_kernel, dim3(args.count), kThreads, 0, stream, args);
}

}  // namespace ridge::cuda
