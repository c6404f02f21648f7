#include "base/ptx/execution.cuh"
#include "base/ptx/hopper.cuh"
#include "engine/cuda/device/device.cuh"
#include "engine/cuda/elementwise/fp8_tokens.cuh"
#include "engine/cuda/elementwise/quantize_tokens.cuh"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 512;

#ifdef RIDGE_HOPPER
constexpr int kWarps = kThreads / 32;
#endif

// One block for the 8 tokens of a core matrix. Lane l has token l % 8 and 16 of 64 columns. The
// block reads its tokens twice, the second time mostly from L2.
__global__ void __launch_bounds__(kThreads, 2)
    quantize_tokens_kernel(const __grid_constant__ QuantizeTokensArgs a) {
#ifdef RIDGE_HOPPER
  __shared__ uint32_t largest[kWarps][8];
  ptx::griddepcontrol_launch_dependents();
  ptx::griddepcontrol_wait();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, token = lane % 8;
  const auto load = [&](int step, int half) {
    const uint16_t* from =
        a.x + wide_at(step * 64 + lane / 8 * 16 + half * 8, int(blockIdx.x) * 8 + token, a.padded);
    return *reinterpret_cast<const uint4*>(from);
  };
  uint32_t magnitude = 0;
#pragma unroll 4
  for (int step = warp; step < a.columns / 64; step += kWarps) {
    magnitude =
        max_u16x2(magnitude, max_u16x2(magnitudes(load(step, 0)), magnitudes(load(step, 1))));
  }
  magnitude = max_u16x2(magnitude, __shfl_xor_sync(0xffffffffu, magnitude, 8));
  magnitude = max_u16x2(magnitude, __shfl_xor_sync(0xffffffffu, magnitude, 16));
  if (lane < 8) largest[warp][lane] = max(magnitude & 0xffffu, magnitude >> 16);
  __syncthreads();
  magnitude = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) magnitude = max(magnitude, largest[w][token]);
  const Quantization quantized = quantization<KvFormat::fp8>(bf16_value(uint16_t(magnitude)));
  if (warp == 0 && lane < 8) a.scale[blockIdx.x * 8 + lane] = quantized.scale;
#pragma unroll 4
  for (int step = warp; step < a.columns / 64; step += kWarps) {
    *reinterpret_cast<uint4*>(
        a.out + fp8_at(step * 64 + lane / 8 * 16, int(blockIdx.x) * 8 + token, a.padded)) =
        quantize_16(load(step, 0), load(step, 1), quantized.factor);
  }
#endif
}

}  // namespace

void quantize_tokens(cudaStream_t stream, const QuantizeTokensArgs& args) {
  [[maybe_unused]] static const bool ready = prefer_max_shared_memory(quantize_tokens_kernel);
  launch_dependent(quantize_tokens_kernel, dim3(args.padded / 8), kThreads, 0, stream, args);
}

}  // namespace ridge::cuda
