// Peaks of Hopper's warpgroup matrix instruction, operands from shared memory.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include "base/ptx/async_copy.cuh"
#include "base/ptx/hopper.cuh"
#include "base/ptx/wgmma.cuh"
#include "measure/cuda/run.cuh"
#include "measure/cuda/tensor.cuh"

namespace ridge {
namespace {

// One instruction multiplies A (64 rows) by B (256 columns), 32 bytes of K each, whatever the type.
// Tiles hold 128 bytes of K in rows of 128 bytes, swizzled: four instructions a tile.
constexpr int kGroups = 2;  // warpgroups per block: one issues while the other's queue drains
constexpr int kThreads = kGroups * 128;
constexpr int kTileA = 64 * 128, kTileB = 256 * 128;
constexpr int kShared = kGroups * kTileA + kTileB + 1024;  // and room to align to 1 KB
constexpr int kStepsPerTile = 4;
constexpr int kAccumulators = 128;  // 32-bit registers per thread: 64 x 256 over 128 threads

// One step of K on all accumulators.
template <TensorType kType, typename Accumulator>
__device__ void multiply(Accumulator (&d)[kAccumulators], uint64_t a, uint64_t b) {
#ifdef RIDGE_HOPPER
  if constexpr (kType == TensorType::bf16) {
    ptx::wgmma_bf16_ss<256>(d, a, b, true);
  } else if constexpr (kType == TensorType::fp16) {
    ptx::wgmma_f16_ss_n256(d, a, b, true);
  } else if constexpr (kType == TensorType::tf32) {
    ptx::wgmma_tf32_ss_n256(d, a, b, true);
  } else if constexpr (kType == TensorType::fp8) {
    ptx::wgmma_e4m3_ss_n256(d, a, b, true);
  } else {
    ptx::wgmma_s8_ss_n256(d, a, b, true);
  }
#endif
}

// `operands` fills both tiles word by word, over and over. Every accumulator is written out as one
// sum a thread.
template <TensorType kType, typename Accumulator>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_loop(const uint32_t* operands, int words, int tiles, double* out, long long* cycles) {
#ifdef RIDGE_HOPPER
  extern __shared__ char raw[];
  char* const base = raw + (1024 - __cvta_generic_to_shared(raw) % 1024) % 1024;
  uint32_t* const fill = reinterpret_cast<uint32_t*>(base);
  for (int i = threadIdx.x; i < (kShared - 1024) / 4; i += kThreads) fill[i] = operands[i % words];
  ptx::fence_proxy_async_shared();
  __syncthreads();
  const int group = threadIdx.x / 128;
  const auto descriptor = [](const void* tile) {
    return ptx::wgmma_descriptor(tile, 16, 1024, ptx::WgmmaSwizzle::bytes_128);
  };
  const uint64_t a = descriptor(base + kTileB + group * kTileA), b = descriptor(base);
  Accumulator d[kAccumulators];
#pragma unroll
  for (int i = 0; i < kAccumulators; ++i) d[i] = 0;
  const long long begin = clock64();
  for (int tile = 0; tile < tiles; ++tile) {
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < kStepsPerTile; ++step) {
      multiply<kType>(d, ptx::wgmma_descriptor_at(a, 32 * step),
                      ptx::wgmma_descriptor_at(b, 32 * step));
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<1>();
  }
  ptx::wgmma_wait<0>();
  const long long end = clock64();
  double sum = 0;
#pragma unroll
  for (int i = 0; i < kAccumulators; ++i) sum += static_cast<double>(d[i]);
  out[blockIdx.x * kThreads + threadIdx.x] = sum;
  if (threadIdx.x == 0) cycles[blockIdx.x] = end - begin;
#endif
}

template <TensorType kType, typename Accumulator>
void launch(cudaStream_t stream, int sms, const uint32_t* operands, int words, int tiles,
            double* out, long long* cycles) {
  const auto kernel = wgmma_loop<kType, Accumulator>;
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
        "asking for shared memory");
  kernel<<<sms, kThreads, kShared, stream>>>(operands, words, tiles, out, cycles);
}

}  // namespace

int wgmma_threads() { return kThreads; }

double wgmma_ops(TensorType type) {
  const double k = kStepsPerTile * 32 / tensor_bytes(type);
  return 2.0 * 64 * 256 * k * kGroups;
}

double wgmma_sum_of_ones(TensorType type, int tiles) {
  return kAccumulators * kStepsPerTile * 32 / tensor_bytes(type) * tiles;
}

void launch_wgmma(TensorType type, cudaStream_t stream, int sms, const uint32_t* operands,
                  int words, int tiles, double* out, long long* cycles) {
  switch (type) {
    case TensorType::bf16:
      return launch<TensorType::bf16, float>(stream, sms, operands, words, tiles, out, cycles);
    case TensorType::fp16:
      return launch<TensorType::fp16, float>(stream, sms, operands, words, tiles, out, cycles);
    case TensorType::tf32:
      return launch<TensorType::tf32, float>(stream, sms, operands, words, tiles, out, cycles);
    case TensorType::fp8:
      return launch<TensorType::fp8, float>(stream, sms, operands, words, tiles, out, cycles);
    case TensorType::int8:
      return launch<TensorType::int8, int>(stream, sms, operands, words, tiles, out, cycles);
  }
}

}  // namespace ridge
