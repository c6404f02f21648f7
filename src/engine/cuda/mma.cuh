// mma.m16n8k16 on bf16, and weights of each format made into its A operand in registers.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "engine/cuda/tiles.cuh"

namespace ridge::cuda {

// Volatile to keep the order it is written in: several chains, one step each in turn.
__device__ inline void mma(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3,
                           uint2 b) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b.x), "r"(b.y));
}

// Four matrices of 8 x 8 as an A operand; `row`: where in shared memory row l % 8 of matrix l / 8
// lies, 16 bytes.
__device__ inline uint4 load_matrices(uint32_t row) {
  uint4 a;
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(a.x), "=r"(a.y), "=r"(a.z), "=r"(a.w)
               : "r"(row)
               : "memory");
  return a;
}

__device__ inline uint32_t pack_bf16(float low, float high) {
  const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline uint16_t bf16_bits(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
__device__ inline float bf16_value(uint16_t bits) { return __uint_as_float(uint32_t{bits} << 16); }

// (a & b) | c in one instruction; written as such, two constants make the compiler use two.
__device__ inline uint32_t and_or(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// E4M3 in the high bytes of both halves. Exponent and mantissa moved to where bf16 has them make
// the number times 2^(7 - 127), subnormal ones too. The missing 2^120 is put half into the
// activations and half into the row's scale, so that sums stay far from f32's own limits.
__device__ inline uint32_t fp8_pair(uint32_t w) {
  return and_or(w >> 4, 0x07f007f0u, w & 0x80008000u);
}
// A 4-bit q in the low bits of both halves, as q + 128: 0x4300 is 128, whose last mantissa bit
// is 1.
__device__ inline uint32_t int4_pair(uint32_t w) { return and_or(w, 0x000f000fu, 0x43004300u); }
constexpr float kInt4Offset = -136;  // makes q + 128 into q - 8

__device__ inline uint32_t bits_of(__nv_bfloat162 pair) {
  return *reinterpret_cast<const uint32_t*>(&pair);
}
__device__ inline __nv_bfloat162 pair_of(uint32_t bits) {
  return *reinterpret_cast<const __nv_bfloat162*>(&bits);
}

// A chunk as bf16 A operands, one for each 16 columns: of `words`, this lane's 16 bytes, and
// `scale`, its two rows' where groups have them. Row scales are left to the caller: fp8 comes out
// as the numbers it stands for, exactly. int4 is scaled, since wgmma's sums run over many groups:
// d is rounded to bf16, and so is d (q - 8), which together err by up to 2^-8.
template <WeightFormat kFormat>
__device__ inline void unpack_chunk(const uint4& words, __half2 scale,
                                    uint32_t (&a)[format_info(kFormat).columns / 16][4]) {
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
  if constexpr (kFormat == WeightFormat::bf16) {
#pragma unroll
    for (int r = 0; r < 4; ++r) a[0][r] = word[r];
  } else if constexpr (kFormat == WeightFormat::fp8) {
    const __nv_bfloat162 missing = pair_of(0x7b807b80u);  // 2^120
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const uint32_t w = word[k * 2 + r / 2];
        a[k][r] = bits_of(__hmul2(pair_of(fp8_pair(r % 2 ? w << 8 : w)), missing));
      }
    }
  } else {
    const __nv_bfloat162 offset = pair_of(0xc308c308u);  // -136
    const float2 d = __half22float2(scale);
    const __nv_bfloat162 of_row[2] = {__float2bfloat162_rn(d.x), __float2bfloat162_rn(d.y)};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const __nv_bfloat162 q = __hadd2(pair_of(int4_pair(word[k] >> 4 * r)), offset);
        a[k][r] = bits_of(__hmul2(q, of_row[r % 2]));
      }
    }
  }
}

__host__ __device__ constexpr float activation_scale(WeightFormat format) {
  return format == WeightFormat::fp8 ? 0x1p60f : 1.0f;
}

// acc[u] += chunk u x activations, for kChunks chunks whose MMAs do not wait for each other, and
// kTiles x 8 tokens. a[u]: this lane's 16 bytes; b[u][k][i]: the B operand of tile i for the
// chunk's k-th 16 columns; scale[u]: of its rows g and g + 8, where groups have them.
template <WeightFormat kFormat, int kChunks, int kSteps, int kTiles, int kChains>
__device__ inline void multiply_chunks(float (&acc)[kChains][kTiles][4], const uint4 (&a)[kChunks],
                                       const uint2 (&b)[kChunks][kSteps][kTiles],
                                       const __half2 (&scale)[kChunks],
                                       const float2 (&offset)[kChunks][kTiles]) {
  if constexpr (kFormat == WeightFormat::bf16) {
#pragma unroll
    for (int u = 0; u < kChunks; ++u) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        mma(acc[u % kChains][i], a[u].x, a[u].y, a[u].z, a[u].w, b[u][0][i]);
      }
    }
  } else if constexpr (kFormat == WeightFormat::fp8) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int u = 0; u < kChunks; ++u) {
        const uint32_t low = k ? a[u].z : a[u].x, high = k ? a[u].w : a[u].y;
        const uint32_t a0 = fp8_pair(low), a1 = fp8_pair(low << 8);
        const uint32_t a2 = fp8_pair(high), a3 = fp8_pair(high << 8);
#pragma unroll
        for (int i = 0; i < kTiles; ++i) mma(acc[u % kChains][i], a0, a1, a2, a3, b[u][k][i]);
      }
    }
  } else {
    float sum[kChunks][kTiles][4] = {};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int u = 0; u < kChunks; ++u) {
        const uint32_t w = k == 0 ? a[u].x : k == 1 ? a[u].y : k == 2 ? a[u].z : a[u].w;
        const uint32_t a0 = int4_pair(w), a1 = int4_pair(w >> 4);
        const uint32_t a2 = int4_pair(w >> 8), a3 = int4_pair(w >> 12);
#pragma unroll
        for (int i = 0; i < kTiles; ++i) mma(sum[u][i], a0, a1, a2, a3, b[u][k][i]);
      }
    }
#pragma unroll
    for (int u = 0; u < kChunks; ++u) {
      const float2 d = __half22float2(scale[u]);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        float(&to)[4] = acc[u % kChains][i];
        to[0] += d.x * (sum[u][i][0] + offset[u][i].x);
        to[1] += d.x * (sum[u][i][1] + offset[u][i].y);
        to[2] += d.y * (sum[u][i][2] + offset[u][i].x);
        to[3] += d.y * (sum[u][i][3] + offset[u][i].y);
      }
    }
  }
}

}  // namespace ridge::cuda
