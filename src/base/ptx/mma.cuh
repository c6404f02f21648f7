// Matrix instructions of one warp: mma.sync, and the loads and transposes of their operands.
//
// mma.m16n8k16: D[16 x 8] += A[16 x 16] B[16 x 8], A and B of 16 bits. Lane 4 g + t holds
//   a[0..3]  (row g, k 2t, 2t+1), (row g+8, same k), (row g, k 2t+8, 2t+9), (row g+8, same k)
//   b0, b1   (k 2t, 2t+1; column g), (k 2t+8, 2t+9; column g)
//   d[0..3]  (row g; columns 2t, 2t+1), (row g+8; same columns)
// With 8-bit operands (m16n8k32) each register holds four consecutive k: 4t .. 4t+3, and 16 more
// in a[2], a[3], b1. With tf32 (m16n8k8) each register holds one k: t, and t + 4.
//
// The asm statements are volatile so that the compiler keeps their order. Callers interleave
// independent accumulators to hide the instruction's latency.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ridge::ptx {

__device__ inline void mma_bf16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void mma_f16(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A and B signed.
__device__ inline void mma_s8(int (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// A unsigned, B signed; returns A B + c.
__device__ inline int4 mma_u8_s8(const int4& c, uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                                 uint32_t b0, uint32_t b1) {
  int4 d;
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%10, %11, %12, %13};"
      : "=r"(d.x), "=r"(d.y), "=r"(d.z), "=r"(d.w)
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "r"(c.x), "r"(c.y), "r"(c.z),
        "r"(c.w));
  return d;
}

// Four 8 x 8 matrices of 16-bit elements from shared memory, as an A operand. Lane l passes the
// shared address of row l % 8 (16 bytes) of matrix l / 8.
__device__ inline uint4 ldmatrix_x4(uint32_t row_address) {
  uint4 a;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w)
               : "r"(row_address)
               : "memory");
  return a;
}

// The same with each matrix transposed, for B operands whose k are the rows in shared memory.
__device__ inline uint4 ldmatrix_x4_trans(uint32_t row_address) {
  uint4 b;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(b.x), "=r"(b.y), "=r"(b.z), "=r"(b.w)
               : "r"(row_address)
               : "memory");
  return b;
}

// Stores four 8 x 8 matrices of 16-bit elements, which the warp holds like D, transposed: columns
// become rows of 16 bytes. Lane l passes the shared address of row l % 8 of matrix l / 8.
__device__ inline void stmatrix_x4_trans(uint32_t row_address, const uint32_t (&d)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(row_address),
      "r"(d[0]), "r"(d[1]), "r"(d[2]), "r"(d[3])
      : "memory");
}

// Transposes an 8 x 8 matrix of 16-bit elements that the warp holds, one register per lane.
__device__ inline void movmatrix_trans(uint32_t& fragment) {
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(fragment));
}

}  // namespace ridge::ptx
