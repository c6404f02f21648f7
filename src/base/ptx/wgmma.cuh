// Hopper's warpgroup MMA (wgmma): D[64 x N] = A[64 x K] B[K x N] (+ D), K is 32 bytes per row. Four
// warps issue it together and it runs asynchronously: fence, wgmma ..., commit, wait. B is in
// shared memory, A in registers (rs) or in shared memory (ss). Only in RIDGE_HOPPER code.
//
// Lane 4 g + t of warp w holds row 16 w + g (and + 8) of D, columns 8 j + 2 t (and + 1), at
// d[4 j + {0, 1}] (and d[4 j + {2, 3}]). With A in registers, each warp holds its 16 rows as
// mma.m16n8k16 does (mma.cuh).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "base/ptx/mbarrier.cuh"

namespace ridge::ptx {

// Before the first wgmma of a group, and after writes to registers that it reads.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kPending committed groups are still running.
template <int kPending>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Matrix descriptor (PTX ISA, "matrix descriptor"). Without a swizzle the operand consists of core
// matrices of 8 rows x 16 bytes, 128 contiguous bytes each: `leading_bytes` lead to the next one
// along K, `stride_bytes` to the next one along the rows. With the 128-byte swizzle
// `stride_bytes` lead to the next eight rows, and `leading_bytes` is not used.
enum class WgmmaSwizzle : uint8_t { none = 0, bytes_128 = 1 };
__device__ inline uint64_t wgmma_descriptor(const void* operand, int leading_bytes,
                                            int stride_bytes,
                                            WgmmaSwizzle swizzle = WgmmaSwizzle::none) {
  return uint64_t(shared_address(operand) >> 4 & 0x3fff) | uint64_t(leading_bytes >> 4) << 16 |
         uint64_t(stride_bytes >> 4) << 32 | uint64_t(swizzle) << 62;
}
// The descriptor of the operand `bytes` further on.
__device__ inline uint64_t wgmma_descriptor_at(uint64_t descriptor, int bytes) {
  return descriptor + uint64_t(bytes >> 4);
}

// The accumulators as operands of an asm statement: their numbers, and their registers.
#define RIDGE_NUMBERS_16 "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15"
#define RIDGE_NUMBERS_32 \
  RIDGE_NUMBERS_16       \
  ", %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define RIDGE_NUMBERS_64                                                             \
  RIDGE_NUMBERS_32                                                                   \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47" \
  ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define RIDGE_NUMBERS_128                                                                    \
  RIDGE_NUMBERS_64                                                                           \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"         \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"         \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, " \
  "%111"                                                                                     \
  ", %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, "   \
  "%126, %127"
#define RIDGE_REGISTERS_4(c, i) c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3])
#define RIDGE_REGISTERS_16(c, i)                                                     \
  RIDGE_REGISTERS_4(c, i), RIDGE_REGISTERS_4(c, i + 4), RIDGE_REGISTERS_4(c, i + 8), \
      RIDGE_REGISTERS_4(c, i + 12)
#define RIDGE_REGISTERS_32(c, i) RIDGE_REGISTERS_16(c, i), RIDGE_REGISTERS_16(c, i + 16)
#define RIDGE_REGISTERS_64(c, i) RIDGE_REGISTERS_32(c, i), RIDGE_REGISTERS_32(c, i + 32)
#define RIDGE_REGISTERS_128(c, i) RIDGE_REGISTERS_64(c, i), RIDGE_REGISTERS_64(c, i + 64)

// `type`: shape after m64 and the types; `count`: accumulators of a thread, of asm constraint `c`;
// `a`, `b`, `p`: operand numbers of A, B and of the flag "add D"; `flags`: the trailing immediates.
#define RIDGE_WGMMA(type, count, c, a, b, p, flags, ...)                                \
  asm volatile("{\n.reg .pred add;\nsetp.ne.b32 add, " p                                \
               ", 0;\nwgmma.mma_async.sync.aligned.m64" type " {" RIDGE_NUMBERS_##count \
               "}, " a ", " b ", add" flags ";\n}"                                      \
               : RIDGE_REGISTERS_##count(c, 0)                                          \
               : __VA_ARGS__, "l"(b_descriptor), "r"(int{add}))

// A in registers, f32 accumulators, N by the template parameter kColumns. `types`: K and the types.
#define RIDGE_WGMMA_RS(types, flags)                                                           \
  if constexpr (kColumns == 32) {                                                              \
    RIDGE_WGMMA("n32" types, 16, "+f", "{%16, %17, %18, %19}", "%20", "%21", flags, RIDGE_A);  \
  } else if constexpr (kColumns == 64) {                                                       \
    RIDGE_WGMMA("n64" types, 32, "+f", "{%32, %33, %34, %35}", "%36", "%37", flags, RIDGE_A);  \
  } else if constexpr (kColumns == 128) {                                                      \
    RIDGE_WGMMA("n128" types, 64, "+f", "{%64, %65, %66, %67}", "%68", "%69", flags, RIDGE_A); \
  } else {                                                                                     \
    static_assert(kColumns == 256);                                                            \
    RIDGE_WGMMA("n256" types, 128, "+f", "{%128, %129, %130, %131}", "%132", "%133", flags,    \
                RIDGE_A);                                                                      \
  }
#define RIDGE_A "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3])

// bf16: D = A B, plus D if `add`.
template <int kColumns>
__device__ inline void wgmma_bf16_rs(float (&d)[kColumns / 2], const uint32_t (&a)[4],
                                     uint64_t b_descriptor, bool add) {
  RIDGE_WGMMA_RS("k16.f32.bf16.bf16", ", 1, 1, 0")
}

// The same for E4M3. Each register of A holds four consecutive k: 4 t .. 4 t + 3, and 16 more in
// a[2], a[3].
template <int kColumns>
__device__ inline void wgmma_e4m3_rs(float (&d)[kColumns / 2], const uint32_t (&a)[4],
                                     uint64_t b_descriptor, bool add) {
  RIDGE_WGMMA_RS("k32.f32.e4m3.e4m3", ", 1, 1")
}

#undef RIDGE_WGMMA_RS
#undef RIDGE_A

// bf16 with A in shared memory.
template <int kColumns>
__device__ inline void wgmma_bf16_ss(float (&d)[kColumns / 2], uint64_t a_descriptor,
                                     uint64_t b_descriptor, bool add) {
  if constexpr (kColumns == 64) {
    RIDGE_WGMMA("n64k16.f32.bf16.bf16", 32, "+f", "%32", "%33", "%34", ", 1, 1, 0, 0",
                "l"(a_descriptor));
  } else if constexpr (kColumns == 128) {
    RIDGE_WGMMA("n128k16.f32.bf16.bf16", 64, "+f", "%64", "%65", "%66", ", 1, 1, 0, 0",
                "l"(a_descriptor));
  } else {
    static_assert(kColumns == 256);
    RIDGE_WGMMA("n256k16.f32.bf16.bf16", 128, "+f", "%128", "%129", "%130", ", 1, 1, 0, 0",
                "l"(a_descriptor));
  }
}

// Other types with N of 256, A in shared memory.
__device__ inline void wgmma_f16_ss_n256(float (&d)[128], uint64_t a_descriptor,
                                         uint64_t b_descriptor, bool add) {
  RIDGE_WGMMA("n256k16.f32.f16.f16", 128, "+f", "%128", "%129", "%130", ", 1, 1, 0, 0",
              "l"(a_descriptor));
}
__device__ inline void wgmma_tf32_ss_n256(float (&d)[128], uint64_t a_descriptor,
                                          uint64_t b_descriptor, bool add) {
  RIDGE_WGMMA("n256k8.f32.tf32.tf32", 128, "+f", "%128", "%129", "%130", ", 1, 1",
              "l"(a_descriptor));
}
__device__ inline void wgmma_e4m3_ss_n256(float (&d)[128], uint64_t a_descriptor,
                                          uint64_t b_descriptor, bool add) {
  RIDGE_WGMMA("n256k32.f32.e4m3.e4m3", 128, "+f", "%128", "%129", "%130", ", 1, 1",
              "l"(a_descriptor));
}
__device__ inline void wgmma_s8_ss_n256(int (&d)[128], uint64_t a_descriptor, uint64_t b_descriptor,
                                        bool add) {
  RIDGE_WGMMA("n256k32.s32.s8.s8", 128, "+r", "%128", "%129", "%130", "", "l"(a_descriptor));
}

#undef RIDGE_WGMMA
#undef RIDGE_NUMBERS_16
#undef RIDGE_NUMBERS_32
#undef RIDGE_NUMBERS_64
#undef RIDGE_NUMBERS_128
#undef RIDGE_REGISTERS_4
#undef RIDGE_REGISTERS_16
#undef RIDGE_REGISTERS_32
#undef RIDGE_REGISTERS_64
#undef RIDGE_REGISTERS_128

}  // namespace ridge::ptx
