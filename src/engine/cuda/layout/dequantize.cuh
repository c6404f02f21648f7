// Dequantization of a chunk of weights (tiles.cuh) in registers, into A operands of mma and wgmma.
#pragma once

#include <cuda_fp16.h>

#include "engine/cuda/device/scalar.cuh"
#include "engine/cuda/layout/tiles.cuh"

namespace ridge::cuda {

// (a & b) | c in one instruction. From the C expression with two constants the compiler makes two.
__device__ inline uint32_t and_or(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t d;
  asm("lop3.b32 %0, %1, %2, %3, 0xea;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  return d;
}

// Two E4M3 of the low or high half of w as bf16, times 2^(7 - 127), subnormal numbers included. The
// permutation replicates the sign bits, so that one shift moves sign, exponent and mantissa.
template <int kHalf>
__device__ inline uint32_t fp8_bits(uint32_t w) {
  uint32_t pair;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(pair) : "r"(w), "n"(kHalf ? 0xb3a2 : 0x9180));
  return pair << 4 & 0x87f087f0u;
}

// Two E4M3 of the low or high half of w as f16, exactly. Ampere has no conversion: the bits, moved
// to where f16 has them, are the value times 2^(7 - 15).
template <int kHalf>
__device__ inline uint32_t fp8_pair(uint32_t w) {
  uint32_t pair;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 890
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(pair) : "h"(static_cast<uint16_t>(w >> 16 * kHalf)));
#else
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(pair) : "r"(w), "n"(kHalf ? 0xb3a2 : 0x9180));
  const __half2 missing = __half2half2(__ushort_as_half(0x5c00));  // 2^8
  pair = pair << 7 & 0xbf80bf80u;
  const __half2 value = __hmul2(*reinterpret_cast<const __half2*>(&pair), missing);
  pair = *reinterpret_cast<const uint32_t*>(&value);
#endif
  return pair;
}

// Levels of NormalFloat4 (Dettmers et al., QLoRA, 2023: quantiles of the normal distribution, zero
// included, scaled to [-1, 1]), rounded to f16 and to bf16.
struct Nf4 {
  uint16_t f16[16], bf16[16];
};
constexpr Nf4 kNf4 = {{0xbc00, 0xb992, 0xb833, 0xb652, 0xb48d, 0xb1ea, 0xadd4, 0x0000,  //
                       0x2d18, 0x3126, 0x33e0, 0x3568, 0x370d, 0x3880, 0x39c9, 0x3c00},
                      {0xbf80, 0xbf32, 0xbf06, 0xbeca, 0xbe92, 0xbe3d, 0xbdba, 0x0000,  //
                       0x3da3, 0x3e25, 0x3e7c, 0x3ead, 0x3ee2, 0x3f10, 0x3f39, 0x3f80}};

// Byte `part` (0 low, 1 high) of bf16 levels 4 i to 4 i + 3.
__host__ __device__ constexpr uint32_t nf4_bytes(int part, int i) {
  uint32_t word = 0;
  for (int n = 0; n < 4; ++n) {
    word |= (uint32_t{kNf4.bf16[i * 4 + n]} >> part * 8 & 0xff) << n * 8;
  }
  return word;
}
// Byte kPart of the levels of four nibbles. `low` has the lower 3 bits of each nibble, `upper` has
// 0xff in the bytes of nibbles above 7.
template <int kPart>
__device__ inline uint32_t nf4_lookup(uint32_t low, uint32_t upper) {
  constexpr uint32_t k0 = nf4_bytes(kPart, 0), k1 = nf4_bytes(kPart, 1);
  constexpr uint32_t k2 = nf4_bytes(kPart, 2), k3 = nf4_bytes(kPart, 3);
  const uint32_t first = __byte_perm(k0, k1, low), second = __byte_perm(k2, k3, low);
  return (first & ~upper) | (second & upper);
}
// The bf16 levels of a word of nibbles. Its lower half has four columns of row g, in the order of
// registers 0 and 2, its upper half the same of row g + 8, for registers 1 and 3.
__device__ inline void nf4_levels(uint32_t w, uint32_t (&a)[4]) {
  const uint32_t low = w & 0x77777777u, upper = w >> 3 & 0x11111111u;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const uint32_t names = low >> 16 * half, mask = __byte_perm(0xff00u, 0, upper >> 16 * half);
    const uint32_t bytes[2] = {nf4_lookup<0>(names, mask), nf4_lookup<1>(names, mask)};
    a[half] = __byte_perm(bytes[0], bytes[1], 0x5140);
    a[half + 2] = __byte_perm(bytes[0], bytes[1], 0x7362);
  }
}

// The bf16 values q - 8 of a word of nibbles. Register r has its nibbles at bits 4 r and 4 r + 16.
// 0x4300 is 128.0, and its last mantissa bit is worth 1.
__device__ inline void int4_levels(uint32_t w, uint32_t (&a)[4]) {
  const __nv_bfloat162 offset = pair_of(0xc308c308u);  // -136
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    const uint32_t q = and_or(w >> 4 * r, 0x000f000fu, 0x43004300u);  // q + 128
    a[r] = bits_of(__hadd2(pair_of(q), offset));
  }
}

