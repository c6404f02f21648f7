// How the decode kernel multiplies weights of each format: activations as the B operand in shared
// memory, weights made into A in registers, and the sums between.
#pragma once

#include <type_traits>

#include "engine/cuda/decode/decode_shared.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

template <WeightFormat kFormat, int kRows>
struct Operands {
  static constexpr Operand kOperand = operand_of(kFormat);
  static constexpr int kSteps = format_info(kFormat).columns / 16;  // of 16 columns in a chunk
  static constexpr int kTiles = tiles_of_rows(kFormat, kRows);
  static constexpr int kChunk = format_info(kFormat).chunk_bytes;
  static constexpr int kChunksPerWarp = kChunksPerStage / kConsumers;
  static constexpr int kXChunk = x_chunk_bytes(kFormat, kRows);
  static constexpr int kChunksOfGroup = kGroupColumns / format_info(kFormat).columns;
  // Sums that do not wait for each other; other formats have them within a stage.
  static constexpr int kChains = kFormat == WeightFormat::bf16 ? 4 : 1;
  using Sums = float[kChains][kTiles][4];

  // Digits in shared memory: [chunk][column][t][step], four columns of the step to a word: 2t,
  // 2t + 8, 2t + 1, 2t + 9, which is where int8 and int4 have them.
  static constexpr int kColumns = (kOperand == Operand::digits ? kDigits : 1) * kRows;
  // f32's last bit at 1.5 * 2^23 is 1: an integer added there can be read off the bits, and the
  // other way round.
  static constexpr int kMagicBits = 0x4b400000;
  static constexpr float kMagic = 12582912;

  static __device__ uint32_t f16_pair(uint32_t bf16, float scale) {
    const __half2 pair = __floats2half2_rn(__uint_as_float(bf16 << 16) * scale,
                                           __uint_as_float(bf16 & 0xffff0000u) * scale);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }

  // The integer plus 128, so that its lower digit comes out as 128 more than it is.
  static __device__ uint32_t integer(uint32_t high_half, float scale) {
    return __float_as_uint(__fmaf_rn(__uint_as_float(high_half), scale, kMagic + 128));
  }
  // Returns the sums of the digits, the higher one's from bit 16 on.
  static __device__ int digits(uint32_t (&to)[kDigits], uint32_t first, uint32_t second,
                               float scale) {
    const uint32_t a = integer(first << 16, scale), b = integer(second << 16, scale);
    const uint32_t c = integer(first & 0xffff0000u, scale);
    const uint32_t d = integer(second & 0xffff0000u, scale);
    const uint32_t ab = __byte_perm(a, b, 0x5140), cd = __byte_perm(c, d, 0x5140);
    to[0] = __byte_perm(ab, cd, 0x5410) ^ 0x80808080u;
    to[1] = __byte_perm(ab, cd, 0x7632);
    constexpr int kOnes = 0x01010101;
    return __dp4a(static_cast<int>(to[0]), kOnes, __dp4a(static_cast<int>(to[1]), kOnes, 0) << 16);
  }

  // Of 8 activations, as bits.
  static __device__ uint32_t largest(const uint4& v) {
    uint32_t most = 0;
    for (const uint32_t pair : {v.x, v.y, v.z, v.w}) {
      most = max_u16x2(most, pair & 0x7fff7fffu);
    }
    return max(most & 0xffff, most >> 16);
  }
  // A power of two that can be inverted, however small the largest.
  static __device__ float scale_of(uint32_t largest) {
    constexpr uint32_t kTop = 254 + (kOperand == Operand::f16 ? 14 : 13);
    return __uint_as_float(min(253u, kTop - (largest >> 7)) << 23);
  }

  // Where a lane's 16 bytes of activations, half of 16 columns of a token, come from: a group of a
  // token lies in eight lanes of a warp. Units of 32 of them, of the warp's own groups.
  static constexpr int kUnitRows = kRows < 4 ? kRows : 4;
  struct Source {
    static constexpr int kUnits = kRows / kUnitRows;  // in the same columns
    static constexpr int kGroups = 4 / kUnitRows;     // in a unit
    static __device__ int units(int count) {
      constexpr int kEach = 8 * kRows * kConsumers * kGroups;
      return (count + kEach - 1) / kEach * kUnits;
    }

