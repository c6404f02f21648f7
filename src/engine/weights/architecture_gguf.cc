// A GGUF's metadata becomes an Architecture: written as a Hugging Face config, which the one reader
// understands. What llama.cpp decides in its code and not in the file is decided here as there.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "engine/weights/architecture.h"
#include "model/config_fields.h"

namespace ridge {

namespace {

using nlohmann::json;

struct Mapping {
  const char* key;  // after "llama."
  const char* field;
};

constexpr Mapping kMappings[] = {
    {"block_count", "num_hidden_layers"},
    {"embedding_length", "hidden_size"},
    {"context_length", "max_position_embeddings"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"rope.freq_base", "rope_theta"},
    {"rope.freq_base_swa", "rope_local_base_freq"},
};

class Reader {
 public:
  Reader(const GgufHeader& header, const std::string& where) : header_(header), where_(where) {
    const json* name = value("general.architecture");
    if (name == nullptr || !name->is_string()) {
      throw Error("{}: general.architecture is missing", where);
    }
    architecture_ = name->get<std::string>();
  }

  Architecture read();

 private:
  const json* value(std::string_view key) const {
    auto found = header_.values.find(key);
    return found == header_.values.end() ? nullptr : &found->second;
  }
  const json* own(const char* key) const { return value(architecture_ + "." + key); }
  bool tensor(std::string_view name) const { return header_.tensors.contains(name); }
  double number(const char* key, double otherwise) const;
  json scalar(const char* key, const json& found) const;
  std::string model_type() const;
  json rope_scaling() const;
  void set_windows(json& config) const;
  void set_gemma(json& config, const std::string& type) const;
  void set_dense_layers(json& config) const;
  void check_head_sizes(const Architecture& made) const;

