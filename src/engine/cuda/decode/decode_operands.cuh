// Operands of the decode kernel's MMAs for each weight format: activations converted to the B
// operand in shared memory, weights converted to A in registers, and the scaled accumulation.
//
// Operand layouts in shared memory, for one row of the batch and 16 columns (a step) of K:
//   bf16    as in global memory (activation_at): 8 bytes per lane t
//   f16     two steps side by side: 16 bytes per lane t
//   int8x2  [chunk][column][t][step], four columns of the step in a word, in the order in which the
//           weights have them: 2t, 2t + 8, 2t + 1, 2t + 9 for int8 and int4, 2t, 2t + 1, 2t + 8,
//           2t + 9 for nf4. Column: low bytes of all rows, then high bytes.
#pragma once

#include <type_traits>

#include "base/ptx/mma.cuh"
#include "engine/cuda/decode/decode_one_row.cuh"
#include "engine/cuda/decode/decode_sync.cuh"
#include "engine/cuda/layout/dequantize.cuh"

#ifdef __CUDA_ARCH__
namespace ridge::cuda {

template <WeightFormat kFormat, int kRows>
struct Operands {
  static constexpr OperandType kType = operand_type(kFormat, kRows);
  static constexpr int kSteps = format_info(kFormat).columns / 16;  // per chunk
  static constexpr int kTiles = mma_tiles(kFormat, kRows);
  static constexpr int kChunk = format_info(kFormat).chunk_bytes;
  static constexpr int kChunksPerWarp = kChunksPerStage / kMathWarps;
  static constexpr int kActivationChunk = activation_chunk_bytes(kFormat, kRows);
  static constexpr int kChunksPerGroup = kGroupColumns / format_info(kFormat).columns;
  static constexpr int kColumns = (kType == OperandType::int8x2 ? kBytePlanes : 1) * kRows;
  // Independent accumulators. Types and formats with group scales start new sums in every chunk
  // anyway.
  static constexpr int kChains = kType == OperandType::bf16 && !has_group_scale(kFormat) ? 4 : 1;
  using Accumulators = float[kChains][kTiles][4];

  // ---- activations to B operands

  static __device__ uint32_t f16_pair(uint32_t bf16_pair, float scale) {
    const __half2 pair = __floats2half2_rn(__uint_as_float(bf16_pair << 16) * scale,
                                           __uint_as_float(bf16_pair & 0xffff0000u) * scale);
    return *reinterpret_cast<const uint32_t*>(&pair);
  }

  // A bf16 value (in the upper half of a word) as an integer plus 128, so that its low byte comes
  // out as the signed low byte plus 128.
  static __device__ uint32_t integer(uint32_t high_half, float scale) {
    return __float_as_uint(__fmaf_rn(__uint_as_float(high_half), scale, kMagic + 128));
  }
  // Splits four activations into low and high signed bytes. Returns the sum of the low bytes, plus
  // the sum of the high bytes times 2^16.
  static __device__ int split_bytes(uint32_t (&to)[kBytePlanes], uint32_t first, uint32_t second,
                                    float scale) {
    constexpr bool kPairs = kFormat == WeightFormat::nf4;
    const uint32_t x[2][2] = {{integer(first << 16, scale), integer(first & 0xffff0000u, scale)},
                              {integer(second << 16, scale), integer(second & 0xffff0000u, scale)}};
    const uint32_t ab = __byte_perm(x[0][0], x[!kPairs][kPairs], 0x5140);
    const uint32_t cd = __byte_perm(x[kPairs][!kPairs], x[1][1], 0x5140);
    to[0] = __byte_perm(ab, cd, 0x5410) ^ 0x80808080u;
    to[1] = __byte_perm(ab, cd, 0x7632);
    constexpr int kOnes = 0x01010101;
    return __dp4a(static_cast<int>(to[0]), kOnes, __dp4a(static_cast<int>(to[1]), kOnes, 0) << 16);
  }

  // The largest magnitude of 8 activations, as bf16 bits.
  static __device__ uint32_t largest(const uint4& v) {
    uint32_t most = 0;
    for (const uint32_t pair : {v.x, v.y, v.z, v.w}) {
      most = max_u16x2(most, pair & 0x7fff7fffu);
    }
    return max(most & 0xffff, most >> 16);
  }
  // The power of two that brings `largest` below 2^15 or 2^14. Its inverse is representable too.
  static __device__ float group_factor(uint32_t largest) {
    constexpr uint32_t kTop = 254 + (kType == OperandType::f16 ? 14 : 13);
    return __uint_as_float(min(253u, kTop - (largest >> 7)) << 23);
  }

