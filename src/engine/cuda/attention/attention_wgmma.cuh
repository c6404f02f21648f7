// Attention's scores by wgmma, which begin anew with each tile (those of wgmma.cuh only add).
#pragma once

#include "engine/cuda/ptx/wgmma.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

// d = A B, or d += A B if `add`.
#define RIDGE_WGMMA(n, sums, a, b, p, transposed, ...)                                         \
  asm volatile(                                                                                \
      "{\n.reg .pred add;\nsetp.ne.b32 add, " p ", 0;\nwgmma.mma_async.sync.aligned.m64n" #n   \
      "k16.f32.bf16.bf16 {" RIDGE_SUMS_##sums "}, " a ", " b ", add, 1, 1, " transposed ";\n}" \
      : RIDGE_SUM_##sums(d, 0)                                                                 \
      : __VA_ARGS__, "l"(right), "r"(int{add}))

// A, B: core_matrices.
template <int kColumns>
__device__ inline void wgmma_shared(float (&d)[kColumns / 2], uint64_t left, uint64_t right,
                                    bool add) {
  if constexpr (kColumns == 64) {
    RIDGE_WGMMA(64, 32, "%32", "%33", "%34", "0, 0", "l"(left));
  } else {
    static_assert(kColumns == 128);
    RIDGE_WGMMA(128, 64, "%64", "%65", "%66", "0, 0", "l"(left));
  }
}

#define RIDGE_LEFT "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3])
// A: this lane's registers.
template <int kColumns>
__device__ inline void wgmma_registers(float (&d)[kColumns / 2], const uint32_t (&left)[4],
                                       uint64_t right, bool add) {
  if constexpr (kColumns == 64) {
    RIDGE_WGMMA(64, 32, "{%32, %33, %34, %35}", "%36", "%37", "0", RIDGE_LEFT);
  } else {
    static_assert(kColumns == 128);
    RIDGE_WGMMA(128, 64, "{%64, %65, %66, %67}", "%68", "%69", "0", RIDGE_LEFT);
  }
}
#undef RIDGE_LEFT
#undef RIDGE_WGMMA

}  // namespace ridge::cuda
#endif
