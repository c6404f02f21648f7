// Attention of sequences with few rows in a step, above all of single tokens: rotation, the cache
// and attention in one kernel, at the speed of the cache's pages.
//
// One block an SM. Its warps have roles:
//   8 attend     each takes whole stages of pages from the ring, in turn, and keeps maximum, sum
//                and output of 8 columns; at an item's end their states are joined
//   1 fetches    keeps the ring full of this SM's pages, item after item, the latest first
//   1 turns q    a whole item ahead
//   1 adds k, v  turned, to the latest page in shared memory and to the cache
//   1 counts     the spans of long sequences that are done
// Pages of single tokens are asked for before the kernel before this one has ended: of a step, only
// qkv is new. Whoever wrote to these pages has ended: a step's first kernel (embed) waits for the
// step before and lets the next kernel begin only then, and this step's other kernels write to
// other sequences' pages. Sequences with several rows wait for the kernel that writes theirs.
#pragma once

#include <vector>

#include "engine/cuda/attention/attention_args.cuh"

namespace ridge::cuda {

// Up to 8 packed columns (token * group + head) of one KV head and a span of the pages they see.
// What a token gets depends on its own sequence alone, so spans do too.
struct alignas(16) DecodeItem {
  int row, rows, past, pages;  // its sequence
  int kv_head, column;
  int first_page, page_count;  // of the sequence
  int span, spans;             // of these columns; several are joined by who arrives last
  int record, counter;         // where their partial results and the count of them begin
};

struct DecodePlan {
  // [round][block]: a block does its items round by round until there is one without pages. The
  // last round has none.
  std::vector<DecodeItem> items;
  int records = 0, counters = 0;
};
DecodePlan plan_decode_attention(const std::vector<AttentionSequence>& sequences, int heads,
                                 int kv_heads, int window, int sms);

// Of a record: outputs of 8 columns, their maxima and sums.
__host__ __device__ constexpr int partial_record_size(int head_dim) { return 8 * head_dim + 16; }

struct DecodeAttentionLaunch {
  AttentionArgs args;
  KvFormat format;
  Divisor group;
  const DecodeItem* items;  // [round][block]
  float* partial;           // [record][partial_record_size]
  unsigned* arrived;        // [counter], zero between launches
};
void launch_decode_attention(cudaStream_t stream, int sms, const DecodeAttentionLaunch& launch);

}  // namespace ridge::cuda
