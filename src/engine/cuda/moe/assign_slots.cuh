// The slots of a small step's assignments, by 512 threads of a block: one thread per assignment,
// then one per expert.
#pragma once

#include "engine/cuda/moe/experts.cuh"

namespace ridge::cuda {

constexpr int kSlotThreads = 512;
static_assert(kSlotThreads >= kMaxExperts && kSlotThreads >= kFusedRoutingMaxAssignments);

// In shared memory.
struct SlotScratch {
  uint8_t counts[kSlotThreads / 32][kSlotThreads];  // [warp][expert]
  int first_slot[kSlotThreads], warp_tiles[kSlotThreads / 32];
};

// The same result as count_kernel and slot_kernel (experts.cu). sync(): a barrier of the threads.
template <typename Sync>
__device__ __forceinline__ void assign_slots(const ExpertRouting& r, SlotScratch& scratch,
                                             const Sync& sync) {
  constexpr int kAssignmentWarps = kSlotThreads / 32;
  auto& counts = scratch.counts;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int i = threadIdx.x, expert = threadIdx.x;  // the thread's assignment and its expert
  for (int w = 0; w < kAssignmentWarps; ++w) counts[w][expert] = 0;
  sync();
  const int assigned = i < r.tokens * r.top_k ? r.expert[i] : -1;
  const unsigned same = __match_any_sync(0xffffffffu, assigned);
  int before = __popc(same & ((1u << lane) - 1));
  if (assigned >= 0 && before == 0) counts[warp][assigned] = __popc(same);
  sync();
  int count = 0;
  for (int w = 0; w < kAssignmentWarps; ++w) {
    count += counts[w][expert];
    if (assigned >= 0 && w < warp) before += counts[w][assigned];
  }
  const int tiles = (count + r.tile - 1) / r.tile;
  int end = tiles;  // where the expert's tiles end: a prefix sum
  for (int offset = 1; offset < 32; offset *= 2) {
    const int lower = __shfl_up_sync(0xffffffffu, end, offset);
    if (lane >= offset) end += lower;
  }
  if (lane == 31) scratch.warp_tiles[warp] = end;
  sync();
  for (int w = 0; w < warp; ++w) end += scratch.warp_tiles[w];
  if (expert == kSlotThreads - 1) *r.tile_count = end;
  const int slot = (end - tiles) * r.tile;
  scratch.first_slot[expert] = slot;
  for (int t = end - tiles; t < end; ++t) r.tile_matrix[t] = expert;
  for (int s = slot + count; s < end * r.tile; ++s) r.source[s] = -1;
  sync();
  if (assigned < 0) return;
  r.slot[i] = scratch.first_slot[assigned] + before;
  r.source[scratch.first_slot[assigned] + before] = i / r.top_k;
}

}  // namespace ridge::cuda
