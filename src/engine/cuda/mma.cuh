// mma.m16n8k16 on bf16, and weights of each format made into its A operand in registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "engine/cuda/tiles.cuh"

namespace ridge::cuda {

__device__ inline void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                           uint2 b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b.x), "r"(b.y));
}

__device__ inline uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline uint16_t bf16_bits(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
__device__ inline float bf16_value(uint16_t bits) { return __uint_as_float(uint32_t{bits} << 16); }

__device__ inline uint32_t multiply_bf16x2(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}
__device__ inline uint32_t add_bf16x2(uint32_t a, uint32_t b) {
  uint32_t d;
  asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(a), "r"(b));
  return d;
}

// E4M3 in the high bytes of both halves. Exponent and mantissa moved to where bf16 has them make
// the number times 2^(7 - 127), subnormal ones too: a multiplication by 2^120 is exact.
__device__ inline uint32_t fp8_pair(uint32_t w) {
  const uint32_t moved = (w & 0x80008000u) | ((w >> 4) & 0x07f007f0u);
  return multiply_bf16x2(moved, 0x7b807b80u);
}
// A 4-bit q in the low bits of both halves, as q - 8: 0x4300 is 128, whose last mantissa bit is 1.
__device__ inline uint32_t int4_pair(uint32_t w) {
  return add_bf16x2((w & 0x000f000fu) | 0x43004300u, 0xc308c308u);  // -136
}

// acc += chunk x activations for kTiles x 8 tokens. `a`: this lane's 16 bytes; `chunk`: where the
// chunk lies; x(k_step, tile): the B operand of one of the chunk's steps of 16 columns.
template <WeightFormat kFormat, int kTiles, typename Activations>
__device__ inline void multiply_chunk(float (&acc)[kTiles][4], uint4 a, const uint8_t* chunk,
                                      int lane, const Activations& x) {
  if constexpr (kFormat == WeightFormat::bf16) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) mma(acc[i], a.x, a.y, a.z, a.w, x(0, i));
  } else if constexpr (kFormat == WeightFormat::fp8) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      const uint32_t low = k ? a.z : a.x, high = k ? a.w : a.y;
      const uint32_t a0 = fp8_pair(low), a1 = fp8_pair(low << 8);
      const uint32_t a2 = fp8_pair(high), a3 = fp8_pair(high << 8);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) mma(acc[i], a0, a1, a2, a3, x(k, i));
    }
  } else {
    const __half2 d = *reinterpret_cast<const __half2*>(chunk + 512 + lane / 4 * 4);
    float sum[kTiles][4] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const uint32_t w = k == 0 ? a.x : k == 1 ? a.y : k == 2 ? a.z : a.w;
      const uint32_t a0 = int4_pair(w), a1 = int4_pair(w >> 4);
      const uint32_t a2 = int4_pair(w >> 8), a3 = int4_pair(w >> 12);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) mma(sum[i], a0, a1, a2, a3, x(k, i));
    }
    const float2 scale = __half22float2(d);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      acc[i][0] += scale.x * sum[i][0];
      acc[i][1] += scale.x * sum[i][1];
      acc[i][2] += scale.y * sum[i][2];
      acc[i][3] += scale.y * sum[i][3];
    }
  }
}

}  // namespace ridge::cuda
