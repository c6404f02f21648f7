// Packed block formats (pack.h) to pairs of bf16, as AMX tiles read them: the panels of
// blocks-inl.h's unpack_bf16, bit for bit, in half the instructions. It needs AVX-512 VBMI, which
// moves any byte to any place, and AVX-512 BF16, which rounds two vectors of floats to nearest even
// at once: every CPU with AMX has both.
//
// A vector of packed bytes is 16 rows x 4 columns. Two columns of 8 rows are moved into the 16
// lanes as [row][column], so that two such vectors, rounded, are the 16 rows x 2 columns of a
// panel.
#include "engine/cpu/amx_tiles.h"
#include "engine/cpu/matmul_kernels.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <algorithm>

namespace ridge::cpu {
namespace {

#define RIDGE_UNPACK_TARGET \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512vbmi,avx512bf16,f16c")))

// Of the 16 lanes. GCC 12 warns of the forms without a mask.
constexpr __mmask16 kAll = 0xffff;

// Byte 4 row + column of lane i, for rows 8 half + i / 2 and columns 2 pair + i % 2. A mask says in
// which bytes of the lane it is wanted; the others become zero.
struct ByteOrder {
  alignas(64) uint8_t at[2][2][64] = {};  // [half][pair]
  constexpr ByteOrder() {
    for (int half = 0; half < 2; ++half) {
      for (int pair = 0; pair < 2; ++pair) {
        for (int i = 0; i < 64; ++i) {
          at[half][pair][i] = static_cast<uint8_t>(4 * (8 * half + i / 8) + 2 * pair + i / 4 % 2);
        }
      }
    }
  }
};
constexpr ByteOrder kByteOrder;

// What a nibble stands for, as a float.
template <Layout kLayout>
struct Levels {
  alignas(64) float of[16] = {};
  constexpr Levels() {
    for (int i = 0; i < 16; ++i) {
      of[i] = static_cast<float>(kLayout == Layout::fp4 ? kFp4Levels[i] : i);
    }
  }
};
template <Layout kLayout>
constexpr Levels<kLayout> kLevels;

// 16 f16 of as many rows as floats, each row twice: rows 0 to 7 and rows 8 to 15.
RIDGE_UNPACK_TARGET inline void widen_rows(const std::byte* from, __m512 (&to)[2]) {
  const __m512 rows =
      _mm512_maskz_cvtph_ps(kAll, _mm256_load_si256(reinterpret_cast<const __m256i*>(from)));
  to[0] = _mm512_maskz_permutexvar_ps(
      kAll, _mm512_setr_epi32(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7), rows);
  to[1] = _mm512_maskz_permutexvar_ps(
      kAll, _mm512_setr_epi32(8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13, 14, 14, 15, 15), rows);
}

RIDGE_UNPACK_TARGET inline void store_pair(const __m512 (&q)[2], const __m512 (&scale)[2],
                                           const __m512 (&start)[2], std::byte* to) {
  const __m512 low = _mm512_fmadd_ps(q[0], scale[0], start[0]);
  const __m512 high = _mm512_fmadd_ps(q[1], scale[1], start[1]);
  _mm512_store_si512(to, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(high, low)));
}

// The nibbles of 4 bits without a min become floats as parts of a mantissa, by a mask and an
// exponent in one instruction: a byte in bits 16 to 23 has its low nibble in 128 + q, the same byte
// in bits 8 to 15 its high nibble in 2048 + q. scale (128 + q) - 136 scale = scale (q - 8) is
// exact, since neither 8 bits nor 17 x 8 times the 11 bits of a scale exceed a float; 257 x 8 do
// not either.
constexpr int kNibbleStart[2] = {-136, -2056};
template <int kHigh>
RIDGE_UNPACK_TARGET inline __m512 float_of_nibble(__m512i twice) {
  constexpr int kAndOr = 0xea;  // (a & b) | c
  return reinterpret_cast<__m512>(
      _mm512_ternarylogic_epi32(twice, _mm512_set1_epi32(kHigh ? 0x0000f000 : 0x000f0000),
                                _mm512_set1_epi32(kHigh ? 0x45000000 : 0x43000000), kAndOr));
}

// Whether a layout's nibbles are made so; their `start` then differs between low and high.
template <Layout kLayout>
constexpr bool kNibbles = kLayout == Layout::q4;

// Bytes without a min become floats by the permutation alone: in bits 8 to 15 of 32768 they make it
// 32768 + q. scale (32768 + q) - scale (32768 + offset) is exact, since 32768 plus an offset of 16
// or more has at most 12 bits.
template <Layout kLayout>
constexpr bool kBytes = layout_info(kLayout).stored_bits == 8 && !layout_info(kLayout).min;
static_assert(layout_info(Layout::q5).offset >= 16 && layout_info(Layout::q6).offset >= 16);

// Columns 4 chunk and on of a block of 32: two pairs; with 4 bits also the columns 16 further on.
template <Layout kLayout>
RIDGE_UNPACK_TARGET inline void unpack_chunk(const std::byte* bytes, const __m512 (&scale)[2],
                                             const __m512 (&start)[2],
                                             const __m512 (&high_start)[2], std::byte* to) {
  const __m512i packed = _mm512_load_si512(bytes);
#pragma GCC unroll 2
  for (int pair = 0; pair < 2; ++pair, to += kTileBytes) {
    __m512 low[2], high[2];
#pragma GCC unroll 2
    for (int half = 0; half < 2; ++half) {
      const __m512i order = _mm512_load_si512(kByteOrder.at[half][pair]);
      if constexpr (kBytes<kLayout>) {
        constexpr __mmask64 kSecond = 0x2222222222222222;
        const __m512i base = _mm512_set1_epi32(0x47000000);  // 32768
        low[half] =
            reinterpret_cast<__m512>(_mm512_mask_permutexvar_epi8(base, kSecond, order, packed));
      } else {
        constexpr __mmask64 kWanted = kNibbles<kLayout> ? 0x6666666666666666 : 0x1111111111111111;
        const __m512i q = _mm512_maskz_permutexvar_epi8(kWanted, order, packed);
        if constexpr (kNibbles<kLayout>) {
          low[half] = float_of_nibble<0>(q);
          high[half] = float_of_nibble<1>(q);
        } else if constexpr (layout_info(kLayout).stored_bits == 8) {
          low[half] = _mm512_maskz_cvtepi32_ps(kAll, q);
        } else {
          // A lookup takes the low four bits of a lane.
          const __m512 levels = _mm512_load_ps(kLevels<kLayout>.of);
          low[half] = _mm512_maskz_permutexvar_ps(kAll, q, levels);
          high[half] =
              _mm512_maskz_permutexvar_ps(kAll, _mm512_maskz_srli_epi32(kAll, q, 4), levels);
        }
      }
    }
    store_pair(low, scale, start, to);
    if constexpr (layout_info(kLayout).stored_bits == 4) {
      store_pair(high, scale, high_start, to + 8 * kTileBytes);
    }
  }
}

template <Layout kLayout>
RIDGE_UNPACK_TARGET void unpack(const WeightView& w, int64_t group, int64_t column,
                                std::byte* panel) {
  constexpr LayoutInfo kInfo = layout_info(kLayout);
  constexpr int kScales = kBlock / kInfo.columns_per_scale;
  constexpr int kChunks = kInfo.data_bytes() / 64 / kScales;  // of a scale
  constexpr int64_t kColumns = 512;                           // of a panel
  const int64_t last = std::min(column + kColumns, w.columns) / kBlock;
  for (int64_t b = column / kBlock; b < last; ++b, panel += kBlock / 2 * kTileBytes) {
    const std::byte* const blocks = w.data + group * w.stride + b / 2 * kInfo.pair_bytes();
    const int64_t second = b % 2;
    const std::byte* const scales = blocks + second * kInfo.scale_bytes();
    const std::byte* const mins = blocks + 2 * kInfo.scale_bytes() + second * kInfo.min_bytes();
    const std::byte* const data =
        blocks + 2 * (kInfo.scale_bytes() + kInfo.min_bytes()) + second * kInfo.data_bytes();
    for (int s = 0; s < kScales; ++s) {
      __m512 scale[2], start[2], high_start[2];
      widen_rows(scales + s * kGroup * 2, scale);
      if constexpr (kInfo.min) {
        widen_rows(mins, start);
      } else {
        const int offset = kNibbles<kLayout> ? kNibbleStart[0]
                           : kBytes<kLayout> ? -32768 - kInfo.offset
                                             : -kInfo.offset;
        for (int half = 0; half < 2; ++half) {
          start[half] = _mm512_mul_ps(scale[half], _mm512_set1_ps(float(offset)));
        }
      }
      for (int half = 0; half < 2; ++half) {
        high_start[half] = start[half];
        if (kNibbles<kLayout>) {
          high_start[half] = _mm512_mul_ps(scale[half], _mm512_set1_ps(float(kNibbleStart[1])));
        }
      }
#pragma GCC unroll 8
      for (int c = s * kChunks; c < (s + 1) * kChunks; ++c) {
        unpack_chunk<kLayout>(data + c * 64, scale, start, high_start, panel + 2 * c * kTileBytes);
      }
    }
  }
}

}  // namespace

void use_vbmi_unpack(BlockKernels& kernels) {
  const auto set = [&](Layout layout, UnpackPanel unpacks) {
    kernels.bf16[static_cast<int>(layout)] = unpacks;
  };
  set(Layout::q4, unpack<Layout::q4>);
  set(Layout::q4_min, unpack<Layout::q4_min>);
  set(Layout::q5, unpack<Layout::q5>);
  set(Layout::q5_min, unpack<Layout::q5_min>);
  set(Layout::q6, unpack<Layout::q6>);
  set(Layout::q8, unpack<Layout::q8>);
  set(Layout::fp4, unpack<Layout::fp4>);
}

}  // namespace ridge::cpu

#endif