  // A unit is what a warp converts at a time: 32 lanes x 16 bytes of its own groups. A lane has 8
  // of 16 columns (a step) of one row; a group of a row is in eight lanes.
  static constexpr int kUnitRows = kRows < 4 ? kRows : 4;
  struct ActivationUnit {
    static constexpr int kPerColumns = kRows / kUnitRows;  // units that cover the same columns
    static constexpr int kGroups = 4 / kUnitRows;          // groups of columns in a unit
    // Units of a warp for `count` x 16 bytes of activations.
    static __device__ int count(int count) {
      constexpr int kAllWarps = 8 * kRows * kMathWarps * kGroups;
      return (count + kAllWarps - 1) / kAllWarps * kPerColumns;
    }

    int step, row, t;  // t: of the lane's first 8 bytes
    __device__ ActivationUnit(int unit, int warp, int lane) {
      const int in_unit = lane / (2 * kUnitRows);
      const int group = (unit / kPerColumns * kGroups + in_unit / 4) * kMathWarps + warp;
      step = group * 4 + in_unit % 4;
      row = unit % kPerColumns * kUnitRows + lane / 2 % kUnitRows;
      t = lane % 2 * 2;
    }
    // In units of 16 bytes.
    __device__ int index() const { return (step * kRows + row) * 2 + t / 2; }
  };
  // Bit `i` of the lane number in which the eight lanes of a group differ.
  static __device__ constexpr int group_lane_bit(int i) { return i == 0 ? 1 : i * 2 * kUnitRows; }

  // Scales and converts this lane's part of two units, and stores the operands in place. All lanes
  // of the warp call it. `count`: 16-byte words of activations in the matrix's columns.
  static __device__ void store_operands(const DecodeShared& shared, const ActivationUnit (&at)[2],
                                        const uint4 (&v)[2], int count) {
    uint32_t most = largest(v[0]) | largest(v[1]) << 16;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const uint32_t other = __shfl_xor_sync(0xffffffffu, most, group_lane_bit(i));
      most = max_u16x2(most, other);
    }
    const float scale[2] = {group_factor(most & 0xffff), group_factor(most >> 16)};
    GroupScale inverse[2];
    bool in_matrix[2], first_of_group[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const uint32_t bits = (254u << 23) - __float_as_uint(scale[j]);
      const bool finite = (j ? most >> 16 : most & 0xffff) < 0x7f80;  // else the result is NaN
      inverse[j] = {__uint_as_float(finite ? bits : 0x7fffffffu), 0};
      in_matrix[j] = at[j].index() < count;
      first_of_group[j] = in_matrix[j] && at[j].step % 4 == 0 && at[j].t == 0;
    }
    if constexpr (kType == OperandType::f16) {
      store_f16(shared, at, v, scale, inverse, in_matrix, first_of_group);
    } else {
      store_int8x2(shared, at, v, scale, inverse, in_matrix, first_of_group);
    }
  }

