// The tiled kernel of gemm.cuh: y[128 rows x kTokens] per block of 4 warps.
//
//   shared memory, kStages of
//   +------------------------------------------------------------------------------------------+
//   | weights: [8 blocks of 16 rows][chunks of the step]   as they lie in memory (tiles.cuh)   |
//   | tokens:  [token / 8][columns of the step / 8][8 tokens][8 columns]  bf16, core matrices  |
//   +------------------------------------------------------------------------------------------+
//
//   - All threads copy by cp.async, kStages steps of K ahead. One __syncthreads() per step: it
//   makes
//     the next step's copies visible, and it ends the reads of the stage that is filled next. It
//     stands before the last MMAs of a step, whose operands are in registers by then.
//   - A warp has kWarpBlocks blocks of 16 rows x kWarpGroups groups of 8 tokens. A operands are 16
//     bytes per lane of a chunk, dequantized in registers; B operands come by ldmatrix.
//   - Split-K: blocks of one tile write partial sums; the last to arrive adds them in order.
#pragma once

#include "base/ptx/async_copy.cuh"
#include "base/ptx/execution.cuh"
#include "engine/cuda/layout/dequantize.cuh"
#include "engine/cuda/portable/gemm_epilogue.cuh"

namespace ridge::cuda {

constexpr int kPortableTileRows = 128, kPortableTileBlocks = kPortableTileRows / kBlockRows;
constexpr int kPortableThreads = 128;
constexpr int kPortableRasterGroup = 8;  // token tiles that go together over all rows, to hit L2
constexpr int kPortableSharedBytes = 48 * 1024;  // two blocks per SM fit even where it has 100 KB

// Columns of a step of K.
__host__ __device__ constexpr int portable_step(WeightFormat format) {
  return format_info(format).columns > 32 ? 64 : 32;
}

template <WeightFormat kFormat, int kTokens>
struct PortableTile {
  static constexpr int kColumns = format_info(kFormat).columns;
  static constexpr int kStep = portable_step(kFormat);
  static constexpr int kStepChunks = kStep / kColumns;
  static constexpr int kBlockBytes = kStepChunks * format_info(kFormat).chunk_bytes;
  static constexpr int kGroupBytes = kStep * 8 * 2;  // of 8 tokens
  static constexpr int kWeightBytes = kPortableTileBlocks * kBlockBytes;
  static constexpr int kStageBytes = kWeightBytes + kTokens / 8 * kGroupBytes;
  static constexpr int kStages = kPortableSharedBytes / kStageBytes;
  static_assert(kStages >= 2);
  static constexpr int kTokenWarps = kTokens == 128 ? 2 : 1, kRowWarps = 4 / kTokenWarps;
  static constexpr int kWarpBlocks = kPortableTileBlocks / kRowWarps;
  static constexpr int kWarpGroups = kTokens / 8 / kTokenWarps;
  using Sums = float[kWarpBlocks][kWarpGroups][4];
};

// Row and token tile of a block of the grid: groups of token tiles go together over all row tiles.
__device__ __forceinline__ int2 portable_tile_of(int tile, int row_tiles, int token_tiles) {
  const int group = tile / (kPortableRasterGroup * row_tiles);
  const int width = min(kPortableRasterGroup, token_tiles - group * kPortableRasterGroup);
  const int in_group = tile - group * kPortableRasterGroup * row_tiles;
  return {in_group / width, group * kPortableRasterGroup + in_group % width};
}

template <WeightFormat kFormat, int kTokens>
struct TiledGemm {
  using Tile = PortableTile<kFormat, kTokens>;
  static constexpr int kColumns = Tile::kColumns;
  static constexpr int kChunkBytes = format_info(kFormat).chunk_bytes;
  static constexpr int kBlockPieces = Tile::kBlockBytes / 16;  // of 16 bytes
  static constexpr int kGroupPieces = Tile::kGroupBytes / 16;  // of 8 tokens
  static constexpr int kWeightPieces = kPortableTileBlocks * kBlockPieces;
  static constexpr int kWeightCopies =
      (kWeightPieces + kPortableThreads - 1) / kPortableThreads;  // of a thread
  const LinearArgs& a;
  uint8_t* const shared;
  const int matrix, first_block, first_token;
  const unsigned thread = threadIdx.x;
  const int lane = thread % 32, warp = thread / 32;
  const int warp_block = warp / Tile::kTokenWarps * Tile::kWarpBlocks;  // in the tile
  const int warp_group = warp % Tile::kTokenWarps * Tile::kWarpGroups;  // of 8 tokens
  // Where this thread's pieces of the first step begin: of the weights from the tile's first byte
  // on. All trip counts below are constants: a loop from threadIdx.x on is not unrolled, and its
  // addresses cost more instructions than the MMAs.
  const uint8_t* tile_weights = nullptr;
  const uint16_t* tile_tokens = nullptr;
  uint32_t piece_at[kWeightCopies] = {};