    int step, token, t;  // step: of 16 columns; t: of the first 8 bytes
    __device__ Source(int unit, int warp, int lane) {
      const int of_unit = lane / (2 * kUnitRows);
      const int group = (unit / kUnits * kGroups + of_unit / 4) * kConsumers + warp;
      step = group * 4 + of_unit % 4;
      token = unit % kUnits * kUnitRows + lane / 2 % kUnitRows;
      t = lane % 2 * 2;
    }
    __device__ int index() const { return (step * kRows + token) * 2 + t / 2; }
  };
  // The lanes of a group differ in these bits of their number.
  static __device__ constexpr int across(int i) { return i == 0 ? 1 : i * 2 * kUnitRows; }

  // Scales a lane's parts of two groups, and puts them where loads expect them. All lanes of a
  // warp; `count`: of 16 bytes, in the matrix's columns.
  static __device__ void place(const Shared& shared, const Source (&at)[2], const uint4 (&v)[2],
                               int count) {
    uint32_t most = largest(v[0]) | largest(v[1]) << 16;
#pragma unroll
    for (int bit = 0; bit < 3; ++bit) {
      const uint32_t other = __shfl_xor_sync(0xffffffffu, most, across(bit));
      most = max_u16x2(most, other);
    }
    const float scale[2] = {scale_of(most & 0xffff), scale_of(most >> 16)};
    Undo undo[2];
    bool there[2], first[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const uint32_t inverse = (254u << 23) - __float_as_uint(scale[j]);
      const bool number = (j ? most >> 16 : most & 0xffff) < 0x7f80;  // or infinity would be lost
      undo[j] = {__uint_as_float(number ? inverse : 0x7fffffffu), 0};
      there[j] = at[j].index() < count;
      first[j] = there[j] && at[j].step % 4 == 0 && at[j].t == 0;
    }
    if constexpr (kOperand == Operand::f16) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        // Two steps' for a lane side by side.
        uint2* to = reinterpret_cast<uint2*>(shared.x) +
                    ((at[j].step / 2 * kRows + at[j].token) * 4 + at[j].t) * 2 + at[j].step % 2;
        const uint2 low = {f16_pair(v[j].x, scale[j]), f16_pair(v[j].y, scale[j])};
        const uint2 high = {f16_pair(v[j].z, scale[j]), f16_pair(v[j].w, scale[j])};
        if (there[j]) to[0] = low, to[2] = high;
        if (first[j]) shared.undo[at[j].step / 4 * kRows + at[j].token] = undo[j];
      }
    } else {
      uint32_t low[2][kDigits], high[2][kDigits];
      int sum[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        sum[j] =
            digits(low[j], v[j].x, v[j].y, scale[j]) + digits(high[j], v[j].z, v[j].w, scale[j]);
      }
      if constexpr (kFormat == WeightFormat::int4) {
#pragma unroll
        for (int bit = 0; bit < 3; ++bit) {
#pragma unroll
          for (int j = 0; j < 2; ++j) sum[j] += __shfl_xor_sync(0xffffffffu, sum[j], across(bit));
        }
      }
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        uint32_t* to = reinterpret_cast<uint32_t*>(shared.x) +
                       ((at[j].step / kSteps * kColumns + at[j].token) * 4 + at[j].t) * kSteps +
                       at[j].step % kSteps;
        constexpr int kNext = kRows * 4 * kSteps;  // digit
        if (there[j]) {
          to[0] = low[j][0], to[kSteps] = high[j][0];
          to[kNext] = low[j][1], to[kNext + kSteps] = high[j][1];
        }
        if (first[j]) {
          // Makes q into q - 8. At most 64 * 128 in each half of the sum.
          Undo* its = shared.undo + at[j].step / 4 * kColumns + at[j].token;
          const int lower = static_cast<int16_t>(sum[j]);
          its[0] = {undo[j].factor, -8 * lower};
          its[kRows] = {undo[j].factor * 256, -8 * ((sum[j] - lower) >> 16)};
        }
      }
    }
  }

  // One load of a lane's activations: a step in bf16, two in f16; a chunk's digits.
  static constexpr int kLoadBytes = kOperand == Operand::bf16     ? 8
                                    : kOperand == Operand::digits ? kSteps * 4
                                                                  : 16;
  static constexpr int kLoads = kFormat == WeightFormat::nf4 ? 2 : 1;  // for a chunk
  using Loaded = std::conditional_t<kLoadBytes == 8, uint2, uint4>;

  // What a lane loads of the activations. Columns beyond the tokens repeat some: their results are
  // not used.
  struct Lane {
    const uint8_t* x;
    const Undo* undo;
    const uint32_t* levels;  // nf4

    __device__ Lane(const Shared& shared, int warp, int lane) {
      const int g = lane / 4, t = lane % 4;
      int place = kColumns < 8 ? lane % (kColumns * 4) : lane;
      undo = shared.undo + (kColumns < 8 ? t * 2 % kColumns : t * 2);
      if (kOperand == Operand::digits && kRows == 1) {
        place = g / 2 % 2 * 4 + t;
        undo = shared.undo + t % 2;
      }
      undo += warp * kColumns;
      levels = shared.levels + lane;
      x = shared.x + warp * kChunksOfGroup * kXChunk + place * kLoadBytes;
    }
    __device__ void advance() {
      x += kChunksPerStage * kXChunk;
      undo += kChunksPerStage / kChunksOfGroup * kColumns;
    }
  };

  // A warp's chunks of a stage, from its first on: those of every kConsumers-th group.
  static __device__ constexpr int chunk_at(int u) {
    return u / kChunksOfGroup * kConsumers * kChunksOfGroup + u % kChunksOfGroup;
  }

  // A warp's part of a stage: its chunks, `chunks` from its first to the stage's end; of those that
  // are not there (kFull: none) nothing is added.
  template <bool kFull>
  static __device__ void multiply(Sums& acc, const uint8_t* from, const Lane& at, int lane,
                                  int chunks) {
    constexpr int kAtOnce = 4;  // or registers run out
#pragma unroll
    for (int first = 0; first < kChunksPerWarp; first += kAtOnce) {
      uint4 a[kAtOnce];
      __half2 scale[kAtOnce];
      Loaded b[kAtOnce][kLoads][kTiles];
      Undo undo[kAtOnce][kTiles][2];
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        const int u = first + n;
        const bool there = kFull || chunk_at(u) < chunks;
        const uint8_t* chunk = from + chunk_at(u) * kChunk;
        a[n] = there ? *reinterpret_cast<const uint4*>(chunk + lane * 16) : uint4{0, 0, 0, 0};
        scale[n] = __half2{};
        if (has_group_scale(kFormat) && there) {
          scale[n] = *reinterpret_cast<const __half2*>(chunk + 512 + lane / 4 * 4);
        }
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
#pragma unroll
          for (int l = 0; l < kLoads; ++l) {
            const uint8_t* x = at.x + chunk_at(u) * kXChunk + l * kRows * 64 + i * 32 * kLoadBytes;
            b[n][l][i] = there ? *reinterpret_cast<const Loaded*>(x) : Loaded{};
          }
          if constexpr (kFormat != WeightFormat::bf16) {
            load_undo(undo[n][i], at.undo + u / kChunksOfGroup * kConsumers * kColumns + i * 8,
                      there);
          }
        }
      }
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        if constexpr (kFormat == WeightFormat::bf16) {
#pragma unroll
          for (int i = 0; i < kTiles; ++i) {
            ptx::mma_bf16(acc[n % kChains][i], {a[n].x, a[n].y, a[n].z, a[n].w}, b[n][0][i].x,
                          b[n][0][i].y);
          }
        } else {
          chunk(acc[0], a[n], scale[n], b[n], undo[n], at.levels);
        }
      }
    }
  }

  // Of the lane's two columns; the first alone counts for a single token.
  static __device__ void load_undo(Undo (&to)[2], const Undo* from, bool there) {
    to[0] = to[1] = {0, 0};
    if (!there) return;
    if (kRows == 1) {
      to[0] = *from;
    } else {
      const int4 both = *reinterpret_cast<const int4*>(from);
      to[0] = {__int_as_float(both.x), both.y}, to[1] = {__int_as_float(both.z), both.w};
    }
  }

  // int4: what an MMA begins with, so that q - 8 comes out in its rows g + 8, and in rows g less
  // those.
  static __device__ int4 beginning(const Undo (&undo)[2]) {
    const int other[2] = {undo[0].add * 16 + kMagicBits, undo[1].add * 16 + kMagicBits};
    return {other[0] + undo[0].add, other[1] + undo[1].add, other[0], other[1]};
  }

  // One chunk of int4: a byte has q of row g, and above it q' of row g + 8. Multiplied as they are
  // they make row g's sum and 16 times the other's, from which the other's, of the upper halves
  // alone, is taken away. The largest stay below 64 * 128 * (255 + 17 * 8) < 2^22.
  static __device__ int4 int4_product(const uint4& a, const uint4& b, const int4& begin) {
    constexpr uint32_t kUpper = 0xf0f0f0f0u;
    const int4 half = ptx::mma_u8_s8(begin, a.x, a.x & kUpper, a.y, a.y & kUpper, b.x, b.y);
    return ptx::mma_u8_s8(half, a.z, a.z & kUpper, a.w, a.w & kUpper, b.z, b.w);
  }

  // One token's int4, a stage in three parts, so that a warp can load the next one's words between
  // products and sums. Chunks go in pairs: of the MMA's two equal columns in a lane the first
  // counts for one of them, the second for the other, and both begin with the same four numbers.
  static constexpr bool kSplits = kFormat == WeightFormat::int4 && kRows == 1;
  struct Words {
    uint4 a[kChunksPerWarp];
    __half2 scale[kChunksPerWarp];
  };
  struct Columns {
    uint4 b[kChunksPerWarp];
    int4 begin[kChunksPerWarp / 2];
    float factor[kChunksPerWarp];
  };
  struct Products {
    int4 sum[kChunksPerWarp];
    float2 factor[kChunksPerWarp];
  };
  static __device__ void load(Words& words, const uint8_t* from, int lane) {
#pragma unroll
    for (int u = 0; u < kChunksPerWarp; ++u) {
      const uint8_t* chunk = from + chunk_at(u) * kChunk;
      words.a[u] = *reinterpret_cast<const uint4*>(chunk + lane * 16);
      words.scale[u] = *reinterpret_cast<const __half2*>(chunk + 512 + lane / 4 * 4);
    }
  }
  static __device__ void load(Columns& columns, const Lane& at) {
    const int2* const undo = reinterpret_cast<const int2*>(at.undo);
#pragma unroll
    for (int u = 0; u < kChunksPerWarp; u += 2) {
      const int2 first = undo[u * kConsumers * kColumns],
                 second = undo[(u + 1) * kConsumers * kColumns];
      columns.factor[u] = __int_as_float(first.x), columns.factor[u + 1] = __int_as_float(second.x);
      columns.begin[u / 2] = beginning({{0, first.y}, {0, second.y}});
      columns.b[u] = *reinterpret_cast<const uint4*>(at.x + chunk_at(u) * kXChunk);
      columns.b[u + 1] = *reinterpret_cast<const uint4*>(at.x + chunk_at(u + 1) * kXChunk);
    }
  }
  static __device__ void multiply(Products& to, const Words& words, const Columns& columns) {
    constexpr uint32_t kUpper = 0xf0f0f0f0u;
#pragma unroll
    for (int u = 0; u < kChunksPerWarp; ++u) {
      const uint4& a = words.a[u];
      to.sum[u] = ptx::mma_u8_s8(columns.begin[u / 2], a.x, a.x & kUpper, a.y, a.y & kUpper,
                                 columns.b[u].x, columns.b[u].y);
    }
#pragma unroll
    for (int u = 0; u < kChunksPerWarp; ++u) {
      const uint4& a = words.a[u];
      to.sum[u] = ptx::mma_u8_s8(to.sum[u], a.z, a.z & kUpper, a.w, a.w & kUpper, columns.b[u].z,
                                 columns.b[u].w);
      const float2 d = __half22float2(words.scale[u]);
      to.factor[u] = {d.x * columns.factor[u], d.y * columns.factor[u]};
    }
  }
  static __device__ void add(Sums& acc, const Products& products) {
#pragma unroll
    for (int u = 0; u < kChunksPerWarp; ++u) {
      const int4& sum = products.sum[u];
      const float both = __int_as_float(u % 2 ? sum.y : sum.x);
      const float other = __int_as_float(u % 2 ? sum.w : sum.z);
      acc[0][0][0] += products.factor[u].x * (both - other);
      acc[0][0][2] += products.factor[u].y * (other - kMagic);
    }
  }

  // One chunk.
  static __device__ void chunk(float (&acc)[kTiles][4], const uint4& a, __half2 scale,
                               const Loaded (&b)[kLoads][kTiles], const Undo (&undo)[kTiles][2],
                               const uint32_t* levels) {
    constexpr int kEach = kRows == 1 ? 1 : 2;  // columns that count
    if constexpr (kFormat == WeightFormat::int8) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        int sums[4] = {};
        ptx::mma_s8(sums, {a.x, a.y, a.z, a.w}, b[0][i].x, b[0][i].y);
#pragma unroll
        for (int e = 0; e < kEach; ++e) {
          acc[i][e] += undo[i][e].factor * static_cast<float>(sums[e]);
          acc[i][2 + e] += undo[i][e].factor * static_cast<float>(sums[2 + e]);
        }
      }
    } else if constexpr (kFormat == WeightFormat::int4) {
      const float2 d = __half22float2(scale);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const int4 product = int4_product(a, b[0][i], beginning(undo[i]));
        const float both[2] = {__int_as_float(product.x), __int_as_float(product.y)};
        const float other[2] = {__int_as_float(product.z), __int_as_float(product.w)};
#pragma unroll
        for (int e = 0; e < kEach; ++e) {
          acc[i][e] += d.x * undo[i][e].factor * (both[e] - other[e]);
          acc[i][2 + e] += d.y * undo[i][e].factor * (other[e] - kMagic);
        }
      }
    } else {
      float sums[kTiles][4] = {};
      const uint32_t word[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
        uint32_t values[4];
        if constexpr (kFormat == WeightFormat::fp8) {
          values[0] = fp8_pair<0>(word[k * 2]), values[1] = fp8_pair<1>(word[k * 2]);
          values[2] = fp8_pair<0>(word[k * 2 + 1]), values[3] = fp8_pair<1>(word[k * 2 + 1]);
        } else {
          // A word has register r's two at bits 4 r and 4 r + 16.
          uint32_t named[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) named[i] = levels[(word[k] >> 8 * i & 0xff) * 32];
#pragma unroll
          for (int r = 0; r < 4; ++r) {
            values[r] = __byte_perm(named[r / 2], named[2 + r / 2], r % 2 ? 0x7632 : 0x5410);
          }
        }
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
          const uint4& x = b[k / 2][i];
          ptx::mma_f16(sums[i], values, k % 2 ? x.z : x.x, k % 2 ? x.w : x.y);
        }
      }
      float2 d = {1, 1};
      if (has_group_scale(kFormat)) d = __half22float2(scale);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
#pragma unroll
        for (int e = 0; e < kEach; ++e) {
          acc[i][e] += d.x * undo[i][e].factor * sums[i][e];
          acc[i][2 + e] += d.y * undo[i][e].factor * sums[i][2 + e];
        }
      }
    }
  }

  // The sum for token 8 i + 2 t + v % 2 and row g + v / 2 * 8: over chains, and of its digits.
  static __device__ float result(const Sums& acc, int i, int v) {
    float sum = acc[0][i][v];
#pragma unroll
    for (int chain = 1; chain < kChains; ++chain) sum += acc[chain][i][v];
    if constexpr (kOperand != Operand::digits) return sum;
    // The higher digit's column is the lane's own, so many tiles or lanes on.
    constexpr int kOn = columns_of_digit(kRows);
    sum +=
        kOn < 8 ? __shfl_down_sync(0xffffffffu, acc[0][i][v], kOn / 2, 4) : acc[0][i + kOn / 8][v];
    // Row g + 8 of int4 was multiplied from the upper halves of bytes.
    return kFormat == WeightFormat::int4 && v >= 2 ? sum * 0.0625f : sum;
  }
};

}  // namespace ridge::cuda
#endif