  static __device__ void store_f16(const DecodeShared& shared, const ActivationUnit (&at)[2],
                                   const uint4 (&v)[2], const float (&scale)[2],
                                   const GroupScale (&inverse)[2], const bool (&in_matrix)[2],
                                   const bool (&first_of_group)[2]) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      uint2* to = reinterpret_cast<uint2*>(shared.activations) +
                  ((at[j].step / 2 * kRows + at[j].row) * 4 + at[j].t) * 2 + at[j].step % 2;
      const uint2 low = {f16_pair(v[j].x, scale[j]), f16_pair(v[j].y, scale[j])};
      const uint2 high = {f16_pair(v[j].z, scale[j]), f16_pair(v[j].w, scale[j])};
      if (in_matrix[j]) to[0] = low, to[2] = high;
      if (first_of_group[j]) {
        shared.group_scales[at[j].step / 4 * kRows + at[j].row] = inverse[j];
      }
    }
  }

  static __device__ void store_int8x2(const DecodeShared& shared, const ActivationUnit (&at)[2],
                                      const uint4 (&v)[2], const float (&scale)[2],
                                      const GroupScale (&inverse)[2], const bool (&in_matrix)[2],
                                      const bool (&first_of_group)[2]) {
    uint32_t low[2][kBytePlanes], high[2][kBytePlanes];
    int sum[2];
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      sum[j] = split_bytes(low[j], v[j].x, v[j].y, scale[j]) +
               split_bytes(high[j], v[j].z, v[j].w, scale[j]);
    }
    if constexpr (kFormat == WeightFormat::int4) {
#pragma unroll
      for (int i = 0; i < 3; ++i) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          sum[j] += __shfl_xor_sync(0xffffffffu, sum[j], group_lane_bit(i));
        }
      }
    }
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      uint32_t* to = reinterpret_cast<uint32_t*>(shared.activations) +
                     ((at[j].step / kSteps * kColumns + at[j].row) * 4 + at[j].t) * kSteps +
                     at[j].step % kSteps;
      constexpr int kNextPlane = kRows * 4 * kSteps;
      if (in_matrix[j]) {
        to[0] = low[j][0], to[kSteps] = high[j][0];
        to[kNextPlane] = low[j][1], to[kNextPlane + kSteps] = high[j][1];
      }
      if (first_of_group[j]) {
        // The offset of int4: q - 8. Each half of the sum is at most 64 * 128.
        GroupScale* scales = shared.group_scales + at[j].step / 4 * kColumns + at[j].row;
        const int lower = static_cast<int16_t>(sum[j]);
        scales[0] = {inverse[j].factor, -8 * lower};
        scales[kRows] = {inverse[j].factor * 256, -8 * ((sum[j] - lower) >> 16)};
      }
    }
  }

  // ---- loads from shared memory

  // A lane's load of B: one step in bf16, two in f16, a chunk in int8x2.
  static constexpr int kLoadBytes = kType == OperandType::bf16     ? 8
                                    : kType == OperandType::int8x2 ? kSteps * 4
                                                                   : 16;
  static constexpr int kLoads =  // per chunk and tile
      kType == OperandType::int8x2 ? 1 : kActivationChunk / (kRows * kLoadBytes * 4);
  using Load = std::conditional_t<kLoadBytes == 8, uint2, uint4>;

  // Where a lane loads its activations and their scales. MMA columns beyond the rows of the batch
  // repeat other columns; their results are not used.
  struct LaneActivations {
    const uint8_t* x;
    const GroupScale* scales;
    const uint32_t* levels;  // nf4, two rows or more

    __device__ LaneActivations(const DecodeShared& shared, int warp, int lane) {
      const int g = lane / 4, t = lane % 4;
      int place = kColumns < 8 ? lane % (kColumns * 4) : lane;
      scales = shared.group_scales + (kColumns < 8 ? t * 2 % kColumns : t * 2);
      if (kType == OperandType::int8x2 && kRows == 1) {
        place = g / 2 % 2 * 4 + t;
        scales = shared.group_scales + t % 2;
      }
      scales += warp * kColumns;
      levels = shared.levels + lane;
      x = shared.activations + warp * kChunksPerGroup * kActivationChunk + place * kLoadBytes;
    }
    __device__ void skip(int columns) {
      x += columns * kRows * 2;
      scales += columns / kGroupColumns * kColumns;
    }
    // To the next stage.
    __device__ void advance() {
      x += kChunksPerStage * kActivationChunk;
      scales += kChunksPerStage / kChunksPerGroup * kColumns;
    }
  };

  // Offset of the warp's chunk `u` of a stage from its first one, in chunks. A warp has the chunks
  // of every kMathWarps-th group.
  static __device__ constexpr int chunk_at(int u) {
    return u / kChunksPerGroup * kMathWarps * kChunksPerGroup + u % kChunksPerGroup;
  }

  // Scales of the lane's two columns. For a single row only the first one counts.
  static __device__ void load_group_scales(GroupScale (&to)[2], const GroupScale* from,
                                           bool in_stage) {
    to[0] = to[1] = {0, 0};
    if (!in_stage) return;
    if (kRows == 1) {
      to[0] = *from;
    } else {
      const int4 both = *reinterpret_cast<const int4*>(from);
      to[0] = {__int_as_float(both.x), both.y}, to[1] = {__int_as_float(both.z), both.w};
    }
  }

  // ---- one stage

  // acc += this warp's chunks of a stage. `chunks`: from the warp's first chunk to the end of the
  // stage. Chunks beyond it count as zero; with kFull there are none.
  template <bool kFull>
  static __device__ void multiply(Accumulators& acc, const uint8_t* from, const LaneActivations& at,
                                  int lane, int chunks) {
    constexpr int kChunksInFlight = 4;  // more would spill
#pragma unroll
    for (int first = 0; first < kChunksPerWarp; first += kChunksInFlight) {
      uint4 a[kChunksInFlight];
      __half2 scale[kChunksInFlight];
      Load b[kChunksInFlight][kLoads][kTiles];
      GroupScale group[kChunksInFlight][kTiles][2];
#pragma unroll
      for (int n = 0; n < kChunksInFlight; ++n) {
        const int u = first + n;
        const bool in_stage = kFull || chunk_at(u) < chunks;
        const uint8_t* chunk = from + chunk_at(u) * kChunk;
        a[n] = in_stage ? *reinterpret_cast<const uint4*>(chunk + lane * 16) : uint4{0, 0, 0, 0};
        scale[n] = __half2{};
        if (has_group_scale(kFormat) && in_stage) {
          scale[n] = *reinterpret_cast<const __half2*>(chunk + 512 + lane / 4 * 4);
        }
#pragma unroll
        for (int i = 0; i < kTiles; ++i) {
#pragma unroll
          for (int l = 0; l < kLoads; ++l) {
            const uint8_t* x =
                at.x + chunk_at(u) * kActivationChunk + (l * kRows + i * 8) * 4 * kLoadBytes;
            b[n][l][i] = in_stage ? *reinterpret_cast<const Load*>(x) : Load{};
          }
          if constexpr (kType != OperandType::bf16) {
            load_group_scales(group[n][i],
                              at.scales + u / kChunksPerGroup * kMathWarps * kColumns + i * 8,
                              in_stage);
          }
        }
      }
#pragma unroll
      for (int n = 0; n < kChunksInFlight; ++n) {
        if constexpr (kType == OperandType::bf16 && kFormat == WeightFormat::int4) {
          multiply_int4_as_bf16(acc[0], a[n], scale[n], b[n]);
        } else if constexpr (kType == OperandType::bf16) {
          multiply_bf16(acc[n % kChains], a[n], b[n]);
        } else if constexpr (kFormat == WeightFormat::int8) {
          multiply_int8(acc[0], a[n], b[n], group[n]);
        } else if constexpr (kFormat == WeightFormat::int4) {
          multiply_int4(acc[0], a[n], scale[n], b[n], group[n]);
        } else if constexpr (kType == OperandType::int8x2) {
          multiply_nf4_integers(acc[0][0], a[n], scale[n], b[n][0][0], group[n][0][0].factor);
        } else {
          multiply_nf4(acc[0], a[n], scale[n], b[n], group[n], at.levels);
        }
      }
    }
  }

  // ---- one chunk: acc += weights x activations x scales. For a single row, only the first of the
  // lane's two columns counts.
  static constexpr int kLaneColumns = kRows == 1 ? 1 : 2;

  static __device__ void multiply_int8(float (&acc)[kTiles][4], const uint4& a,
                                       const Load (&b)[kLoads][kTiles],
                                       const GroupScale (&group)[kTiles][2]) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      int sums[4] = {};
      ptx::mma_s8(sums, {a.x, a.y, a.z, a.w}, b[0][i].x, b[0][i].y);
