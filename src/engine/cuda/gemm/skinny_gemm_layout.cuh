// What the warps of the skinny GEMM share: constants, shared memory, and which units a warp
// computes (drawn in skinny_gemm_kernel.cuh).
#pragma once

#include "engine/cuda/device/pipeline.cuh"
#include "engine/cuda/gemm/skinny_gemm.cuh"

namespace ridge::cuda {

constexpr int kSkinnyWarps = 8, kSkinnyThreads = kSkinnyWarps * 32;
constexpr int kCopyChunks = 8;  // chunks of one bulk copy
constexpr int kSkinnyBlocksPerSm = 2;

// Chunks whose tokens fit `registers` of a lane; at most two copies' worth.
__host__ __device__ constexpr int held_chunks(WeightFormat format, int groups, int registers) {
  const int held = registers / (format_info(format).columns / 8 * groups);
  return held < 2 * kCopyChunks ? held : 2 * kCopyChunks;
}

// kGroups: token groups of 8.
template <WeightFormat kFormat, int kGroups>
struct SkinnyShared {
  // 128 KB in flight per SM. A third slot cost the expert GEMMs of qwen3-30b-a3b in fp8 3 to 7 %:
  // all other loads, such as those of the next tile's tokens, queue behind the copies in flight.
  static constexpr int kSlots = 2;
  static constexpr int kPassUnits = 4 / kGroups;  // of each warp group
  // The first copy of a unit brings the scales of its rows: a load of their own would queue behind
  // all copies in flight.
  static constexpr int kScaleBytes = has_row_scale(kFormat) ? kBlockRows * 4 : 0;
  static constexpr int kCopyBytes = kCopyChunks * format_info(kFormat).chunk_bytes;
  uint8_t ring[kSkinnyWarps][kSlots][kCopyBytes + kScaleBytes];
  float4 partials[2][kPassUnits][kSkinnyWarps][kGroups][32];
  float row_scale[2][kPassUnits * kSkinnyWarps][kBlockRows];
  uint64_t full[kSkinnyWarps][kSlots];
  uint16_t expert_of[kSkinnyMaxTiles];
  int8_t token_of[kSkinnyMaxTiles * kSkinnyTile];
};

#ifdef RIDGE_HOPPER

// Where a pass begins.
struct SkinnyPosition {
  int unit, tile, block;  // unit: counted over all tiles; block: of the tile
  __device__ __forceinline__ void advance(int units, int blocks) {
    unit += units, block += units;
    if (block == blocks) block = 0, ++tile;
  }
};

// What a warp computes: its warp group, its K range, the run of units of its thread block.
template <WeightFormat kFormat, int kGroups>
struct SkinnyWork {
  static constexpr int kColumns = format_info(kFormat).columns;
  static constexpr int kStepChunks = 64 / kColumns;  // K ranges are multiples of 64 columns
  const SkinnyGemmArgs& a;
  SkinnyShared<kFormat, kGroups>& shared;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int group_shift = __ffs(kSkinnyWarps) - __ffs(a.split_k);  // log2 of the warp groups
  const int group = warp / a.split_k, part = warp % a.split_k;
  const int chunks = a.tiles.chunks, blocks = a.tiles.blocks;
  const int range =
      (chunks + a.split_k * kStepChunks - 1) / (a.split_k * kStepChunks) * kStepChunks;
  const int first_chunk = part * range, chunk_count = min(range, chunks - first_chunk);
  const bool grouped = a.tile_count != nullptr;
  int begin = 0, end = 0;  // units of this thread block

  // Copies the routing lists to shared memory; returns the number of token tiles. All loads are in
  // flight together, so they are bounded by the most tiles there can be, not by the number.
  __device__ __forceinline__ int load_lists() const {
    if (!grouped) return 1;
    static_assert(kSkinnyMaxTiles == kSkinnyThreads);
    const int tiles = __ldcg(a.tile_count);  // bypasses L1, which may hold an earlier layer's
    const int max_tiles = a.padded / kSkinnyTile, thread = threadIdx.x;
    if (thread < max_tiles) {
      const int expert = __ldcg(a.tile_matrix + thread);
      int source[kSkinnyTile];
#pragma unroll
      for (int i = 0; i < kSkinnyTile; ++i) source[i] = __ldcg(a.source + i * max_tiles + thread);
      shared.expert_of[thread] = expert;
#pragma unroll
      for (int i = 0; i < kSkinnyTile; ++i) shared.token_of[i * max_tiles + thread] = source[i];
    }
    __syncthreads();
    return tiles;
  }
  // Sets this thread block's run of units; returns its beginning.
  __device__ __forceinline__ SkinnyPosition set_run(int tiles) {
    begin = tiles * blocks * blockIdx.x / gridDim.x;
    end = tiles * blocks * (blockIdx.x + 1) / gridDim.x;
    return {begin, begin / blocks, begin % blocks};
  }
  // Units of the pass that begins at `at`; of these, units of this warp's group.
  __device__ __forceinline__ int pass_units(const SkinnyPosition& at) const {
    constexpr int kPassUnits = SkinnyShared<kFormat, kGroups>::kPassUnits;
    return min(min(kPassUnits << group_shift, end - at.unit), blocks - at.block);
  }
  __device__ __forceinline__ int group_units(int pass_units) const {
    return (pass_units - group + (1 << group_shift) - 1) >> group_shift;
  }
  __device__ __forceinline__ int matrix_of(int tile) const {
    return a.matrix + (grouped ? shared.expert_of[tile] : 0);
  }
  __device__ __forceinline__ bool used(int slot) const {
    return grouped ? shared.token_of[slot] >= 0 : slot < a.tokens;
  }
};

#endif

}  // namespace ridge::cuda
