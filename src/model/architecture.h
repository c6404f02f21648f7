// A model as the engine's loaders and backends use it: the sizes of Model as plain numbers, equal
// in all layers, beside what only execution needs.
#pragma once

#include <vector>

#include "model/execution.h"

namespace ridge {

struct Model;

struct LayerShape {
  int window = 0;        // visible tokens of a query, itself included; 0: all
  bool chunked = false;  // Llama 4: a query sees those since the last multiple of `window`
  int rope = 0;          // index into Execution::ropes
  bool moe = false;      // experts instead of the dense MLP
};

// Multi-head latent attention (DeepSeek). The cache holds one row per token for all heads: the
// normed latent of kv_rank elements and the rotated part of the key. Queries are brought into that
// space (absorbed), so attention has one KV head of kv_rank + rope elements, and its values are the
// first kv_rank elements of the same row.
struct LatentAttention {
  int kv_rank = 0;         // 0: the model has plain attention
  int q_rank = 0;          // 0: queries come from the hidden state directly
  int nope = 0, rope = 0;  // elements of a query head that are not rotated, and that are
  int value = 0;           // elements of a value head
  float norm_eps = 1e-6f;  // of the norms of both latents

  int q_head() const { return nope + rope; }
  explicit operator bool() const { return kv_rank > 0; }
};

struct Architecture : Execution {
  int hidden = 0, vocab = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;  // as attention runs: of latents 1 and kv_rank + rope
  LatentAttention latent;
  int ffn = 0;  // inner columns of the dense MLP
  int experts = 0, top_k = 0, expert_ffn = 0;
  int shared_ffn =
      0;  // inner columns of the MLP that every token passes beside its experts; 0: none
  std::vector<LayerShape> layers;
  bool qk_norm = false;      // RMSNorm over each head of q and k, before rope
  bool qkv_bias = false;     // also where only some of q, k, v have a bias (absent: zero)
  bool out_bias = false;     // of attention's output
  bool expert_bias = false;  // of the router and of every expert's matrices
  bool tied = false;         // the embedding is also the head
  int max_context = 0;

  int q_columns() const { return heads * head_dim; }
  int kv_columns() const { return kv_heads * head_dim; }
  // Elements that the cache holds for a token in a layer.
  int cache_columns() const { return latent ? kv_columns() : 2 * kv_columns(); }
  // Rows of the matrix that makes the queries, and columns of the one that reads attention's
  // output.
  int q_rows() const { return latent ? heads * latent.q_head() : q_columns(); }
  int out_columns() const { return latent ? heads * latent.value : q_columns(); }
  int layer_count() const { return static_cast<int>(layers.size()); }
};

// Throws Error with Model::not_executed where the engine does not run the model.
Architecture architecture_of(const Model& model);

// Chooses between longrope's two lists of frequencies, for sequences of up to `context` tokens:
// cached keys keep their rotation, so the choice cannot follow a sequence as it grows.
void choose_long_ropes(Architecture& architecture, int context);

}  // namespace ridge
