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
#include "engine/cuda/step/step_inputs.cuh"
#include "engine/cuda/step/workspace.h"

namespace ridge::cuda {

// The largest step of a run. All memory is allocated from these bounds.
struct AttentionBounds {
  int tokens = 0, sequences = 0;  // of one step
  int cache_pages = 0;            // of the KV cache
  // Pages that the sequences of one step see together; a shared page counts for each of them.
  int context_pages = 0;
};

// Plans a step once; the plan serves all layers.
class Attention {
 public:
  // windows: the distinct AttentionArgs::window of the layers.
  Attention(int heads, int kv_heads, int head_dim, int sms, KvFormat format,
            std::vector<int> windows, const AttentionBounds& bounds);
  // Device memory besides the step's inputs, and the inputs of a plan.
  static size_t memory_bytes(int heads, int kv_heads, int head_dim, KvFormat format,
                             const AttentionBounds& bounds);
  static size_t input_bytes(int heads, int kv_heads, int sms, size_t windows,
                            const AttentionBounds& bounds);

  // Adds the work lists to the step's inputs. `pages`: page numbers of the sequences, on the host.
  void plan(StepInputs& inputs, const std::vector<AttentionSequence>& sequences, const int* pages);
  // For sequences with several rows: q and k norm, RoPE, the append to the cache, and the pages of
  // prefill sequences as bf16 where the cache has another format. Only if needs_rope().
  bool needs_rope() const { return rope_count_ > 0; }
  void rope_and_append(cudaStream_t stream, const AttentionArgs& args);
  // Attention of all sequences. Both functions queue dependent launches (device.cuh).
  void launch(cudaStream_t stream, const AttentionArgs& args);

 private:
  struct Buffers {  // on the device
    Buffers(Workspace& workspace, int heads, int kv_heads, int head_dim, KvFormat format,
            const AttentionBounds& bounds);
    uint16_t* dequantized;  // [cache page][kv head][page_elements]: a layer's pages as bf16
    float* partials;        // [partial][partial_record_size]
    unsigned* arrived;      // [counter], zero between launches
  };

  void plan_prefill(StepInputs& inputs);
  void plan_dequantization(StepInputs& inputs, const int* pages);
  void plan_decode(StepInputs& inputs);

  int heads_, kv_heads_, head_dim_, sms_;
  KvFormat format_;
  std::vector<int> windows_;
  DeviceBuffer<uint8_t> memory_;
  Buffers buffers_;

  // The current step on the host; kept for its memory.
  std::vector<AttentionSequence> prefill_, decode_;
  std::vector<RopeRun> runs_;
  std::vector<int> dequantized_pages_;
  std::vector<unsigned> page_plan_;  // [page]: the last plan that dequantizes it
  unsigned plan_number_ = 0;
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