// MXFP4. An E2M1 number has a sign, two bits of exponent and one of mantissa. As bits 15 and 8 to 6
// of a bf16 they are the number times 2^-126, the subnormal 0.5 included. In a word, registers 0, 1
// and 2 have their four bits where a shift by 0, 3 and 6 puts them there; register 3 has the rest.
// Bit `i` (0: mantissa, 3: sign) of element e of register r in its word:
__host__ __device__ constexpr int mxfp4_bit(int r, int e, int i) {
  return 16 * e + (r == 3 ? 10 + i + i / 2 : (i == 3 ? 15 : 6 + i) - 3 * r);
}
__device__ inline void mxfp4_levels(uint32_t w, uint32_t (&a)[4]) {
  constexpr uint32_t kBits = 0x81c081c0u;
  a[0] = w & kBits, a[1] = w << 3 & kBits, a[2] = w << 6 & kBits;
  a[3] = and_or(w >> 4, 0x00c000c0u, and_or(w >> 5, 0x01000100u, w << 1 & 0x80008000u));
}
// A scale is stored as the exponent field of the bf16 2^(scale + 126), which makes up for the
// 2^-126 of the levels. So the largest scale is 2 and the largest weight 12; pack() clamps larger
// ones.
constexpr int kLeastMxfp4Scale = -127, kMostMxfp4Scale = 1;
__host__ __device__ constexpr uint8_t mxfp4_scale_byte(int exponent) {
  return static_cast<uint8_t>(exponent + 126 + 127);
}
// Byte i of a lane's scales as a pair of equal bf16 (tiles.cuh).
template <int i>
__device__ inline __nv_bfloat162 mxfp4_scale(uint32_t scales) {
  uint32_t pair;
  asm("prmt.b32 %0, %1, 0, %2;" : "=r"(pair) : "r"(scales), "n"(0x4040 | i << 8 | i));
  return pair_of(pair << 7);
}

// A chunk as bf16 A operands, one per 16 columns, from this lane's 16 bytes and, for int4, nf4 and
// mxfp4, the group scales of its two rows. fp8 and int8 are exact; the caller applies their row
// scales. mxfp4 is exact. int4 and nf4 are scaled here, since the sums of wgmma run over many
// groups: the scale, the product and the level of nf4 are rounded to bf16, each with a relative
// error of up to 2^-8.
template <WeightFormat kFormat>
__device__ inline void dequantize_chunk(const uint4& words, __half2 scale,
                                        uint32_t (&a)[format_info(kFormat).columns / 16][4]) {
  const uint32_t word[4] = {words.x, words.y, words.z, words.w};
  if constexpr (kFormat == WeightFormat::bf16) {
#pragma unroll
    for (int r = 0; r < 4; ++r) a[0][r] = word[r];
  } else if constexpr (kFormat == WeightFormat::fp8) {
    const __nv_bfloat162 missing = pair_of(0x7b807b80u);  // 2^120
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      a[k / 2][k % 2 * 2] = bits_of(__hmul2(pair_of(fp8_bits<0>(word[k])), missing));
      a[k / 2][k % 2 * 2 + 1] = bits_of(__hmul2(pair_of(fp8_bits<1>(word[k])), missing));
    }
  } else if constexpr (kFormat == WeightFormat::int8) {
    // 0x4300 is 128.0 and its last mantissa bit is worth 1. The lower 7 bits of q give 128 + bits.
    // The sign bit, worth -128, turns 128 into 256, which is subtracted.
#pragma unroll
    for (int k = 0; k < 2; ++k) {
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const uint32_t w = word[k * 2 + r % 2] >> r / 2 * 8;
        a[k][r] = bits_of(__hsub2(pair_of(and_or(w, 0x007f007fu, 0x43004300u)),
                                  pair_of(and_or(w, 0x00800080u, 0x43004300u))));
      }
    }
  } else if constexpr (kFormat == WeightFormat::mxfp4) {
    const uint32_t scales = *reinterpret_cast<const uint32_t*>(&scale);
    const __nv_bfloat162 of_row[2][2] = {{mxfp4_scale<0>(scales), mxfp4_scale<1>(scales)},
                                         {mxfp4_scale<2>(scales), mxfp4_scale<3>(scales)}};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t level[4];
      mxfp4_levels(word[k], level);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        a[k][r] = bits_of(__hmul2(pair_of(level[r]), of_row[k / 2][r % 2]));
      }
    }
  } else {
    const float2 d = __half22float2(scale);
    const __nv_bfloat162 of_row[2] = {__float2bfloat162_rn(d.x), __float2bfloat162_rn(d.y)};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint32_t level[4];
      kFormat == WeightFormat::nf4 ? nf4_levels(word[k], level) : int4_levels(word[k], level);
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        a[k][r] = bits_of(__hmul2(pair_of(level[r]), of_row[r % 2]));
      }
    }
  }
}

// As dequantize_chunk(), but fp8 bits are only moved to where bf16 has them: the value times
// 2^-120. Tokens and row scales are multiplied by 2^60 each to make up for it.
template <WeightFormat kFormat>
__device__ inline void dequantize_unscaled(const uint4& words, __half2 scale,
                                           uint32_t (&a)[format_info(kFormat).columns / 16][4]) {
  if constexpr (kFormat == WeightFormat::fp8) {
    const uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      a[k / 2][k % 2 * 2] = fp8_bits<0>(word[k]), a[k / 2][k % 2 * 2 + 1] = fp8_bits<1>(word[k]);
    }
  } else {
    dequantize_chunk<kFormat>(words, scale, a);
  }
}

}  // namespace ridge::cuda
