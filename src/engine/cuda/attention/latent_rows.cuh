// The rows around latent attention (latent_attention.cuh): the append to the cache, the queries on
// their way into the latent space, the outputs on their way out of it. Each queues a dependent
// launch (device.cuh).
//
//   down = [W_q or W_qa; W_kva] x
//   append_latents   the cache's row; with q_rank, the norm of the queries' own latent
//   split_queries    W_q's rows by head: what is not rotated, and what is
//   (GEMMs by head)  absorb: q_latent = W_UK^T q_nope;  attention;  expand: v = W_UV o
//   merge_heads      the heads' values side by side
//
// GEMMs by head are grouped GEMMs (linear.cuh): head h has slots h * head_padded + token.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "engine/cuda/elementwise/rope.cuh"

namespace ridge::cuda {

struct AppendLatentsArgs {
  const float* down;          // [token][stride]
  int stride, kv_column;      // kv_column: the first of kv_rank + rope columns
  int kv_rank, rope, q_rank;  // q_rank: of the first columns; 0: none
  const float *kv_norm, *q_norm;
  float eps;
  const float* frequency;  // [rope / 2]
  float magnitude;
  const KvSlot* kv_slots;
  uint16_t* kv;        // this layer's pages (latent_page.h)
  uint16_t* q_normed;  // bf16 at wide_at(column, token, padded)
  int padded;
};
void append_latents(cudaStream_t stream, int tokens, const AppendLatentsArgs& args);

struct SplitQueriesArgs {
  const float* q;  // [token][stride]: per head nope, then rope elements
  int stride, heads, nope, rope;
  const float* frequency;  // [rope / 2]
  float magnitude;
  const KvSlot* kv_slots;
  uint16_t* q_nope;  // bf16 at wide_at(element, slot, heads * head_padded)
  uint16_t* q_rope;  // [token][head][kLatentRope] bf16
  int head_padded;
};
void split_queries(cudaStream_t stream, int tokens, const SplitQueriesArgs& args);

// Both side by side, where the queries come from `down` too.
void append_and_split(cudaStream_t stream, int tokens, const AppendLatentsArgs& latents,
                      const SplitQueriesArgs& queries);

struct MergeHeadsArgs {
  const float* values;  // [slot][value]
  int heads, value;     // value: a multiple of 2
  uint16_t* out;        // bf16 at wide_at(head * value + element, token, padded)
  int padded, head_padded;
};
void merge_heads(cudaStream_t stream, int tokens, const MergeHeadsArgs& args);

}  // namespace ridge::cuda
