// A stage of int4 or nf4 weights times one row of the batch, as integers, in three parts (load,
// multiply, add), so that a warp loads the next weights between the MMAs and the accumulation.
//
// Activations are 16-bit integers as a low and a high signed byte (int8x2 operands). Low bytes are
// columns 0, 1, 4 and 5 of the MMA, high bytes are the others: a lane has the same column twice.
#pragma once

#include "base/ptx/mma.cuh"
#include "engine/cuda/decode/decode_shared_memory.cuh"
#include "engine/cuda/layout/dequantize.cuh"

#ifdef __CUDA_ARCH__
namespace ridge::cuda {

// ---- int4
//
// A byte of weights holds q of row g and, in its upper nibble, q' of row g + 8. The byte as it is,
// multiplied, gives the sum of row g plus 16 times that of row g + 8; the upper nibbles alone give
// the latter, which is subtracted. Sums stay below 64 * 128 * (255 + 17 * 8) < 2^22.

// The last mantissa bit of an f32 near 1.5 * 2^23 is worth 1. So adding kMagic converts a float to
// an integer in the low bits, and adding kMagicBits to an integer converts it to a float.
constexpr int kMagicBits = 0x4b400000;
constexpr float kMagic = 12582912;

constexpr uint32_t kUpperNibbles = 0xf0f0f0f0u;

// The initial accumulator of the int4 MMAs: kMagicBits and the offset of q - 8, in rows g + 8
// once (times 16), in rows g for both.
__device__ inline int4 int4_initial(const GroupScale (&group)[2]) {
  const int upper[2] = {group[0].offset * 16 + kMagicBits, group[1].offset * 16 + kMagicBits};
  return {upper[0] + group[0].offset, upper[1] + group[1].offset, upper[0], upper[1]};
}

// Two words of weights.
__device__ inline int4 int4_mma(uint32_t w0, uint32_t w1, uint32_t b0, uint32_t b1,
                                const int4& initial) {
  return ptx::mma_u8_s8(initial, w0, w0 & kUpperNibbles, w1, w1 & kUpperNibbles, b0, b1);
}

// ---- nf4
//
// A byte permutation (PRMT) looks up four nibbles among 8 bytes; a nibble above 7 gives the sign of
// the byte that its lower bits name, 0 or -1. Three permutations give a level in units of 2^-10 /
// 120:
//   n below 8  1747 first[n] + 1486 second[n]
//   n above 7  1024 third[15 - n] - 1747 (first[n - 8] < 0) - 1486 (second[n - 8] < 0)
// `first` and `second` are selected by the nibbles, `third` (never negative) by 15 minus the
// nibbles. The bytes and factors are the result of a search for the smallest relative error of any
// level: 2^-10.3. Rounding to f16 errs by up to 2^-11, to bf16 by up to 2^-9. The f16 levels
// themselves, as two bytes each, take four permutations.
//
// Permutations are the bottleneck: they run on the ALU, which takes two clocks for a warp's
// instruction. So 15 minus the nibbles is computed as -1 - w, on the FMA pipe.

struct Nf4Bytes {
  int8_t bytes[3][8];
  int factor[3];
  int one;  // the level 1
};
constexpr Nf4Bytes kNf4Bytes = {{{36, -123, 9, 19, -3, 44, -3, 0},
                                 {-125, 87, -54, -55, -20, -67, -4, 0},
                                 {120, 90, 69, 56, 42, 31, 21, 11}},
                                {1747, 1486, 1024},
                                120 * 1024};
constexpr float kNf4Unit = 1.0f / kNf4Bytes.one;

__host__ __device__ constexpr int nf4_integer_level(int i) {
  const Nf4Bytes t = kNf4Bytes;
  if (i < 8) return t.factor[0] * t.bytes[0][i] + t.factor[1] * t.bytes[1][i];
  return t.factor[2] * t.bytes[2][15 - i] - t.factor[0] * (t.bytes[0][i - 8] < 0) -
         t.factor[1] * (t.bytes[1][i - 8] < 0);
}
// Whether every level is that of kNf4 up to 2^-10 of it. f16 levels are multiples of 2^-14.
__host__ __device__ constexpr bool nf4_levels_match() {
  for (int i = 0; i < 16; ++i) {
    const int bits = kNf4.f16[i], exponent = bits >> 10 & 31;
    const int magnitude = exponent ? (1024 + (bits & 1023)) << (exponent - 11) : 0;
    const long long wanted = (bits >> 15 ? -1LL : 1LL) * magnitude * kNf4Bytes.one;
    const long long error = static_cast<long long>(nf4_integer_level(i)) * 16384 - wanted;
    const long long limit = static_cast<long long>(magnitude) * kNf4Bytes.one >> 10;
    if (error > limit || error < -limit) return false;
  }
  return true;
}
static_assert(nf4_levels_match());

// Four bytes of a table as a word.
__host__ __device__ constexpr uint32_t nf4_word(int table, int first) {
  uint32_t word = 0;
  for (int n = 0; n < 4; ++n) {
    word |= (static_cast<uint32_t>(kNf4Bytes.bytes[table][first + n]) & 0xff) << n * 8;
  }
  return word;
}

// Constants in registers. A permutation takes the second word of a table as a constant, but the
// first from a register. blockIdx.y is 0, which the compiler does not know: otherwise it would move
// the word to a register again for every permutation, and compute -1 - w on the ALU.
struct Nf4Tables {
  uint32_t first[3];  // words
  uint32_t minus_one;

