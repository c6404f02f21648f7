// What only execution needs of a model: numbers that change results and never sizes, so they have
// no part in a model's cost. C++17 and few headers: device code reads it too.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

// How a router chooses and weighs experts, where that is not the top k of a softmax.
struct RouterRules {
  bool sigmoid = false;            // scores are sigmoids of the logits (DeepSeek-V3, Llama 4)
  int groups = 1, top_groups = 1;  // experts outside the best groups are not chosen (DeepSeek)
  // DeepSeek-V3: a bias per expert joins the scores for the choice, not for the weights. A group
  // then counts by its two best experts, otherwise by its best.
  bool correction = false;
  float scale = 1;            // multiplies the weights
  bool scales_input = false;  // Llama 4: the weight multiplies an expert's input, not its output

  bool is_plain() const {
    return !sigmoid && top_groups == groups && !correction && scale == 1 && !scales_input;
  }
};

struct Execution {
  std::string family;  // as loaders and backends name it: "llama", "gemma3_text", "mixtral", ...
  std::vector<Rope> ropes;
  std::vector<int> rope_of_layer;  // index into ropes of each layer
  bool normalize_top_k = false;    // expert weights: softmax over all, top k, then made to sum to 1
                                   // (Mixtral's softmax over the top k is the same thing)
  RouterRules routing;

  float norm_eps = 1e-5f;
  bool norm_plus_one = false;     // Gemma: x (1 + w); GGUF files already store 1 + w
  bool post_norms = false;        // Gemma 2/3, GLM-4: the block's output is normed before the add
  bool sinks = false;             // gpt-oss: a logit per head joins the softmax of attention
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
  std::vector<int> ends;  // eos ids of config and generation_config
  int bos = -1;
};

}  // namespace ridge
