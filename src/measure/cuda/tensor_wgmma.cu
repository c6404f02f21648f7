// Peaks of Hopper's warpgroup matrix instruction, operands from shared memory.
#include <cuda_runtime.h>
#include <fmt/format.h>

#include "measure/cuda/run.cuh"
#include "measure/cuda/tensor.cuh"

namespace ridge {
namespace {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define RIDGE_WGMMA 1
#endif

// One instruction multiplies A (64 rows) by B (256 columns), 32 bytes of K each, whatever the type.
// Tiles hold 128 bytes of K in rows of 128 bytes, swizzled: four instructions a tile.
constexpr int kGroups = 2;  // warpgroups a block: one issues while the other's queue drains
constexpr int kThreads = kGroups * 128;
constexpr int kTileA = 64 * 128, kTileB = 256 * 128;
constexpr int kShared = kGroups * kTileA + kTileB + 1024;  // and room to align to 1 KB
constexpr int kStepsPerTile = 4;
constexpr int kAccumulators = 128;  // 32-bit registers a thread: 64 x 256 over 128 threads

#ifdef RIDGE_WGMMA
// PTX ISA, "matrix descriptor": address / 16; leading offset unused with this swizzle; 1024 bytes
// from one group of eight rows to the next; 1 in the top bits for the 128-byte swizzle.
__device__ uint64_t descriptor(const void* tile) {
  const uint64_t address = static_cast<uint64_t>(__cvta_generic_to_shared(tile));
  return ((address & 0x3ffff) >> 4) | (uint64_t{1} << 16) | (uint64_t{1024 >> 4} << 32) |
         (uint64_t{1} << 62);
}

#define RIDGE_ACC4(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define RIDGE_ACC16(c, i) \
  RIDGE_ACC4(c, i), RIDGE_ACC4(c, i + 4), RIDGE_ACC4(c, i + 8), RIDGE_ACC4(c, i + 12)
#define RIDGE_ACC64(c, i) \
  RIDGE_ACC16(c, i), RIDGE_ACC16(c, i + 16), RIDGE_ACC16(c, i + 32), RIDGE_ACC16(c, i + 48)
#define RIDGE_ACC(c) RIDGE_ACC64(c, 0), RIDGE_ACC64(c, 64)
#define RIDGE_REGISTERS                                                                          \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "                       \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, "             \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, "             \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63, "             \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "             \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "             \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"
#define RIDGE_WGMMA_OP(shape, c, rest)                                                           \
  asm volatile("wgmma.mma_async.sync.aligned." shape " {" RIDGE_REGISTERS "}, %128, %129, " rest \
               ";"                                                                               \
               : RIDGE_ACC(c)                                                                    \
               : "l"(a), "l"(b))
#endif

// One step of K on all accumulators. The trailing immediates: accumulate, no negation, no
// transpose.
template <TensorType kType, typename Accumulator>
__device__ void multiply(Accumulator (&d)[kAccumulators], uint64_t a, uint64_t b) {
#ifdef RIDGE_WGMMA
  if constexpr (kType == TensorType::bf16) {
    RIDGE_WGMMA_OP("m64n256k16.f32.bf16.bf16", "+f", "1, 1, 1, 0, 0");
  } else if constexpr (kType == TensorType::fp16) {
    RIDGE_WGMMA_OP("m64n256k16.f32.f16.f16", "+f", "1, 1, 1, 0, 0");
  } else if constexpr (kType == TensorType::tf32) {
    RIDGE_WGMMA_OP("m64n256k8.f32.tf32.tf32", "+f", "1, 1, 1");
  } else if constexpr (kType == TensorType::fp8) {
    RIDGE_WGMMA_OP("m64n256k32.f32.e4m3.e4m3", "+f", "1, 1, 1");
  } else {
    RIDGE_WGMMA_OP("m64n256k32.s32.s8.s8", "+r", "1");
  }
#endif
}

// `operands` fills both tiles word by word, over and over. Every accumulator is written out as one
// sum a thread.
template <TensorType kType, typename Accumulator>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_loop(const uint32_t* operands, int words, int tiles, double* out, long long* cycles) {
#ifdef RIDGE_WGMMA
  extern __shared__ char raw[];
  char* const base = raw + (1024 - __cvta_generic_to_shared(raw) % 1024) % 1024;
  uint32_t* const fill = reinterpret_cast<uint32_t*>(base);
  for (int i = threadIdx.x; i < (kShared - 1024) / 4; i += kThreads) fill[i] = operands[i % words];
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const int group = threadIdx.x / 128;
  const uint64_t a = descriptor(base + kTileB + group * kTileA), b = descriptor(base);
  Accumulator d[kAccumulators];
#pragma unroll
  for (int i = 0; i < kAccumulators; ++i) d[i] = 0;
  const long long begin = clock64();
  for (int tile = 0; tile < tiles; ++tile) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int step = 0; step < kStepsPerTile; ++step) {
      multiply<kType>(d, a + 2 * step, b + 2 * step);  // 32 bytes of K further
    }
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
  }
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
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