  __device__ Nf4Tables() {
    first[0] = nf4_word(0, 0) + blockIdx.y;
    first[1] = nf4_word(1, 0) + blockIdx.y;
    first[2] = nf4_word(2, 0) + blockIdx.y;
    minus_one = blockIdx.y - 1;
  }
};

struct Nf4Sums {
  int sums[3][4];  // of each table

  // Adds the bytes of two words x activations.
  template <int kTable>
  __device__ void multiply(const Nf4Tables& tables, const uint32_t (&nibbles)[4], uint32_t b0,
                           uint32_t b1) {
    constexpr uint32_t kSecond = nf4_word(kTable, 4);
    uint32_t a[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // __byte_perm would clear the upper bits of the nibbles first
      asm("prmt.b32 %0, %1, %2, %3;"
          : "=r"(a[i])
          : "r"(tables.first[kTable]), "n"(kSecond), "r"(nibbles[i]));
    }
    ptx::mma_s8(sums[kTable], a, b0, b1);
  }
  __device__ void add(const Nf4Tables& tables, uint32_t w0, uint32_t w1, uint32_t b0, uint32_t b1) {
    const uint32_t nibbles[4] = {w0, w0 >> 16, w1, w1 >> 16};
    uint32_t inverted[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      inverted[i] = nibbles[i] * tables.minus_one + tables.minus_one;
    }
    multiply<0>(tables, nibbles, b0, b1);
    multiply<1>(tables, nibbles, b0, b1);
    multiply<2>(tables, inverted, b0, b1);
  }
  // Of row g (0) or g + 8 (2). Products may wrap around; the sum is below 64 * 128 * `one` < 2^30.
  __device__ float row(int v) const {
    constexpr Nf4Bytes kTables = kNf4Bytes;
    unsigned sum = 0;
#pragma unroll
    for (int table = 0; table < 3; ++table) {
      sum += static_cast<unsigned>(kTables.factor[table]) * static_cast<unsigned>(sums[table][v]);
    }
    return static_cast<float>(static_cast<int>(sum));
  }
};

// ---- a stage

template <WeightFormat kFormat>
struct OneRow {
  static constexpr bool kInt4 = kFormat == WeightFormat::int4;
  static constexpr int kChunk = format_info(kFormat).chunk_bytes;
  static constexpr int kChunksPerWarp = kChunksPerStage / kMathWarps;
  static constexpr int kActivationChunk = activation_chunk_bytes(kFormat, 1);