  const GgufHeader& header_;
  const std::string& where_;
  std::string architecture_;
};

double Reader::number(const char* key, double otherwise) const {
  const json* found = own(key);
  if (found == nullptr) return otherwise;
  if (!found->is_number()) throw Error("{}: {}.{} must be a number", where_, architecture_, key);
  return found->get<double>();
}

// A list with one figure a layer becomes that figure where all agree.
json Reader::scalar(const char* key, const json& found) const {
  if (!found.is_array()) return found;
  for (const json& each : found) {
    if (each != found[0]) {
      throw Error("{}: {}.{} differs between layers, which is not executed", where_, architecture_,
                  key);
    }
  }
  if (found.empty()) throw Error("{}: {}.{} is an empty list", where_, architecture_, key);
  return found[0];
}

std::string Reader::model_type() const {
  if (architecture_ == "llama") return number("expert_count", 0) > 0 ? "mixtral" : "llama";
  if (architecture_ == "qwen2" || architecture_ == "qwen3" || architecture_ == "gemma2") {
    return architecture_;
  }
  if (architecture_ == "gemma3") return "gemma3_text";
  if (architecture_ == "qwen3moe") return "qwen3_moe";
  throw Error(
      "{}: general.architecture {} is not executed; the engine runs llama, qwen2, qwen3, gemma2, "
      "gemma3, qwen3moe",
      where_, architecture_.substr(0, 80));
}

// Llama 3's scaling comes as a tensor of divisors (rope_freqs.weight), which loading applies.
json Reader::rope_scaling() const {
  json scaling = json::object();
  std::string type = "none";
  if (const json* given = own("rope.scaling.type"); given && given->is_string()) type = *given;
  const double factor = number("rope.scaling.factor", number("rope.scale_linear", 0));
  if (type == "none" && own("rope.scaling.type") == nullptr && factor > 0) type = "linear";
  if (type == "none" || (factor <= 0 && type == "linear")) return scaling;
  scaling = {{"rope_type", type}, {"factor", factor > 0 ? factor : 1}};
  if (type == "yarn") {
    if (const json* context = own("rope.scaling.original_context_length")) {
      scaling["original_max_position_embeddings"] = *context;
    }
    const double magnitude = factor <= 1 ? 1 : 0.1 * std::log(factor) + 1;
    scaling["attention_factor"] = number("rope.scaling.attn_factor", 1) * magnitude;
    scaling["beta_fast"] = number("rope.scaling.yarn_beta_fast", 32);
    scaling["beta_slow"] = number("rope.scaling.yarn_beta_slow", 1);
  }
  return scaling;
}

// A pattern is a flag for each layer, or a number n: every n-th layer is full.
void Reader::set_windows(json& config) const {
  const json* window = own("attention.sliding_window");
  const json* pattern = own("attention.sliding_window_pattern");
  const json& layers = config["num_hidden_layers"];
  config["sliding_window"] = window ? *window : json();
  if (window == nullptr || *window == json(0)) {
    config["sliding_window"] = nullptr;
    return;
  }
  config["use_sliding_window"] = true;
  if (!layers.is_number_integer() || layers < 1 || layers > kMaxLayers) return;
  const auto count = layers.get<size_t>();
  int64_t period = architecture_ == "gemma2" ? 2 : architecture_ == "gemma3" ? 6 : 0;
  if (pattern && pattern->is_number_integer()) {
    period = Fields(json{{"n", *pattern}}, where_).integer({"n"}, 0, kMaxLayers);
  }
  json types = json::array();
  for (size_t i = 0; i < count; ++i) {
    bool slides = period == 0 || (int64_t(i) + 1) % period != 0;
    if (pattern && pattern->is_array()) {
      if (pattern->size() != count) {
        throw Error("{}: {}.attention.sliding_window_pattern has {} entries for {} layers", where_,
                    architecture_, pattern->size(), count);
      }
      slides = (*pattern)[i] != json(false) && (*pattern)[i] != json(0);
    }
    types.push_back(slides ? "sliding_attention" : "full_attention");
  }
  config["layer_types"] = types;
}

// llama.cpp scales queries by the key length, and by hidden / heads for the 27B models, which it
// knows by their layers. `attention.scale` is ours, for models that are neither.
void Reader::set_gemma(json& config, const std::string& type) const {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (const json* found = own(key)) config[key] = *found;
  }
  config["torch_dtype"] = "float32";  // its embedding scale is a float there
  const double heads = number("attention.head_count", 0), hidden = number("embedding_length", 0);
  const double layers = number("block_count", 0);
  double scalar = number("attention.key_length", 256);
  if (layers == (type == "gemma2" ? 46 : 62) && heads > 0) scalar = hidden / heads;
  if (const double scale = number("attention.scale", 0); scale > 0) scalar = 1 / (scale * scale);
  if (!(scalar > 0) || !std::isfinite(scalar)) {
    throw Error("{}: {}.attention.key_length must be positive", where_, architecture_);
  }
  config["query_pre_attn_scalar"] = scalar;
}

// Layers without a router have one MLP for all tokens.
void Reader::set_dense_layers(json& config) const {
  json dense = json::array();
  const json& layers = config["num_hidden_layers"];
  if (!layers.is_number_integer() || layers < 1 || layers > kMaxLayers) return;
  for (int i = 0; i < layers.get<int>(); ++i) {
    if (!tensor(fmt::format("blk.{}.ffn_gate_inp.weight", i))) dense.push_back(i);
  }
  config["mlp_only_layers"] = dense;
}

void Reader::check_head_sizes(const Architecture& made) const {
  for (const char* key :
       {"attention.key_length", "attention.value_length", "rope.dimension_count"}) {
    if (number(key, made.head_dim) != made.head_dim) {
      throw Error("{}: {}.{} is not the head size {}, which is not executed", where_, architecture_,
                  key, made.head_dim);
    }
  }
}

Architecture Reader::read() {
  const std::string type = model_type();
  json config = {{"model_type", type}};
  for (const Mapping& mapping : kMappings) {
    if (const json* found = own(mapping.key)) config[mapping.field] = scalar(mapping.key, *found);
  }
  auto embedding = header_.tensors.find("token_embd.weight");
  if (embedding == header_.tensors.end() || embedding->second.shape.size() != 2) {
    throw Error("{}: token_embd.weight is missing: a model needs its tensors to run", where_);
  }
  config["vocab_size"] = embedding->second.shape[1];
  if (type.starts_with("gemma3") == false) config.erase("rope_local_base_freq");
  if (!config.contains("num_key_value_heads") && config.contains("num_attention_heads")) {
    config["num_key_value_heads"] = config["num_attention_heads"];
  }
  if (!config.contains("head_dim") && !type.starts_with("gemma")) {
    const double heads = number("attention.head_count", 0), hidden = number("embedding_length", 0);
    if (heads > 0 && hidden > 0 && std::fmod(hidden, heads) == 0) {
      config["head_dim"] = int64_t(hidden / heads);
    }
  }
  if (json scaling = rope_scaling(); !scaling.empty()) config["rope_scaling"] = scaling;
  set_windows(config);
  if (type.starts_with("gemma")) set_gemma(config, type);
  const json* normalized = own("expert_weights_norm");
  config["norm_topk_prob"] = normalized && normalized->is_boolean() ? *normalized : json(true);
  if (type == "qwen3_moe") set_dense_layers(config);
  config["tie_word_embeddings"] = !tensor("output.weight");
  for (const char* name : {"blk.0.attn_output.bias", "blk.0.ffn_up.bias", "blk.0.ffn_down.bias"}) {
    if (tensor(name)) throw Error("{}: {} is not executed by the engine", where_, name);
  }
  Architecture made = architecture_from_config(config, where_);
  check_head_sizes(made);
  made.norm_plus_one = false;
  made.qkv_bias =
      tensor("blk.0.attn_q.bias") || tensor("blk.0.attn_k.bias") || tensor("blk.0.attn_v.bias");
  config = json::object();
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    if (const json* id = value(key)) config["eos_token_id"] = *id;
    add_generation_config(made, config, where_);
  }
  if (const json* id = value("tokenizer.ggml.bos_token_id")) config["bos_token_id"] = *id;
  add_generation_config(made, config, where_);
  return made;
}

}  // namespace

Architecture architecture_from_gguf(const GgufHeader& header, const std::string& where) {
  return Reader(header, where).read();
}

}  // namespace ridge
