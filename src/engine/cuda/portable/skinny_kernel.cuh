// The skinny kernel of gemm.cuh: y[16 rows x 8 kGroups tokens] per block of 8 warps.
//   - Warp w has the w-th range of K. Its weights go from memory straight into registers: a chunk
//     (tiles.cuh) is the A operand of one to four MMAs, 16 bytes per lane. kDepth chunks are in
//     flight; a chunk's registers are loaded again as soon as its MMAs are issued.
//   - The tokens are the B operands, two 4-byte loads each: x lies as core matrices of 8 tokens x 8
//     columns (wide_at), and lane 4 g + t needs columns 2 t, 2 t + 1 of token g. Every block reads
//     them again, so they must stay in L1: the weights pass it by.
//   - The sums of the warps are added in order, in shared memory.
#pragma once

#include "base/ptx/execution.cuh"
#include "engine/cuda/layout/dequantize.cuh"
#include "engine/cuda/portable/gemm_epilogue.cuh"

namespace ridge::cuda {

constexpr int kPortableSkinnyWarps = 8;

// Data that is read once. Volatile: the loads stay where they are issued, ahead of their use.
__device__ __forceinline__ uint4 load_past_l1(const uint8_t* from) {
  uint4 v;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from));
  return v;
}

// One warp's range of K of a block of 16 rows.
template <WeightFormat kFormat, int kGroups>
struct SkinnyRange {
  static constexpr int kColumns = format_info(kFormat).columns;
  static constexpr int kChunkBytes = format_info(kFormat).chunk_bytes;
  static constexpr int kStepChunks = 64 / kColumns;  // ranges are multiples of 64 columns
  static constexpr int kDepth = has_group_scale(kFormat) ? 4 : 8;
  using Sums = float[kGroups][4];

  const uint8_t* weights;  // of this lane: the first chunk
  const uint8_t* scales;   // int4, nf4: those of this lane's two rows
  const uint16_t* x;       // of this lane: the first 64 columns
  const size_t x_stride;   // elements from 64 columns to the next
  const int used;          // tokens from this lane's on; the columns beyond are zeros
  const int count;         // chunks
  uint4 words[kDepth];
  __half2 scale[kDepth];

  __device__ __forceinline__ SkinnyRange(const LinearArgs& a, int matrix, int block,
                                         int first_token, int warp, int lane)
      : x_stride(size_t(a.padded) * 64),
        used(a.tokens - first_token - lane / 4),
        count(range(a, warp).y) {
    const int first = range(a, warp).x;
    const uint8_t* chunk = a.tiles.data + a.tiles.stride * matrix +
                           (size_t(block) * a.tiles.chunks + first) * kChunkBytes;
    weights = chunk + lane * 16, scales = chunk + 512 + lane / 4 * 4;
    x = a.x + wide_at(first * kColumns, first_token + lane / 4, a.padded) + lane % 4 * 2;
  }
  // First chunk and number of chunks of a warp.
  static __device__ __forceinline__ int2 range(const LinearArgs& a, int warp) {
    constexpr int kUnit = kPortableSkinnyWarps * kStepChunks;
    const int each = (a.tiles.chunks + kUnit - 1) / kUnit * kStepChunks, first = warp * each;
    return {first, min(each, a.tiles.chunks - first)};
  }

  __device__ __forceinline__ void load(int slot, int chunk) {
    if (chunk >= count) return;
    words[slot] = load_past_l1(weights + size_t(chunk) * kChunkBytes);
    if constexpr (has_group_scale(kFormat)) {
      scale[slot] = *reinterpret_cast<const __half2*>(scales + size_t(chunk) * kChunkBytes);
    }
  }
  __device__ __forceinline__ void prefetch() {
#pragma unroll
    for (int j = 0; j < kDepth; ++j) load(j, j);
  }

  __device__ __forceinline__ void multiply(Sums& d) {
#pragma unroll 1
    for (int from = 0; from < count; from += kDepth) {
      uint2 b[4][kGroups];  // the B operands of 64 columns
#pragma unroll
      for (int j = 0; j < kDepth; ++j) {
        const int chunk = from + j;
        if (chunk >= count) break;
        if (j % kStepChunks == 0) load_tokens(b, chunk / kStepChunks);
        uint32_t w[kColumns / 16][4];
        dequantize_chunk<kFormat>(words[j], scale[j], w);
#pragma unroll
        for (int s = 0; s < kColumns / 16; ++s) {
#pragma unroll
          for (int g = 0; g < kGroups; ++g) {
            const uint2 tokens = b[j % kStepChunks * (kColumns / 16) + s][g];
            ptx::mma_bf16(d[g], w[s], tokens.x, tokens.y);
          }
        }
        load(j, chunk + kDepth);
      }
    }
  }
  __device__ __forceinline__ void load_tokens(uint2 (&b)[4][kGroups], int step) const {
    const uint16_t* at = x + step * x_stride;
#pragma unroll
    for (int s = 0; s < 4; ++s) {
#pragma unroll
      for (int g = 0; g < kGroups; ++g) {
        const uint16_t* pair = at + s * 128 + g * 512;
        b[s][g] = {0, 0};
        if (g * 8 >= used) continue;
        b[s][g] = {*reinterpret_cast<const uint32_t*>(pair),
                   *reinterpret_cast<const uint32_t*>(pair + 64)};
      }
    }
  }
};

// Block (x, y) of the grid has rows 16 x, ... of token tile y.
template <WeightFormat kFormat, int kGroups>
__global__ void __launch_bounds__(kPortableSkinnyWarps * 32, kGroups > 1 ? 2 : 3)
    portable_skinny_kernel(const __grid_constant__ LinearArgs a) {
  __shared__ float4 partials[kPortableSkinnyWarps][kGroups][32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int matrix = a.matrix;
  if (a.tile_count) {
    if (static_cast<int>(blockIdx.y) >= __ldcg(a.tile_count)) return;
    matrix += __ldcg(a.tile_matrix + blockIdx.y);
  }
  SkinnyRange<kFormat, kGroups> range(a, matrix, blockIdx.x, blockIdx.y * kGroups * 8, warp, lane);
  range.prefetch();
  float d[kGroups][4] = {};
  range.multiply(d);
#pragma unroll
  for (int g = 0; g < kGroups; ++g) partials[warp][g][lane] = {d[g][0], d[g][1], d[g][2], d[g][3]};
  __syncthreads();
  if (warp >= kGroups) return;
  float sum[1][4] = {};
#pragma unroll
  for (int w = 0; w < kPortableSkinnyWarps; ++w) {
    const float4 part = partials[w][warp][lane];
    sum[0][0] += part.x, sum[0][1] += part.y, sum[0][2] += part.z, sum[0][3] += part.w;
  }
  store_fragments(a, matrix, blockIdx.x, (blockIdx.y * kGroups + warp) * 8, sum, lane);
}

}  // namespace ridge::cuda
