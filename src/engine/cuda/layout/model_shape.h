// The sizes and rules of a model (or of one rank's part of it) as the device has it, and its
// matrices and vectors.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "model/execution.h"

namespace ridge::cuda {

struct ModelShape {
  int layers = 0, hidden = 0, heads = 0, kv_heads = 0, head_dim = 0, ffn = 0, vocab = 0;
  bool gelu = false;            // gate: tanh's gelu; otherwise silu
  bool clamped_swiglu = false;  // gate: gpt-oss's, with its own product with `up`
  float norm_eps = 1e-5f, embed_scale = 1, query_scale = 0;
  float attention_softcap = 0, logit_softcap = 0;
  std::vector<int> window;  // by layer; empty or 0: none
  struct RopeTable {
    std::vector<float> frequency;  // head_dim / 2
    float magnitude = 1;
  };
  std::vector<RopeTable> ropes;
  std::vector<int> rope;  // by layer, which of them; empty: the first
  bool qk_norm = false, qkv_bias = false;
  bool sinks = false, out_bias = false;  // of attention
  bool expert_bias = false;              // of the router and the experts
  bool post_norms = false;               // blocks' outputs are normed before they are added
  int experts = 0, top_k = 0, expert_ffn = 0;
  bool normalize_top_k = false;
  std::vector<bool> moe;  // by layer: experts instead of the dense MLP; empty: none
  RouterRules routing;
  int shared_ffn = 0;  // inner columns of the MLP that every token passes beside its experts

  // Llama 4. Chunked layers: a query sees the keys since the last multiple of `window`. Layers
  // without RoPE have no q and k norms either, and their queries at position p are multiplied by
  // 1 + temperature_scale ln(1 + floor((p + 1) / temperature_floor)).
  std::vector<bool> chunked, no_rope;  // by layer; empty: none
  float temperature_scale = 0, temperature_floor = 1;

  // Multi-head latent attention (LatentAttention of model/architecture.h): the cache holds
  // rows (layout/latent_page.h) for all heads; kv_heads, head_dim, window and qk_norm are not
  // used.
  struct Latent {
    int kv_rank = 0;         // 0: plain attention
    int q_rank = 0;          // 0: queries come from the hidden state directly
    int nope = 0, rope = 0;  // elements of a query head that are not rotated, and that are
    int value = 0;           // elements of a value head
    float norm_eps = 1e-6f;
    int q_head() const { return nope + rope; }
    explicit operator bool() const { return kv_rank > 0; }
  } latent;

  // Where it is one rank's part of a model (engine/ranks/). -1: all.
  bool partial_sums =
      false;           // ranks cut the layers: they add up what a block gives to the residual
  bool embeds = true;  // otherwise the residual comes from the stage before
  int embed_first = 0, embed_rows = -1;     // tokens whose embedding is here; ranks add up
  int head_first = 0, head_rows = -1;       // 0 rows: the residual goes to the next stage
  int expert_first = 0, expert_count = -1;  // experts that are here; the router knows all

  bool cuts_embedding() const { return embeds && embed_rows >= 0; }
  int embedded_tokens() const { return cuts_embedding() ? embed_rows : vocab; }
  int head_columns() const { return head_rows < 0 ? vocab : head_rows; }  // of logits
  int experts_here() const { return expert_count < 0 ? experts : expert_count; }
  bool is_part() const { return partial_sums || !embeds || head_columns() == 0; }
  bool is_moe(int layer) const { return layer < int(moe.size()) && moe[size_t(layer)]; }
  bool is_chunked(int layer) const { return layer < int(chunked.size()) && chunked[size_t(layer)]; }
  bool has_rope(int layer) const { return layer >= int(no_rope.size()) || !no_rope[size_t(layer)]; }
  int chunk() const {  // tokens of a chunk, of which a model has one size; 0: no layer is chunked
    for (int layer = 0; layer < layers; ++layer) {
      if (is_chunked(layer)) return window[size_t(layer)];
    }
    return 0;
  }
  // Has operators that only the path per operator has (step_path.cuh).
  bool needs_operators() const {
    return latent || shared_ffn > 0 || !routing.is_plain() || chunk() > 0 || !no_rope.empty();
  }
};

enum class MatrixKind : uint8_t {
  embed,
  q,
  k,
  v,
  out,
  gate_up,
  down,
  router,
  expert_gate_up,
  expert_down,
  shared_gate_up,
  shared_down,
  q_a,
  kv_a,
  absorb,  // of one head (`expert`): W_UK^T, [kv_rank x nope]
  expand,  // of one head: W_UV, [value x kv_rank]
  head
};
enum class VectorKind : uint8_t {
  attn_norm,
  post_attn_norm,
  mlp_norm,
  post_mlp_norm,
  final_norm,
  q_norm,
  k_norm,
  qkv_bias,
  out_bias,
  sinks,                // [heads]
  router_bias,          // [experts, padded to 16]
  expert_gate_up_bias,  // [expert][8 of gate, 8 of up, ...]: the order of the tiles' rows
  expert_down_bias,     // [expert][hidden]
  router_correction,    // [experts]
  q_a_norm,             // [q_rank]
  kv_a_norm             // [kv_rank]
};

// Writes rows [first, first + count) of a matrix as bf16. Several threads call it concurrently,
// none after load() has returned.
using FillRows = std::function<void(int64_t first, int64_t count, uint16_t* to)>;

}  // namespace ridge::cuda
