// Prefill attention: FlashAttention over KV pages in bf16, for sequences with many rows in a step.
// A tile of 128 packed rows of one KV head goes over all keys it attends to.
// prefill_attention_kernel.cuh draws the warps and their barriers.
#pragma once

#include <utility>
#include <vector>

#include "engine/cuda/attention/attention_args.cuh"

namespace ridge::cuda {

constexpr int kPrefillTileRows = 128;

// 128 packed rows (token * group + head) of a sequence, for one KV head.
struct alignas(8) PrefillTile {
  int row, rows, past, pages;  // of its sequence, as in AttentionSequence
  int tile, kv_head;
};

// Filled anew for every step; kept for its memory.
struct PrefillPlan {
  std::vector<PrefillTile> tiles;  // by block
  std::vector<int> begin;          // [block]: its first tile; and the end

  std::vector<std::vector<PrefillTile>> tiles_of_block;
  std::vector<std::pair<long, int>> loads;  // heap: the cost of a block's tiles, the block
};
// Sorts `sequences`.
void plan_prefill_attention(std::vector<AttentionSequence>& sequences, int heads, int kv_heads,
                            int head_dim, int sms, PrefillPlan& plan);

struct PrefillAttentionLaunch {
  AttentionArgs args;  // queries in `q`, RoPE applied; `kv` and `pages` are not read
  const uint16_t* kv;  // pages in bf16
  const int* pages;    // their numbers
  Divisor group;       // query heads per KV head
  const PrefillTile* tiles;
  const int* begin;
};
// Queues a dependent launch (device.cuh).
void launch_prefill_attention(cudaStream_t stream, int sms, const PrefillAttentionLaunch& launch);

}  // namespace ridge::cuda
