// The parts of a model that only execution needs, beyond the sizes in Model that determine its
// cost: norms, activations, RoPE, soft caps, sliding-window layers, expert routing.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "model/gguf.h"

namespace ridge {

enum class Activation : uint8_t { silu, gelu_tanh };

// Rotary embedding: pair i of a head is rotated by position * frequency[i]. Halves are paired
// (Hugging Face's layout: element i with i + dim / 2), so the permuted q and k rows of a GGUF are
// put back in that order on loading.
struct Rope {
  std::vector<float> frequency;  // dim / 2; scaling (linear, llama3, yarn) applied
  float magnitude = 1;           // multiplies cos and sin (yarn's attention factor)
  double theta = 10000;          // the base before scaling
};

struct LayerShape {
  int window = 0;    // visible tokens of a query, itself included; 0: all
  int rope = 0;      // index into Architecture::ropes
  bool moe = false;  // experts instead of the dense MLP
};

struct Architecture {
  std::string family;  // model_type: "llama", "qwen2", "gemma3_text", "mixtral", ...
  int hidden = 0, vocab = 0;
  int heads = 0, kv_heads = 0, head_dim = 0;
  int ffn = 0;  // inner columns of the dense MLP
  int experts = 0, top_k = 0, expert_ffn = 0;
  bool normalize_top_k = false;  // expert weights: softmax over all, top k, then made to sum to 1
                                 // (Mixtral's softmax over the top k is the same thing)
  std::vector<LayerShape> layers;
  std::vector<Rope> ropes;

  float norm_eps = 1e-5f;
  bool norm_plus_one = false;  // Gemma: x (1 + w); GGUF files already store 1 + w
  bool qk_norm = false;        // RMSNorm over each head of q and k, before rope
  bool qkv_bias = false;       // also where only some of q, k, v have a bias (absent: zero)
  bool post_norms = false;     // Gemma 2/3: the block's output is normed before the residual add
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
  int layer_count() const { return static_cast<int>(layers.size()); }
};

// From a Hugging Face config.json (also the built-in models' configs) or a GGUF's metadata. Throws
// Error for families the engine does not execute ("deepseek_v3 is predicted, not executed; the
// engine runs llama, mistral, qwen2, qwen3, gemma2, gemma3, mixtral, qwen3_moe") and for fields
// that are absent, out of range or not supported.
Architecture architecture_from_config(const nlohmann::json& config, const std::string& where);
// GGUF stores Llama 3's RoPE scaling in a tensor (rope_freqs.weight): load_weights applies it.
Architecture architecture_from_gguf(const GgufHeader& header, const std::string& where);
// Adds the eos and bos ids that a generation_config.json lists.
void add_generation_config(Architecture& architecture, const nlohmann::json& config,
                           const std::string& where);

}  // namespace ridge