#pragma unroll
      for (int e = 0; e < kLaneColumns; ++e) {
        acc[i][e] += group[i][e].factor * static_cast<float>(sums[e]);
        acc[i][2 + e] += group[i][e].factor * static_cast<float>(sums[2 + e]);
      }
    }
  }

  // Row scales are applied in the epilogue.
  static __device__ void multiply_bf16(float (&acc)[kTiles][4], const uint4& a,
                                       const Load (&b)[kLoads][kTiles]) {
    uint32_t values[kSteps][4];
    dequantize_unscaled<kFormat>(a, __half2{}, values);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int i = 0; i < kTiles; ++i) ptx::mma_bf16(acc[i], values[k], b[k][i].x, b[k][i].y);
    }
  }

  // The weights without their scale are exact.
  static __device__ void multiply_int4_as_bf16(float (&acc)[kTiles][4], const uint4& a,
                                               __half2 scale, const Load (&b)[kLoads][kTiles]) {
    float sums[kTiles][4] = {};
    const uint32_t word[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t values[4];
      int4_levels(word[k], values);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) ptx::mma_bf16(sums[i], values, b[k][i].x, b[k][i].y);
    }
    const float2 d = __half22float2(scale);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        acc[i][e] += d.x * sums[i][e];
        acc[i][2 + e] += d.y * sums[i][2 + e];
      }
    }
  }

  // One row (decode_one_row.cuh).
  static __device__ void multiply_int4(float (&acc)[kTiles][4], const uint4& a, __half2 scale,
                                       const Load (&b)[kLoads][kTiles],
                                       const GroupScale (&group)[kTiles][2]) {
    const float2 d = __half22float2(scale);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const uint4& x = b[0][i];
      const int4 half = int4_mma(a.x, a.y, x.x, x.y, int4_initial(group[i]));
      const int4 sums = int4_mma(a.z, a.w, x.z, x.w, half);
      const float both[2] = {__int_as_float(sums.x), __int_as_float(sums.y)};
      const float upper[2] = {__int_as_float(sums.z), __int_as_float(sums.w)};
#pragma unroll
      for (int e = 0; e < kLaneColumns; ++e) {
        acc[i][e] += d.x * group[i][e].factor * (both[e] - upper[e]);
        acc[i][2 + e] += d.y * group[i][e].factor * (upper[e] - kMagic);
      }
    }
  }

  static __device__ void multiply_nf4_integers(float (&acc)[4], const uint4& a, __half2 scale,
                                               const uint4& b, float factor) {
    const Nf4Tables tables;
    Nf4Sums sums = {};
    sums.add(tables, a.x, a.y, b.x, b.y);
    sums.add(tables, a.z, a.w, b.z, b.w);
    const float2 d = __half22float2(scale);
    acc[0] += d.x * factor * sums.row(0);
    acc[2] += d.y * factor * sums.row(2);
  }

  // Two rows or more. The A operand of step k of nf4: a byte has the two levels of a
  // register.
  static __device__ void look_up_levels(uint32_t (&to)[4], uint32_t word, const uint32_t* levels) {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i % 2 * 2 + i / 2] = levels[(word >> 8 * i & 0xff) * 32];
  }

  static __device__ void multiply_nf4(float (&acc)[kTiles][4], const uint4& a, __half2 scale,
                                      const Load (&b)[kLoads][kTiles],
                                      const GroupScale (&group)[kTiles][2],
                                      const uint32_t* levels) {
    float sums[kTiles][4] = {};
    const uint32_t word[4] = {a.x, a.y, a.z, a.w};
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      uint32_t values[4];
      look_up_levels(values, word[k], levels);
#pragma unroll
      for (int i = 0; i < kTiles; ++i) {
        const uint4& x = b[k / 2][i];
        ptx::mma_f16(sums[i], values, k % 2 ? x.z : x.x, k % 2 ? x.w : x.y);
      }
    }
    const float2 d = __half22float2(scale);
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
#pragma unroll
      for (int e = 0; e < kLaneColumns; ++e) {
        acc[i][e] += d.x * group[i][e].factor * sums[i][e];
        acc[i][2 + e] += d.y * group[i][e].factor * sums[i][2 + e];
      }
    }
  }

  // A stage in three parts, so that a warp overlaps the load of the next one.
  static constexpr bool kOverlapsLoads = has_group_scale(kFormat) && kRows == 1;

  // ---- the result: of output g + v / 2 * 8 and batch row 8 i + 2 t + v % 2, over chains and
  // planes.
  static __device__ float result(const Accumulators& acc, int i, int v) {
    float sum = acc[0][i][v];
#pragma unroll
    for (int chain = 1; chain < kChains; ++chain) sum += acc[chain][i][v];
    if constexpr (kType != OperandType::int8x2) return sum;
    // The column of the high byte is kPlane further: in another tile, or in another lane.
    constexpr int kPlane = columns_per_plane(kRows);
    sum += kPlane < 8 ? __shfl_down_sync(0xffffffffu, acc[0][i][v], kPlane / 2, 4)
                      : acc[0][i + kPlane / 8][v];
    if (kFormat == WeightFormat::nf4) return sum * kNf4Unit;
    // Output g + 8 of int4 was multiplied as upper nibbles, 16 q.
    return kFormat == WeightFormat::int4 && v >= 2 ? sum * 0.0625f : sum;
  }
};

}  // namespace ridge::cuda
#endif
