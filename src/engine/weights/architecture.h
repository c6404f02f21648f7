// The parts of a model that only execution needs, beyond the sizes in Model that determine its
// cost: norms, activations, RoPE, soft caps, sliding-window layers, expert routing.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "engine/weights/router_rules.h"
#include "model/gguf.h"

namespace ridge {

enum class Activation : uint8_t {
  silu,
  gelu_tanh,
  // gpt-oss: g sigmoid(1.702 g) (u + 1), with the gate g at most 7 and u within +-7.
  clamped_swiglu
};
inline constexpr float kSwigluSlope = 1.702f, kSwigluLimit = 7;

// Rotary embedding: pair i of a head is rotated by position * frequency[i]. Element i is paired
// with i + n, n = frequency.size(). Elements from 2 n on (partial rotary) and pairs of frequency 0
// stay as they are. Files that pair neighbours (GGUFs of Llama, GLM-4, DeepSeek, Llama 4) have the
// rows of q and k put in that order on loading. A Rope without frequencies rotates nothing.
struct Rope {
  std::vector<float> frequency;  // scaling (linear, llama3, yarn, longrope's short) applied
  float magnitude = 1;           // multiplies cos and sin (yarn's attention factor)
  double theta = 10000;          // the base before scaling
  // longrope: the frequencies of contexts longer than original_context. Empty: none.
  std::vector<float> long_frequency = {};
  int original_context = 0;

  int dims() const { return 2 * static_cast<int>(frequency.size()); }  // rotated elements
};

struct LayerShape {
  int window = 0;        // visible tokens of a query, itself included; 0: all
  bool chunked = false;  // Llama 4: a query sees those since the last multiple of `window`
  int rope = 0;          // index into Architecture::ropes
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

struct Architecture {
  std::string family;  // model_type: "llama", "qwen2", "gemma3_text", "mixtral", ...
  int hidden = 0, vocab = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;  // as attention runs: of latents 1 and kv_rank + rope
  LatentAttention latent;
  int ffn = 0;  // inner columns of the dense MLP
  int experts = 0, top_k = 0, expert_ffn = 0;
  int shared_ffn =
      0;  // inner columns of the MLP that every token passes beside its experts; 0: none
  bool normalize_top_k = false;  // expert weights: softmax over all, top k, then made to sum to 1
                                 // (Mixtral's softmax over the top k is the same thing)
  RouterRules routing;
  std::vector<LayerShape> layers;
  std::vector<Rope> ropes;

  float norm_eps = 1e-5f;
  bool norm_plus_one = false;     // Gemma: x (1 + w); GGUF files already store 1 + w
  bool qk_norm = false;           // RMSNorm over each head of q and k, before rope
  bool qkv_bias = false;          // also where only some of q, k, v have a bias (absent: zero)
  bool post_norms = false;        // Gemma 2/3, GLM-4: the block's output is normed before the add
  bool sinks = false;             // gpt-oss: a logit per head joins the softmax of attention
  bool out_bias = false;          // of attention's output
  bool expert_bias = false;       // of the router and of every expert's matrices
  bool interleaved_rope = false;  // GLM-4, DeepSeek, Llama 4: files pair neighbouring elements
  // Llama 4, in layers with RoPE: q and k are divided by their root mean square after it. In layers
  // without, queries at position p are multiplied by 1 + scale ln(1 + floor((p + 1) / floor)).
  bool unit_qk = false;
  float temperature_scale = 0, temperature_floor = 1;
  Activation activation = Activation::silu;
  float embed_scale = 1;        // Gemma: sqrt(hidden), rounded to the config's dtype (GGUF: f32)
  float query_scale = 0;        // multiplies q . k
  float attention_softcap = 0;  // c tanh(s / c); 0: none
  float logit_softcap = 0;
  bool tied = false;  // the embedding is also the head
  int max_context = 0;
  std::vector<int> ends;  // eos ids of config and generation_config
  int bos = -1;

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

// From a Hugging Face config.json (also the built-in models' configs) or a GGUF's metadata. Throws
// Error for families the engine does not execute ("qwen3_next is predicted, not executed; the
// engine runs llama, mistral, ...") and for fields that are absent, out of range or not supported.
Architecture architecture_from_config(const nlohmann::json& config, const std::string& where);
// GGUF stores Llama 3's RoPE scaling in a tensor (rope_freqs.weight): load_weights applies it.
Architecture architecture_from_gguf(const GgufHeader& header, const std::string& where);
// Chooses between longrope's two lists of frequencies, for sequences of up to so many tokens:
// cached keys keep their rotation, so the choice cannot follow a sequence as it grows.
void choose_long_ropes(Architecture& architecture, int context);
// Adds the eos and bos ids that a generation_config.json lists.
void add_generation_config(Architecture& architecture, const nlohmann::json& config,
                           const std::string& where);

}  // namespace ridge
