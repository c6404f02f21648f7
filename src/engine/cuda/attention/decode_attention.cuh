// Decode attention: sequences with one token (or few rows) in a step. RoPE, the append to the KV
// cache and attention in one kernel, bound by the bytes of the cache.
//
// Work is cut into items: up to 8 query columns of one KV head, over a range of the pages they
// attend to. Long sequences are split over several items (FlashDecoding), and where SMs would idle
// an item is computed in parts; the last block to finish combines the partial results.
// decode_attention_kernel.cuh draws the warps and their barriers.
//
// Pages of sequences with one token are loaded before the previous kernel has ended: of this step
// only qkv is new to them. The kernels that wrote to these pages have ended: the first kernel of a
// step (embed) waits for the step before it and only then lets the next kernel start, and the other
// kernels of this step write to the pages of other sequences. Sequences with several rows wait for
// the kernel that appends theirs (rope.cuh).
#pragma once

#include <vector>

#include "engine/cuda/attention/attention_args.cuh"

namespace ridge::cuda {

// Up to 8 packed query columns (token * group + head) and a range of pages. The split of a sequence
// depends on its own length alone: a token's result does not depend on the rest of the batch.
struct alignas(16) DecodeItem {
  int row, rows, past, pages;  // of its sequence, as in AttentionSequence
  int kv_head, column;         // first column
  int first_page, page_count;  // pages of the sequence
  int split, splits;           // of these columns
  int partial, counter;        // index of the first split's record, and of their counter
  // Part p of n has what warps p, p + n, ... of the item compute. Their softmax states are combined
  // as those of one block are, so bits do not depend on the number of parts: 1, 2, 4 or 8.
  int part, log2_parts;
  int first;  // as in AttentionSequence
  __host__ __device__ int parts() const { return 1 << log2_parts; }
};

constexpr int kMaxDecodeRows = 64;     // packed rows of a sequence; more are prefill
constexpr int kDecodeItemColumns = 8;  // at most: those of an MMA
constexpr int kMaxSplitPages = 128;    // of an item: 2048 keys
constexpr int kMaxItemParts = 8;       // one warp of the kernel in each
constexpr int kMaxPartItems = 256;     // parts of all items, where a plan has several of an item

// Filled anew for every step and window; kept for its memory.
struct DecodePlan {
  // [round][block]: a block computes its items round by round, until one without pages. The last
  // round has no pages in any block.
  std::vector<DecodeItem> items;

  struct Load {  // of a block
    int pages, block, rounds;
    bool operator>(const Load& other) const {
      return pages != other.pages ? pages > other.pages : block > other.block;
    }
  };
  std::vector<DecodeItem> head_items;  // of one KV head, the longest first
  std::vector<Load> loads;             // heap
};
void plan_decode_attention(const std::vector<AttentionSequence>& sequences, int heads, int kv_heads,
                           int head_dim, int window, int sms, DecodePlan& plan);

// A block gets at most four times the rounds of an even distribution. That bounds the plan of a
// given number of items.
constexpr int max_decode_rounds(size_t items, int sms) {
  return 4 * int((items + sms - 1) / sms) + 4;
}
constexpr size_t max_decode_plan(size_t items, int sms) {
  return size_t(max_decode_rounds(items, sms) + 1) * size_t(sms);
}

// Floats of a partial result: outputs of 8 columns, then their maxima and sums.
__host__ __device__ constexpr int partial_record_size(int head_dim) { return 8 * head_dim + 16; }

struct DecodeAttentionLaunch {
  AttentionArgs args;
  KvFormat format;
  Divisor group;            // query heads per KV head
  const DecodeItem* items;  // [round][block]
  float* partials;          // [partial][partial_record_size]
  unsigned* arrived;        // [counter], zero between launches
};
// Queues a dependent launch (device.cuh).
void launch_decode_attention(cudaStream_t stream, int sms, const DecodeAttentionLaunch& launch);

}  // namespace ridge::cuda
