// Shared memory and schedule of the decode attention kernel (decode_attention_kernel.cuh).
//
//   DecodeAttentionShared, one block per SM, up to 227 KB
//   +----------------------------------------------------------------------------+
//   | ring[kSlots]: stages of 1, 2 or 4 KV pages                    full/empty   |  KV producer
//   +----------------------------------------------------------------------------+
//   | out[8 warps][8 columns][head_dim + 4]  max, sum[8 warps][8]         f32    |  combine
//   | queries[2][kD][32 lanes]  scale[2][8]           queries_full/queries_empty |  query producer
//   | rotation[8 columns], append_rotation: (cosine, sine)                       |
//   | items[4], is_last[2]                    partial_written, splits_counted    |
//   +----------------------------------------------------------------------------+
#pragma once

#include "engine/cuda/attention/decode_attention.cuh"
#include "engine/cuda/attention/page_attention.cuh"
#include "engine/cuda/device/device.cuh"

namespace ridge::cuda {

constexpr int kAttentionWarps = 8;
constexpr int kDecodeAttentionThreads = (kAttentionWarps + 4) * 32;
constexpr int kQueryColumns = 8;           // columns of the MMA
constexpr int kQueryStages = 2;            // items whose queries are ready
constexpr int kItemRing = 4;               // those, and the item whose output is being written
constexpr int kIssueStages = 4;            // stages issued together: one by one is too slow
constexpr int kBytesInFlight = 72 * 1024;  // of KV pages, per SM

template <int kD, KvFormat kFormat>
struct DecodeAttentionShape {
  static constexpr int kHeadDim = 16 * kD;
  static constexpr int kPageBytes = page_bytes(kFormat, kHeadDim);
  // Small pages share a stage: one by one their copies would be issued too slowly.
  static constexpr int kStagePages = kPageBytes > 5000 ? 1 : kPageBytes > 2500 ? 2 : 4;
  static constexpr int kStageBytes = kStagePages * kPageBytes;
  static constexpr int kOutStride = kHeadDim + 4;  // avoids bank conflicts between columns
  static constexpr int kOtherBytes = kAttentionWarps * kQueryColumns * kOutStride * 4 +
                                     kQueryStages * kD * 32 * 8 + (kQueryColumns + 1) * 8 * kD * 8 +
                                     3 * 1024;
  static constexpr int kSlots = (227 * 1024 - kOtherBytes) / kStageBytes;
  // An mbarrier distinguishes a phase from the next one only: a thread that waits for the next
  // stage of a slot must know that the slot's previous stage has arrived. An attention warp knows
  // that of its own last stage, and of every stage kStagesInFlight before that.
  static constexpr int kMaxStagesInFlight =
      kSlots % kAttentionWarps == 0 ? kSlots : kSlots - kAttentionWarps;
  static constexpr int kStagesInFlight = kBytesInFlight / kStageBytes < kMaxStagesInFlight
                                             ? kBytesInFlight / kStageBytes
                                             : kMaxStagesInFlight;
  static constexpr int kSharedBytes = kOtherBytes + kSlots * kStageBytes;
};

#ifdef RIDGE_HOPPER

template <int kD, KvFormat kFormat>
struct DecodeAttentionShared {
  using Shape = DecodeAttentionShape<kD, kFormat>;
  uint8_t ring[Shape::kSlots][Shape::kStageBytes];
  float out[kAttentionWarps][kQueryColumns][Shape::kOutStride];
  uint2 queries[kQueryStages][kD][32];  // HeadFragment of each lane
  float2 rotation[kQueryColumns][8 * kD], append_rotation[8 * kD];
  DecodeItem items[kItemRing];
  float scale[kQueryStages][kQueryColumns];  // of the scores
  float max[kAttentionWarps][kQueryColumns], sum[kAttentionWarps][kQueryColumns];
  uint64_t full[Shape::kSlots], empty[Shape::kSlots];
  uint64_t queries_full[kQueryStages], queries_empty[kQueryStages];
  unsigned stages_issued;  // whose loads the KV producer has issued
  uint64_t partial_written, splits_counted;
  int is_last[2];  // whether all splits of an item are done; items with splits alternate
};

// The items of this block, read one ahead. The last has no pages.
class DecodeScheduler {
 public:
  __device__ explicit DecodeScheduler(const DecodeAttentionLaunch& launch)
      : at_(launch.items + blockIdx.x), next_(*at_) {}
  __device__ DecodeItem next() {
    const DecodeItem item = next_;
    if (item.page_count > 0) next_ = *(at_ += gridDim.x);
    return item;
  }

 private:
  const DecodeItem* at_;
  DecodeItem next_;
};

#endif

}  // namespace ridge::cuda