  // Blocks beyond the matrix are its last one again: their sums are not stored.
  __device__ __forceinline__ void locate_pieces() {
    const uint32_t block_bytes = uint32_t(a.tiles.chunks) * kChunkBytes;
    tile_weights =
        a.tiles.data + a.tiles.stride * matrix + size_t(first_block) * a.tiles.chunks * kChunkBytes;
    tile_tokens = a.x + wide_at(0, first_token, a.padded) + thread / kGroupPieces * 512 +
                  thread % kGroupPieces * 8;
#pragma unroll
    for (int n = 0; n < kWeightCopies; ++n) {
      const uint32_t i = thread + n * kPortableThreads;
      const uint32_t last = a.tiles.blocks - 1 - first_block;
      piece_at[n] = min(i / kBlockPieces, last) * block_bytes + i % kBlockPieces * 16;
    }
  }

  __device__ __forceinline__ uint8_t* stage(int step) const {
    return shared + unsigned(step) % Tile::kStages * Tile::kStageBytes;
  }

  // Copies one step of K. Chunks beyond the matrix arrive as zeros.
  __device__ __forceinline__ void load_weights(int step) const {
    const uint32_t to = ptx::shared_address(stage(step)) + thread * 16;
    const uint8_t* from = tile_weights + size_t(step) * Tile::kBlockBytes;
    const uint32_t left = a.tiles.chunks - step * Tile::kStepChunks;
#pragma unroll
    for (int n = 0; n < kWeightCopies; ++n) {
      const uint32_t i = thread + n * kPortableThreads;
      if (kWeightPieces % kPortableThreads && i >= kWeightPieces) break;
      const bool valid = Tile::kStepChunks == 1 || i % kBlockPieces / (kChunkBytes / 16) < left;
      ptx::cp_async_16(to + n * kPortableThreads * 16, from + piece_at[n], valid);
    }
  }
  __device__ __forceinline__ void load_tokens(int step) const {
    static_assert(kPortableThreads % kGroupPieces == 0 && 64 % Tile::kStep == 0);
    constexpr int kCopies = kTokens / 8 * kGroupPieces / kPortableThreads;
    constexpr int kSteps = 64 / Tile::kStep;  // of 64 columns
    const uint32_t to = ptx::shared_address(stage(step)) + Tile::kWeightBytes + thread * 16;
    const uint16_t* from = tile_tokens + size_t(unsigned(step) / kSteps) * a.padded * 64 +
                           unsigned(step) % kSteps * (Tile::kStep * 8);
#pragma unroll
    for (int n = 0; n < kCopies; ++n) {
      ptx::cp_async_16(to + n * kPortableThreads * 16,
                       from + n * (kPortableThreads / kGroupPieces) * 512);
    }
  }

  // What the MMAs of the next 16 columns need, in registers. The weights are those of a chunk.
  struct Operands {
    uint4 words[Tile::kWarpBlocks];
    __half2 scale[Tile::kWarpBlocks];
    uint32_t b[Tile::kWarpGroups][2];
  };
  // Loads the k16-th 16 columns of a stage: B always, A where a chunk begins.
  __device__ __forceinline__ void load_operands(Operands& to, const uint8_t* from, int k16) const {
    if (k16 % (kColumns / 16) == 0) {
      const uint8_t* at =
          from + warp_block * Tile::kBlockBytes + k16 / (kColumns / 16) * kChunkBytes;
#pragma unroll
      for (int i = 0; i < Tile::kWarpBlocks; ++i, at += Tile::kBlockBytes) {
        to.words[i] = *reinterpret_cast<const uint4*>(at + lane * 16);
        if constexpr (has_group_scale(kFormat)) {
          to.scale[i] = *reinterpret_cast<const __half2*>(at + 512 + lane / 4 * 4);
        }
      }
    }
    const uint32_t at = ptx::shared_address(from) + Tile::kWeightBytes +
                        (warp_group + lane / 16) * Tile::kGroupBytes +
                        (k16 * 2 + lane / 8 % 2) * 128 + lane % 8 * 16;
#pragma unroll
    for (int g = 0; g < Tile::kWarpGroups; g += 2) {  // two core matrices of each group
      const uint4 pair = ptx::ldmatrix_x4(at + g * Tile::kGroupBytes);
      to.b[g][0] = pair.x, to.b[g][1] = pair.y, to.b[g + 1][0] = pair.z, to.b[g + 1][1] = pair.w;
    }
  }

