// What Hugging Face's model families do where their configs do not say: one row a family.
//
// The fields of a config carry most of an architecture. A family adds the rest: which biases
// exist, whether embeddings are tied when the field is absent, how norms and windows are laid out.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "model/model.h"

namespace ridge {

struct ConfigContext;
class Fields;

// A config field with the family's value where the field is absent; without a field it is fixed.
struct Toggle {
  const char* field = nullptr;
  bool value = false;
};

enum class NormKind : uint8_t { rms, layer, bare };     // parameters per channel: 1, 2, 0
enum class QkNorm : uint8_t { none, head, all_heads };  // weights over head_dim, or over all heads

enum class WindowRule : uint8_t {
  none,
  every,      // `sliding_window` holds in every layer
  used,       // in every layer, if `use_sliding_window` says so (Qwen3 MoE)
  from,       // `use_sliding_window`, from layer `max_window_layers` on (Qwen)
  pattern,    // every `sliding_window_pattern`-th layer is global
  alternate,  // even layers slide (Gemma 2)
};

// What configs of a family that the engine runs leave to its code. Numbers are the defaults of the
// configuration class.
struct Executed {
  const char* family;  // Execution::family
  double theta = 10000;
  double eps = 1e-6;
  double rotary = 0;            // of partial_rotary_factor; 0: only 1 is executed
  bool gemma = false;           // GeGLU
  bool experts = false;         // of which some layers have a mixture,
  bool shared_experts = false;  // perhaps beside experts that every token passes
  Toggle normalize_top_k{};
  bool post_norms = false, interleaved_rope = false;
  // What is left, execution_families.cc: `outer` is the wrapper's object, or the config itself.
  void (*finish)(Execution&, const Model&, const ConfigContext&, const Fields& outer) = nullptr;
};

struct Family {
  const char* type;  // model_type
  Toggle tied{"tie_word_embeddings", false};
  Toggle qkv_bias{"attention_bias", false};
  Toggle o_bias{"attention_bias", false};
  Toggle mlp_bias{"mlp_bias", false};
  Toggle head_bias{};
  bool gated = true;              // gate and up; otherwise one fc1
  NormKind norm = NormKind::rms;  // of the layers and the last one
  int norms = 2;                  // per layer, over hidden
  Toggle parallel_norm{};         // true: attention and MLP share one norm
  QkNorm qk_norm = QkNorm::none;
  Toggle qk_norm_on{nullptr, true};
  WindowRule window = WindowRule::none;
  int window_pattern = 0;           // where sliding_window_pattern is absent
  bool learned_positions = false;   // max_position_embeddings x hidden
  bool router_correction = false;   // one bias per expert in routing
  bool shared_expert_gate = false;  // shared expert scaled by hidden -> 1
  bool embedding_counts = true;     // publisher's active count includes the input embedding
  // Of the configuration class in transformers. A nested text_config holds only what differs from
  // them; other configs may leave out all but kRequiredSizes (config.cc).
  const char* defaults = "{}";
  const char* unsupported = nullptr;  // a field that must be absent, null, false or zero
  Layer (*layer)(const ConfigContext&, int index) = nullptr;  // null: decoder_layer
  const Executed* executed = nullptr;                         // null: predicted only
};

// Null when the family is not known.
const Family* find_family(std::string_view type);
std::vector<std::string> family_names();
// Of those that the engine runs, as the outermost config names them: "gemma3".
std::vector<std::string> executed_family_names();

}  // namespace ridge
