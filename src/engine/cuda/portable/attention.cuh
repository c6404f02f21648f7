// Attention of a step for every NVIDIA card since Ampere. RoPE and the append to the cache run
// first, for all sequences (rope.cuh); then
//   decode_kernel.cuh   sequences with one token
//   prefill_kernel.cuh  the others, over pages in bf16 (dequantize_pages.cuh)
// The result of a token depends on its own sequence alone, not on the rest of the batch.
#pragma once

#include "engine/cuda/attention/decode_attention.cuh"
#include "engine/cuda/attention/prefill_attention.cuh"
#include "engine/cuda/attention/step_attention.cuh"
#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/workspace.h"

namespace ridge::cuda {

// A split begins at a multiple of this many pages of its sequence. Small: a token of 1024 keys and
// 8 KV heads is 32 blocks. Their partial results are 3 % of the keys and values of a split.
constexpr int kPortableSplitPages = 16;

// A token, up to 8 query heads of each KV head, one split of the pages that it sees.
struct alignas(16) PortableDecodeItem {
  int row, position, pages;         // of the token; `pages`: as in AttentionSequence
  int column;                       // the first head, of those that share a KV head
  int first_page, end_page;         // of the split, in the sequence
  int split, splits;                // of the token
  int partial, counter, unused[2];  // the first record and counter of the first KV head
};

struct PortableDecodeLaunch {
  AttentionArgs args;  // queries in `q`, RoPE applied
  int group;           // query heads per KV head
  const PortableDecodeItem* items;
  float* partials;    // [partial][partial_record_size]
  unsigned* arrived;  // [counter], zero between launches
};

class PortableAttention final : public StepAttention {
 public:
  // windows: the distinct AttentionArgs::window of the layers.
  PortableAttention(int heads, int kv_heads, int head_dim, int sms, KvFormat format,
                    std::vector<int> windows, const AttentionBounds& bounds);
  // Device memory besides the step's inputs, and the inputs of a plan.
  static size_t memory_bytes(int heads, int kv_heads, int head_dim, KvFormat format,
                             const AttentionBounds& bounds);
  static size_t input_bytes(int heads, int kv_heads, int sms, size_t windows,
                            const AttentionBounds& bounds);

  void plan(StepInputs& inputs, const std::vector<AttentionSequence>& sequences,
            const int* pages) override;
  bool needs_rope() const override { return true; }
  void rope_and_append(cudaStream_t stream, const AttentionArgs& args) override;
  void launch(cudaStream_t stream, const AttentionArgs& args) override;

 private:
  struct Buffers {  // on the device
    Buffers(Workspace& workspace, int heads, int kv_heads, int head_dim, KvFormat format,
            const AttentionBounds& bounds);
    uint16_t* dequantized;  // [cache page][kv head][page_elements]: a layer's pages as bf16
    float* partials;
    unsigned* arrived;
  };
  void plan_decode(const AttentionSequence& sequence, int window, int& partials, int& counters);

  int heads_, kv_heads_, head_dim_, sms_;
  KvFormat format_;
  std::vector<int> windows_;
  DeviceBuffer<uint8_t> memory_;
  Buffers buffers_;

  // The current step on the host; kept for its memory.
  std::vector<AttentionSequence> prefill_, decode_;
  std::vector<RopeRun> runs_;
  std::vector<PortableDecodeItem> items_;
  PrefillPages prefill_pages_;
  PrefillPlan prefill_plan_;

  // The current step on the device.
  int run_count_ = 0, dequantize_count_ = 0;
  const RopeRun* device_runs_ = nullptr;
  const int* device_dequantized_pages_ = nullptr;
  const PrefillTile* device_tiles_ = nullptr;  // null: no prefill sequences
  const int* device_tiles_begin_ = nullptr;
  struct Items {
    const PortableDecodeItem* device;
    int count;
  };
  std::vector<Items> device_items_;  // by window; empty: no decode sequences
};

}  // namespace ridge::cuda