  struct WeightFragment {
    uint4 a[kChunksPerWarp];
    __half2 scale[kChunksPerWarp];
  };
  // int4: chunks go in pairs. The first of a lane's equal columns counts for one chunk, the second
  // for the other, and the MMAs of both start from the same four numbers.
  struct ActivationFragment {
    uint4 b[kChunksPerWarp];
    int4 initial[kInt4 ? kChunksPerWarp / 2 : 1];
    float factor[kChunksPerWarp];
  };
  struct StageSums {
    int4 sum[kInt4 ? kChunksPerWarp : 1];
    float2 rows[kInt4 ? 1 : kChunksPerWarp];  // nf4: sums of rows g and g + 8
    float2 factor[kChunksPerWarp];
  };

  static __device__ void load(WeightFragment& to, const uint8_t* from, int lane) {
#pragma unroll
    for (int u = 0; u < kChunksPerWarp; ++u) {
      const uint8_t* chunk = from + u * kMathWarps * kChunk;
      to.a[u] = *reinterpret_cast<const uint4*>(chunk + lane * 16);
      to.scale[u] = *reinterpret_cast<const __half2*>(chunk + 512 + lane / 4 * 4);
    }
  }

  // `scales`: of the lane's byte of the activations.
  static __device__ void load(ActivationFragment& to, const uint8_t* x, const GroupScale* scales) {
    const int2* const groups = reinterpret_cast<const int2*>(scales);
    int2 group[kChunksPerWarp];
#pragma unroll
    for (int u = 0; u < kChunksPerWarp; ++u) {
      group[u] = groups[u * kMathWarps * kBytePlanes];
      to.factor[u] = __int_as_float(group[u].x);
      to.b[u] = *reinterpret_cast<const uint4*>(x + u * kMathWarps * kActivationChunk);
      if (kInt4 && u % 2) {
        to.initial[u / 2] = int4_initial({{0, group[u - 1].y}, {0, group[u].y}});
      }
    }
  }

  static __device__ void multiply(StageSums& to, const WeightFragment& weights,
                                  const ActivationFragment& x, const Nf4Tables& tables) {
#pragma unroll
    for (int u = 0; u < kChunksPerWarp; ++u) {
      const uint4 &a = weights.a[u], &b = x.b[u];
      if constexpr (kInt4) {
        to.sum[u] = int4_mma(a.x, a.y, b.x, b.y, x.initial[u / 2]);
      } else {
        Nf4Sums sums = {};
        sums.add(tables, a.x, a.y, b.x, b.y);
        sums.add(tables, a.z, a.w, b.z, b.w);
        to.rows[u] = {sums.row(0), sums.row(2)};
      }
    }
#pragma unroll
    for (int u = 0; u < kChunksPerWarp; ++u) {
      const uint4 &a = weights.a[u], &b = x.b[u];
      if constexpr (kInt4) to.sum[u] = int4_mma(a.z, a.w, b.z, b.w, to.sum[u]);
      const float2 d = __half22float2(weights.scale[u]);
      to.factor[u] = {d.x * x.factor[u], d.y * x.factor[u]};
    }
  }

  static __device__ void add(float (&acc)[4], const StageSums& stage) {
#pragma unroll
    for (int u = 0; u < kChunksPerWarp; ++u) {
      if constexpr (kInt4) {
        const int4& sum = stage.sum[u];
        const float both = __int_as_float(u % 2 ? sum.y : sum.x);
        const float upper = __int_as_float(u % 2 ? sum.w : sum.z);
        acc[0] += stage.factor[u].x * (both - upper);
        acc[2] += stage.factor[u].y * (upper - kMagic);
      } else {
        acc[0] += stage.factor[u].x * stage.rows[u].x;
        acc[2] += stage.factor[u].y * stage.rows[u].y;
      }
    }
  }
};

}  // namespace ridge::cuda
#endif
