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
#include "engine/cuda/attention/step_attention.cuh"
#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/workspace.h"

namespace ridge::cuda {

// Plans a step once; the plan serves all layers.
class Attention final : public StepAttention {
 public:
  // windows: the distinct AttentionArgs::window of the layers.
  Attention(int heads, int kv_heads, int head_dim, int sms, KvFormat format,
            std::vector<int> windows, const AttentionBounds& bounds);
  // Device memory besides the step's inputs, and the inputs of a plan.
  static size_t memory_bytes(int heads, int kv_heads, int head_dim, KvFormat format,
                             const AttentionBounds& bounds);
  static size_t input_bytes(int heads, int kv_heads, int sms, size_t windows,
                            const AttentionBounds& bounds);

  void plan(StepInputs& inputs, const std::vector<AttentionSequence>& sequences,
            const int* pages) override;
  bool can_write_fp8() const override { return prefill_.empty(); }
  // Of sequences with several rows: decode attention does the others' itself.
  bool needs_rope() const override { return rope_count_ > 0; }
  void rope_and_append(cudaStream_t stream, const AttentionArgs& args) override;
  void launch(cudaStream_t stream, const AttentionArgs& args) override;

 private:
  struct Buffers {  // on the device
    Buffers(Workspace& workspace, int heads, int kv_heads, int head_dim, KvFormat format,
            const AttentionBounds& bounds);
    uint16_t* dequantized;  // [cache page][kv head][page_elements]: a layer's pages as bf16
    float* partials;        // [partial][partial_record_size]
    unsigned* arrived;      // [counter], zero between launches
  };

  void plan_prefill(StepInputs& inputs);
  void plan_decode(StepInputs& inputs);

  int heads_, kv_heads_, head_dim_, sms_;
  KvFormat format_;
  std::vector<int> windows_;
  DeviceBuffer<uint8_t> memory_;
  Buffers buffers_;

  // The current step on the host; kept for its memory.
  std::vector<AttentionSequence> prefill_, decode_;
  std::vector<RopeRun> runs_;
  PrefillPages prefill_pages_;
  PrefillPlan prefill_plan_;
  DecodePlan decode_plan_;

  // The current step on the device.
  int rope_count_ = 0, dequantize_count_ = 0;
  const RopeRun* device_runs_ = nullptr;
  const int* device_dequantized_pages_ = nullptr;
  const PrefillTile* device_tiles_ = nullptr;  // null: no prefill sequences
  const int* device_tiles_begin_ = nullptr;
  std::vector<const DecodeItem*> device_items_;  // by window; empty: no decode sequences
};

}  // namespace ridge::cuda
