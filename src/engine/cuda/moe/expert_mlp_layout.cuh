// What the warps of the expert MLP kernel share: constants, shared memory, and the order of the
// work of a thread block (drawn in expert_mlp_kernel.cuh).
#pragma once

#include "engine/cuda/device/pipeline.cuh"
#include "engine/cuda/moe/assign_slots.cuh"
#include "engine/cuda/moe/expert_mlp.cuh"

namespace ridge::cuda {

constexpr int kExpertWarpGroups = 2, kGroupWarps = 8;
constexpr int kExpertMathWarps = kExpertWarpGroups * kGroupWarps;
constexpr int kExpertThreads = (kExpertMathWarps + 1 + kExpertWarpGroups) * 32;
constexpr int kSumBuffers = 6;               // of a warp group: items whose sums are not finished
constexpr int kLongItems = 5;                // of a warp group in a pass, where K has several slabs
constexpr int kItemRing = 64;                // items that the producer has announced
constexpr uint32_t kNotReady = 0xffffffffu;  // two bf16 of a NaN that no conversion produces

// Chunks of a warp in a slab, whose tokens a lane holds in 32 registers.
constexpr int kSlabChunks = 8;

// Before the first copies and sums, in the place of the sums: routing by each block.
struct RoutingScratch {
  int expert[kFusedRoutingMaxAssignments], slot[kFusedRoutingMaxAssignments];
  float weight[kFusedRoutingMaxAssignments];
  int source[kSkinnyMaxTiles * kSkinnyTile], tile_matrix[kSkinnyMaxTiles], tile_count;
  SlotScratch slots;
};

// What a slot of the ring holds.
struct alignas(16) ExpertItem {
  int key;     // (tile << 8 | slab) << 1 | down: which tokens it is multiplied with; -1: the end
  int block;   // first row block
  int buffer;  // of the warp group's sums, and the phase of its barriers: buffer << 1 | phase
  int flags;
  static constexpr int kWarpGroup = 1, kFirst = 2, kLast = 4;  // first and last slab
};

template <WeightFormat kFormat>
struct ExpertShared {
  static_assert(has_row_scale(kFormat));
  static constexpr int kSlots = 5;
  // Copies. The steps of qwen3-30b-a3b in fp8 took longer with 3, 4 and 5 of them
  // (docs/batched-steps.md).
  static constexpr int kInFlight = 2;
  static constexpr int kWeightBytes = kGroupWarps * kSlabChunks * format_info(kFormat).chunk_bytes;
  static constexpr int kScaleBytes = kGroupWarps * kBlockRows * 4;
  uint8_t ring[kSlots][kWeightBytes + kScaleBytes];
  float4 sums[kExpertWarpGroups][kSumBuffers][kGroupWarps][32];
  static_assert(sizeof(RoutingScratch) <= sizeof(sums));
  static_assert(kMaxRoutedLogits * sizeof(float) <= sizeof(ring));
  float row_scale[kExpertWarpGroups][kSumBuffers][kGroupWarps][kBlockRows];
  ExpertItem items[kItemRing];
  // Key and block of the item whose sums are complete.
  int2 finished[kExpertWarpGroups][kSumBuffers];
  uint64_t full[kSlots], empty[kSlots];
  uint64_t sums_full[kExpertWarpGroups][kSumBuffers], sums_empty[kExpertWarpGroups][kSumBuffers];
  unsigned issued;  // items so far
  uint16_t expert_of[kSkinnyMaxTiles];
  int8_t token_of[kSkinnyMaxTiles * kSkinnyTile];
};

#ifdef RIDGE_HOPPER

// Consecutive items of one tile.
struct ExpertPass {
  int down;                // 0: of gate_up, 1: of down
  int tile = 0, item = 0;  // item: the first, of the tile
  int items = 0, slabs = 0;
};

// The passes of a thread block in order: its items of gate_up, then those of down. The items of a
// GEMM are spread evenly over the blocks; blocks with one more in gate_up are not the first to get
// one more in down.
struct ExpertSchedule {
  const ExpertMlpLaunch& launch;
  const int tiles;
  int left = 0;   // items of the GEMM, from `pass` on
  int extra = 0;  // the first block that gets one more item
  ExpertPass pass = {-1};

  __device__ bool next_gemm() {
    const int down = pass.down + 1;
    if (down > 1) return false;
    const int each = launch.gemm[down].items, all = tiles * each;
    const int blocks = gridDim.x, block_items = all / blocks, rest = all % blocks;
    const int index = blockIdx.x >= extra ? blockIdx.x - extra : blockIdx.x + blocks - extra;
    extra = rest;
    const int begin = block_items * index + min(index, rest);
    left = block_items + (index < rest);
    pass = {down, begin / each, begin % each, 0, launch.gemm[down].slabs};
    return true;
  }
  // The next pass; false: there is none.
  __device__ bool next() {
    left -= pass.items, pass.item += pass.items, pass.items = 0;
    while (left == 0) {
      if (!next_gemm()) return false;
    }
    const int each = launch.gemm[pass.down].items;
    if (pass.item == each) pass.item = 0, ++pass.tile;
    // Where K has several slabs, the tokens of a slab are multiplied with all items of the pass.
    // Passes are of about the same length.
    const int rest = min(left, each - pass.item), most = kExpertWarpGroups * kLongItems;
    const int passes = pass.slabs > 1 ? (rest + most - 1) / most : 1;
    pass.items = (rest + passes - 1) / passes;
    return true;
  }
};

#endif

}  // namespace ridge::cuda
