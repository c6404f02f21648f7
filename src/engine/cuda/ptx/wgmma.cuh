// Hopper's warpgroup MMA on bf16: D[64 x N] += A[64 x 16] B[16 x N], f32 sums. B lies in shared
// memory as core matrices of 8 x 8 without a swizzle (wide_at, the cache's pages); A in registers
// (each of the four warps has 16 rows, as mma.m16n8k16 has them) or in shared memory like B.
// D of warp w: row 16 w + g (+ 8), columns 8 j + 2 t (+ 1) at d[4 j + {0, 1}] (and {2, 3}).
#pragma once

#include "engine/cuda/ptx/ring.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

// `along_k`, `across`: bytes from one core matrix to the next in k, and in rows of B (or A).
__device__ inline uint64_t core_matrices(const void* at, int along_k, int across) {
  return uint64_t(shared_address(at) >> 4 & 0x3fff) | uint64_t(along_k >> 4) << 16 |
         uint64_t(across >> 4) << 32;
}
// The same, further on by so many bytes.
__device__ inline uint64_t further(uint64_t descriptor, int bytes) {
  return descriptor + uint64_t(bytes >> 4);
}

// Before the first of a group, and after registers that it uses were written.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kLeft groups are under way.
template <int kLeft>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

// The sums as operands of an asm statement: their numbers, and their registers.
#define RIDGE_SUMS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define RIDGE_SUMS_32 \
  RIDGE_SUMS_16       \
  ", "                \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RIDGE_SUMS_64                                                                \
  RIDGE_SUMS_32                                                                      \
  ", "                                                                               \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define RIDGE_SUMS_128                                                                         \
  RIDGE_SUMS_64                                                                                \
  ", "                                                                                         \
  "%64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, "           \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "           \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, "     \
  "%111, "                                                                                     \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, " \
  "%127"
#define RIDGE_SUM_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define RIDGE_SUM_16(d, i) \
  RIDGE_SUM_4(d, i), RIDGE_SUM_4(d, i + 4), RIDGE_SUM_4(d, i + 8), RIDGE_SUM_4(d, i + 12)
#define RIDGE_SUM_32(d, i) RIDGE_SUM_16(d, i), RIDGE_SUM_16(d, i + 16)
#define RIDGE_SUM_64(d, i) RIDGE_SUM_32(d, i), RIDGE_SUM_32(d, i + 32)
#define RIDGE_SUM_128(d, i) RIDGE_SUM_64(d, i), RIDGE_SUM_64(d, i + 64)

// A from registers, B from shared memory, k16.
#define RIDGE_WGMMA(n, sums, a0, a1, a2, a3, b)                                      \
  asm volatile(                                                                      \
      "{\n.reg .pred add;\nsetp.ne.b32 add, 1, 0;\n"                                 \
      "wgmma.mma_async.sync.aligned.m64n" #n "k16.f32.bf16.bf16 {" RIDGE_SUMS_##sums \
      "}, {" a0 ", " a1 ", " a2 ", " a3 "}, " b ", add, 1, 1, 0;\n}"                 \
      : RIDGE_SUM_##sums(d, 0)                                                       \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(descriptor))

template <int kColumns>
__device__ inline void wgmma(float (&d)[kColumns / 2], const uint32_t (&a)[4],
                             uint64_t descriptor) {
  if constexpr (kColumns == 32) {
    RIDGE_WGMMA(32, 16, "%16", "%17", "%18", "%19", "%20");
  } else if constexpr (kColumns == 64) {
    RIDGE_WGMMA(64, 32, "%32", "%33", "%34", "%35", "%36");
  } else if constexpr (kColumns == 128) {
    RIDGE_WGMMA(128, 64, "%64", "%65", "%66", "%67", "%68");
  } else {
    static_assert(kColumns == 256);
    RIDGE_WGMMA(256, 128, "%128", "%129", "%130", "%131", "%132");
  }
}

#undef RIDGE_WGMMA

}  // namespace ridge::cuda
#endif
