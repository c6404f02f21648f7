// Attention over latents (DeepSeek's MLA) in the absorbed form: one KV head, whose row per token is
// the normed latent and the rotated part of the key. A row is a key of kLatentRow elements, and its
// first kLatentRank elements are the value.
//
// Query heads are packed into rows: row r of a sequence is token r / heads, head r % heads. A block
// has a tile of 16 or 64 rows, so that a sequence's cache is read once for up to 64 heads, and a
// range of its pages. Ranges are chosen so that a step fills the SMs (FlashDecoding). So the last
// bits of a result depend on what else the step has. latent_attention_kernel.cuh draws the warps.
#pragma once

#include <cuda_runtime.h>

#include <vector>

#include "engine/cuda/attention/attention_args.cuh"
#include "engine/cuda/attention/step_attention.cuh"
#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/step_inputs.cuh"
#include "engine/cuda/layout/latent_page.h"

namespace ridge::cuda {

// A tile of packed rows and a range of its pages.
struct alignas(16) LatentItem {
  int row, rows, past, pages;  // of its sequence, as in AttentionSequence
  int first;                   // packed row
  int first_page, end_page;    // of the sequence
  int split, splits;           // of this tile
  int partial, unused[2];      // index of the first split's record
};

struct LatentAttentionArgs {
  const float* q_latent;   // [head * padded + token][kLatentRank]
  const uint16_t* q_rope;  // [token][head][kLatentRope] bf16, RoPE applied
  const uint16_t* kv;      // this layer's pages: [page][kPageTokens][kLatentRow] bf16
  const int* pages;        // page numbers
  float scale;             // of q . k
  int heads, padded;
  uint16_t* out;  // bf16 at wide_at(element, head * padded + token, heads * padded)
};

struct LatentAttentionLaunch {
  LatentAttentionArgs args;
  Divisor heads;
  const LatentItem* items;
  float* partials;  // [record][rows of a tile][kLatentRank], then maxima and sums
};

// Plans a step once; the plan serves all layers.
class LatentAttention {
 public:
  LatentAttention(int heads, int sms);
  // Device memory besides the step's inputs, and the inputs of a plan.
  static size_t memory_bytes(int sms);
  static size_t input_bytes(int heads, int sms, const AttentionBounds& bounds);

  void plan(StepInputs& inputs, const std::vector<AttentionSequence>& sequences);
  // Queues dependent launches (device.cuh).
  void launch(cudaStream_t stream, const LatentAttentionArgs& args) const;

 private:
  // Tiles of one height.
  struct TileClass {
    int row_tiles = 1;  // of 16 rows
    std::vector<AttentionSequence> sequences;
    std::vector<LatentItem> items, split;  // split: the first item of each tile with several
    const LatentItem *device_items = nullptr, *device_split = nullptr;
  };
  int choose_split(const TileClass& tiles) const;
  void add_tiles(const AttentionSequence& sequence, TileClass& to, int split_pages);
  template <int kRowTiles>
  void launch_tiles(cudaStream_t stream, const LatentAttentionArgs& args,
                    const TileClass& tiles) const;

  int heads_, sms_;
  DeviceBuffer<float> partials_;
  TileClass small_, large_;
};

}  // namespace ridge::cuda
