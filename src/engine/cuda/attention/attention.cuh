// Attention of a step over the paged KV cache, for any mix of prefill and decode sequences:
//   prefill_attention.cuh  FlashAttention by wgmma; RoPE and append run before it (rope.cuh)
//   decode_attention.cuh   RoPE, append and attention in one kernel
//
// Query heads that share a KV head are packed into rows: row r of a sequence is token r / group,
// head r % group. Sequences with more than 64 packed rows are prefill, the others decode. The
// result of a token depends on its own sequence alone, not on the rest of the batch.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "engine/cuda/attention/attention_args.cuh"
#include "engine/cuda/attention/decode_attention.cuh"
#include "engine/cuda/attention/prefill_attention.cuh"
#include "engine/cuda/device.cuh"

namespace ridge::cuda {

// Plans a step once; the plan serves all layers.
class Attention {
 public:
  // windows: the distinct AttentionArgs::window of the layers.
  Attention(int heads, int kv_heads, int head_dim, int sms, KvFormat format,
            std::vector<int> windows);
  // Uploads the work lists on `stream`.
  void plan(cudaStream_t stream, const std::vector<AttentionSequence>& sequences);
  // For sequences with several rows: q and k norm, RoPE, the append to the cache, and the pages of
  // prefill sequences as bf16 where the cache has another format. Only if needs_rope().
  bool needs_rope() const { return rope_count_ > 0; }
  void rope_and_append(cudaStream_t stream, const AttentionArgs& args);
  // Attention of all sequences. Both functions queue dependent launches (device.cuh).
  void launch(cudaStream_t stream, const AttentionArgs& args);

 private:
  void plan_prefill(cudaStream_t stream, std::vector<AttentionSequence> sequences);
  void plan_dequantization(cudaStream_t stream, std::vector<AttentionSequence>& sequences);
  void plan_decode(cudaStream_t stream, const std::vector<AttentionSequence>& sequences);

  int heads_, kv_heads_, head_dim_, sms_;
  KvFormat format_;
  std::vector<int> windows_;
  // Of the current step.
  int rope_count_ = 0, dequantize_count_ = 0;
  bool has_prefill_ = false;
  std::vector<size_t> decode_begin_;  // first item of each window; empty: no decode sequences
  DeviceBuffer<RopeRun> rope_runs_;
  DeviceBuffer<PrefillTile> prefill_tiles_;
  DeviceBuffer<int> prefill_begin_;
  DeviceBuffer<int> dequantize_from_, dequantized_pages_;  // into the page numbers; 0, 1, ...
  DeviceBuffer<uint16_t> dequantized_;
  DeviceBuffer<DecodeItem> decode_items_;  // of all windows
  DeviceBuffer<float> partials_;
  DeviceBuffer<unsigned> arrived_;
};

}  // namespace ridge::cuda
