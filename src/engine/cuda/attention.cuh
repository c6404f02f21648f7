// Attention of many tokens over the paged cache: FlashAttention for prompts, split over keys for
// single tokens. What decode.cuh does for at most 16 tokens, this does for any step.
//
// Query heads that share a KV head are packed: row r of a sequence's tile is token r / group, head
// r % group. Rows of a prompt go in tiles of 128 over all keys they see; sequences with few rows
// (at most 64 packed) are cut into spans of 2048 keys, joined by who finishes last. What a token
// gets depends on its own sequence alone: spans and tiles do not depend on the batch.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "engine/cuda/device.cuh"
#include "engine/cuda/tiles.cuh"

namespace ridge::cuda {

// One sequence's tokens of a step: rows [row, row + rows) at positions past, past + 1, ...; their
// keys and values are in the cache already.
struct AttentionSequence {
  int row, rows, past;
  int pages;  // where its page numbers begin
};

struct AttentionArgs {
  int heads, kv_heads, head_dim;  // 64, 128 or 256
  float scale;                    // of q . k
  float softcap;                  // c tanh(s / c); 0: none
  int window;                     // keys a token sees, itself included; 0: all
  const uint16_t* q;              // [token][heads * head_dim] bf16, normed and turned
  // This layer's: [page][kv head][page_elements]. Slots without a token must hold numbers too.
  const uint16_t* kv;
  const int* pages;  // read before the kernel before this one ends: kernels must not write them
  uint16_t* out;     // bf16 at wide_at(head * head_dim + d, token, out_tokens)
  int out_tokens;    // a multiple of 8
};

// What one block does at once: a tile of a prompt's packed rows, or a span of a single token's
// keys.
struct alignas(16) AttentionWork {
  int row, rows, past, pages;  // its sequence
  int part;                    // which tile, or span
  int kv_head;                 // prompts: of this; single tokens: of all
  int record, counter;         // single tokens: where partial results and the count of them begin
};

// The plan is made once a step and serves all its layers.
class Attention {
 public:
  Attention(int heads, int kv_heads, int head_dim, int sms);
  // Uploads the list of work on `stream`.
  void plan(cudaStream_t stream, const std::vector<AttentionSequence>& sequences);
  // Queues it, as a dependent launch (device.cuh): it waits for the kernel before it.
  void launch(cudaStream_t stream, const AttentionArgs& args);

 private:
  void plan_prompts(std::vector<AttentionSequence> prompts);
  void plan_singles(cudaStream_t stream, const std::vector<AttentionSequence>& singles);

  int heads_, kv_heads_, head_dim_, sms_;
  // The step's: prompts' work by block, then single tokens' spans.
  std::vector<AttentionWork> work_;
  std::vector<int> begin_;  // of each block's part of the prompts' work
  int prompt_items_ = 0, span_items_ = 0;
  Buffer<AttentionWork> device_work_;
  Buffer<int> device_begin_;
  Buffer<float> partial_;
  Buffer<float2> partial_sums_;
  Buffer<unsigned> arrived_;
};

}  // namespace ridge::cuda
