// Attention of any step over the paged cache, and before it the rotation of its queries and keys
// and their way into the cache: FlashAttention for prompts, attention_single.cuh for single tokens.
// What decode.cuh does for at most 8 tokens, this does for any step.
//
// Query heads that share a KV head are packed: row r of a sequence's tile is token r / group, head
// r % group. Rows of a prompt go in tiles of 128 over all keys they see; sequences with at most 64
// packed rows are single tokens' business. What a token gets depends on its own sequence alone.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "engine/cuda/attention/attention_args.cuh"
#include "engine/cuda/attention/decode_attention.cuh"
#include "engine/cuda/device.cuh"

namespace ridge::cuda {

// What one block does at once: a tile of a prompt's packed rows for one KV head.
struct alignas(8) AttentionWork {
  int row, rows, past, pages;  // its sequence
  int tile, kv_head;
};

// The plan is made once a step and serves all its layers.
class Attention {
 public:
  // windows: those that layers have, each once.
  Attention(int heads, int kv_heads, int head_dim, int sms, KvFormat format,
            std::vector<int> windows);
  // Uploads the lists of work on `stream`.
  void plan(cudaStream_t stream, const std::vector<AttentionSequence>& sequences);
  // For sequences with several rows: turns q and k, writes the cache; unpacks what prompts see of
  // it. Single tokens need none of that.
  bool needs_rope() const { return turn_count_ > 0; }
  void rope_and_append(cudaStream_t stream, const AttentionArgs& args);
  // Both queue dependent launches (device.cuh).
  void launch(cudaStream_t stream, const AttentionArgs& args);

 private:
  void plan_prompts(std::vector<AttentionSequence> prompts);
  // One layer's pages of prompts as bf16, where the cache has them otherwise.
  void plan_unpacking(cudaStream_t stream, std::vector<AttentionSequence>& prompts);

  int heads_, kv_heads_, head_dim_, sms_;
  KvFormat format_;
  std::vector<int> windows_;
  // The step's.
  std::vector<AttentionWork> work_;  // prompts', by block
  std::vector<int> begin_;           // of each block's part, and the end
  int turn_count_ = 0, unpack_count_ = 0;
  std::vector<size_t> single_begin_;  // of each window's items; none: no single tokens
  DeviceBuffer<AttentionWork> device_work_;
  DeviceBuffer<int> device_begin_;
  DeviceBuffer<RopeRun> turn_runs_;
  DeviceBuffer<int> unpack_from_, unpack_to_;  // where in the page numbers; 0, 1, ...
  DeviceBuffer<uint16_t> unpacked_;
  DeviceBuffer<DecodeItem> single_items_;  // of every window
  DeviceBuffer<float> partial_;
  DeviceBuffer<unsigned> arrived_;
};

}  // namespace ridge::cuda