  // Multiplies the step in `next`. The operands of the following 16 columns are loaded before the
  // MMAs of these, across the end of the stage too: its barrier stands before the last MMAs.
  __device__ __forceinline__ void multiply_step(typename Tile::Sums& d, Operands& next, int step,
                                                int end) const {
    constexpr int kCount = Tile::kStep / 16;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      uint32_t w[Tile::kWarpBlocks][4], b[Tile::kWarpGroups][2];
#pragma unroll
      for (int i = 0; i < Tile::kWarpBlocks; ++i) {
        uint32_t chunk[kColumns / 16][4];  // only one part is used, and computed
        dequantize_chunk<kFormat>(next.words[i], next.scale[i], chunk);
#pragma unroll
        for (int r = 0; r < 4; ++r) w[i][r] = chunk[k % (kColumns / 16)][r];
      }
#pragma unroll
      for (int g = 0; g < Tile::kWarpGroups; ++g) b[g][0] = next.b[g][0], b[g][1] = next.b[g][1];
      if (k + 1 < kCount) {
        load_operands(next, stage(step), k + 1);
      } else {
        ptx::cp_async_wait<Tile::kStages - 2>();
        __syncthreads();  // the next step has arrived, and this stage has been read
        if (step + Tile::kStages < end) {
          load_weights(step + Tile::kStages), load_tokens(step + Tile::kStages);
        }
        ptx::cp_async_commit();
        load_operands(next, stage(step + 1), 0);  // after the last step: never used
      }
#pragma unroll
      for (int i = 0; i < Tile::kWarpBlocks; ++i) {
#pragma unroll
        for (int g = 0; g < Tile::kWarpGroups; ++g) ptx::mma_bf16(d[i][g], w[i], b[g][0], b[g][1]);
      }
    }
  }

  // Steps [begin, end) of K.
  __device__ __forceinline__ void main_loop(typename Tile::Sums& d, int begin, int end) const {
#pragma unroll
    for (int s = 0; s < Tile::kStages; ++s) {
      if (begin + s < end) load_weights(begin + s);
    }
#pragma unroll
    for (int s = 0; s < Tile::kStages; ++s) {
      if (begin + s < end) load_tokens(begin + s);
      ptx::cp_async_commit();
    }
    ptx::cp_async_wait<Tile::kStages - 1>();
    __syncthreads();
    Operands next;
    load_operands(next, stage(begin), 0);
#pragma unroll 1
    for (int step = begin; step < end; ++step) multiply_step(d, next, step, end);
  }

  // Split-K: whether this block was the last of its tile; then d has the sums of all.
  __device__ __forceinline__ bool reduce(typename Tile::Sums& d, int tile, int part) const {
    constexpr int kFragments = Tile::kWarpBlocks * Tile::kWarpGroups;
    float4* const parts = reinterpret_cast<float4*>(a.partials) +
                          size_t(tile) * a.split_k * kFragments * kPortableThreads + thread;
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      const float(&from)[4] = d[f / Tile::kWarpGroups][f % Tile::kWarpGroups];
      parts[(part * kFragments + f) * kPortableThreads] = {from[0], from[1], from[2], from[3]};
    }
    __threadfence();
    __syncthreads();
    int& last = *reinterpret_cast<int*>(shared);  // the stages are read
    if (thread == 0) last = atomicAdd(a.ready + tile, 1u) == unsigned(a.split_k - 1);
    __syncthreads();
    if (!last) return false;
    __threadfence();
    if (thread == 0) a.ready[tile] = 0;
#pragma unroll
    for (int f = 0; f < kFragments; ++f) {
      float(&to)[4] = d[f / Tile::kWarpGroups][f % Tile::kWarpGroups];
      to[0] = to[1] = to[2] = to[3] = 0;
    }
#pragma unroll 1
    for (int p = 0; p < a.split_k; ++p) {
#pragma unroll
      for (int f = 0; f < kFragments; ++f) {
        float(&to)[4] = d[f / Tile::kWarpGroups][f % Tile::kWarpGroups];
        const float4 part_sum = __ldcg(parts + (p * kFragments + f) * kPortableThreads);
        to[0] += part_sum.x, to[1] += part_sum.y, to[2] += part_sum.z, to[3] += part_sum.w;
      }
    }
    return true;
  }

  __device__ __forceinline__ void store(const typename Tile::Sums& d) const {
#pragma unroll
    for (int i = 0; i < Tile::kWarpBlocks; ++i) {
      const int block = first_block + warp_block + i;
      if (block >= a.tiles.blocks) return;
      store_fragments(a, matrix, block, first_token + warp_group * 8, d[i], lane);
    }
  }
};

// Block (x, y) of the grid has the y-th range of K of tile x.
template <WeightFormat kFormat, int kTokens>
__global__ void __launch_bounds__(kPortableThreads, 2)
    portable_tiled_kernel(const __grid_constant__ LinearArgs a) {
  extern __shared__ __align__(128) uint8_t portable_shared[];
  const int2 tile = portable_tile_of(blockIdx.x, a.row_tiles, a.padded / kTokens);
  int matrix = a.matrix;
  if (a.tile_count) {
    if (tile.y >= __ldcg(a.tile_count)) return;
    matrix += __ldcg(a.tile_matrix + tile.y);
  }
  TiledGemm<kFormat, kTokens> gemm{a, portable_shared, matrix, tile.x * kPortableTileBlocks,
                                   tile.y * kTokens};
  gemm.locate_pieces();
  const int each = (a.k_steps + a.split_k - 1) / a.split_k, begin = blockIdx.y * each;
  typename PortableTile<kFormat, kTokens>::Sums d = {};
  gemm.main_loop(d, begin, min(begin + each, a.k_steps));
  if (a.split_k > 1 && !gemm.reduce(d, blockIdx.x, blockIdx.y)) return;
  gemm.store(d);
}

}  // namespace ridge::cuda
