#include "model/gguf_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "model/config_fields.h"

namespace ridge {

namespace {

using nlohmann::json;

struct KnownArchitecture {
  const char* gguf;
  const char* model_type;
};

constexpr KnownArchitecture kArchitectures[] = {
    {"llama", "llama"},
    {"qwen2", "qwen2"},
    {"qwen2moe", "qwen2_moe"},
    {"qwen3", "qwen3"},
    {"qwen3moe", "qwen3_moe"},
    {"gemma", "gemma"},
    {"gemma2", "gemma2"},
    {"gemma3", "gemma3_text"},
    {"phi2", "phi"},
    {"phi3", "phi3"},
    {"deepseek", "deepseek"},
    {"deepseek2", "deepseek_v2"},
    {"gpt-oss", "gpt_oss"},
    {"glm4", "glm4"},
    {"glm4moe", "glm4_moe"},
    {"command-r", "cohere"},
    {"cohere2", "cohere2"},
    {"starcoder2", "starcoder2"},
    {"nemotron", "nemotron"},
    {"gpt2", "gpt2"},
    {"gptneox", "gpt_neox"},
    {"bloom", "bloom"},
    {"falcon", "falcon"},
    {"stablelm", "stablelm"},
    {"olmo2", "olmo2"},
    {"olmoe", "olmoe"},
    {"granite", "granite"},
    {"granitemoe", "granitemoe"},
    {"internlm2", "internlm2"},
    {"exaone", "exaone"},
    {"exaone4", "exaone4"},
    {"smollm3", "smollm3"},
    {"minimax-m2", "minimax_m2"},
    {"dots1", "dots1"},
    {"seed_oss", "seed_oss"},
    {"arcee", "arcee"},
    {"apertus", "apertus"},
    {"ernie4_5", "ernie4_5"},
    {"baichuan", "baichuan"},
    {"mistral3", "ministral3"},
};

// Metadata keys of an architecture and the config fields they become.
struct Mapping {
  const char* key;  // after "llama."
  const char* field;
};

constexpr Mapping kMappings[] = {
    {"block_count", "num_hidden_layers"},
    {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"},
    {"context_length", "max_position_embeddings"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attention.sliding_window", "sliding_window"},
    {"attention.kv_lora_rank", "kv_lora_rank"},
    {"attention.q_lora_rank", "q_lora_rank"},
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
    {"expert_weights_scale", "routed_scaling_factor"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {"nextn_predict_layers", "num_nextn_predict_layers"},
    {"rope.freq_base", "rope_theta"},
    {"rope.freq_base_swa", "rope_local_base_freq"},
};

constexpr double kSoftmaxGate = 1, kSigmoidGate = 2;  // expert_gating_func

class Translation {
 public:
  explicit Translation(const GgufMetadata& metadata)
      : metadata_(metadata), where_(metadata.where()), architecture_(metadata.architecture()) {}

  json config();

 private:
  const json* own(std::string_view key) const { return metadata_.own(key); }
  bool tensor(std::string_view name) const { return metadata_.tensor(name); }

  json scalar(const char* key, const json& found) const;
  std::string model_type() const;
  int64_t vocabulary() const;
  // Of the config made so far; 0: unknown or absurd.
  int64_t layers() const;
  double field(const char* name) const;

  void set_flags();
  void set_heads();
  void set_mla();
  void set_windows();
  void set_rope();
  void set_gemma();
  void set_experts();
  void set_deepseek_experts();
  void set_dense_layers();
  bool is_mla() const { return type_ == "deepseek_v2" || type_ == "deepseek_v3"; }

  const GgufMetadata& metadata_;
  const std::string& where_;
  const std::string& architecture_;
  std::string type_;
  json config_;
};

// A list with one figure per layer becomes that figure where all agree.
json Translation::scalar(const char* key, const json& found) const {
  if (!found.is_array()) return found;
  const bool same =
      !found.empty() &&
      std::all_of(found.begin(), found.end(), [&](const json& each) { return each == found[0]; });
  if (!same) {
    throw Error("{}: {}.{} differs between layers, which is not supported", where_, architecture_,
                key);
  }
  return found[0];
}

std::string Translation::model_type() const {
  const auto* known =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                   [&](const KnownArchitecture& each) { return architecture_ == each.gguf; });
  if (known != std::end(kArchitectures)) return known->model_type;
  std::vector<std::string> names;
  for (const KnownArchitecture& each : kArchitectures) names.emplace_back(each.gguf);
  const auto near = nearest_names(architecture_, names, 1);
  throw Error("{}: general.architecture \"{}\" is not known{}", where_, architecture_.substr(0, 80),
              near.empty() ? "" : ": did you mean " + near[0] + "?");
}

int64_t Translation::vocabulary() const {
  const GgufHeader& header = metadata_.header();
  const auto embedding = header.tensors.find("token_embd.weight");
  if (embedding != header.tensors.end() && embedding->second.shape.size() == 2) {
    return embedding->second.shape[1];
  }
  if (const json* size = own("vocab_size"); size && size->is_number_integer()) {
    return size->get<int64_t>();
  }
  const auto tokens = header.arrays.find("tokenizer.ggml.tokens");
  if (tokens == header.arrays.end()) {
    throw Error("{}: neither token_embd.weight nor {}.vocab_size gives the vocabulary", where_,
                architecture_);
  }
  return int64_t(std::min<uint64_t>(tokens->second.count, INT64_MAX));
}

int64_t Translation::layers() const {
  const auto found = config_.find("num_hidden_layers");
  const bool sane =
      found != config_.end() && found->is_number_integer() && *found >= 1 && *found <= kMaxLayers;
  return sane ? found->get<int64_t>() : 0;
}

double Translation::field(const char* name) const {
  const auto found = config_.find(name);
  return found != config_.end() && found->is_number() ? found->get<double>() : 0;
}

// What the tensors tell better than any default.
void Translation::set_flags() {
  if (!metadata_.has_tensors()) return;
  config_["tie_word_embeddings"] = !tensor("output.weight");
  const bool attention = tensor("blk.0.attn_q.bias") || tensor("blk.0.attn_qkv.bias");
  config_["attention_bias"] = config_["qkv_bias"] = config_["use_qkv_bias"] = attention;
  config_["bias"] = config_["use_bias"] = attention;
  config_["mlp_bias"] = tensor("blk.0.ffn_up.bias");
  config_["attention_out_bias"] = tensor("blk.0.attn_output.bias");
  config_["use_qk_norm"] = config_["qk_layernorm"] = tensor("blk.0.attn_q_norm.weight");
  // Two norms feed a layer unless attention and MLP share one.
  config_["use_parallel_residual"] =
      !tensor("blk.0.ffn_norm.weight") && !tensor("blk.0.post_attention_norm.weight");
  config_["new_decoder_architecture"] = tensor("blk.0.attn_norm_2.weight");
}

// As many KV heads as heads, and heads that divide the hidden size, where the file does not say.
void Translation::set_heads() {
  if (type_ == "falcon") config_["num_kv_heads"] = config_.value("num_key_value_heads", json(1));
  if (!config_.contains("num_key_value_heads") && config_.contains("num_attention_heads")) {
    config_["num_key_value_heads"] = config_["num_attention_heads"];
  }
  const double heads = field("num_attention_heads"), hidden = field("hidden_size");
  // The reader of configs refuses sizes beyond these bounds.
  const bool sane = heads >= 1 && hidden > 0 && hidden <= double(kMaxWidth);
  const bool divides = sane && std::fmod(hidden, heads) == 0;
  if (config_.contains("head_dim")) return;
  if (type_ == "gemma2" || type_ == "gemma3_text") {
    config_["head_dim"] = 256;
  } else if (divides) {
    config_["head_dim"] = int64_t(hidden / heads);
  }
}

// Newer files state the heads' own lengths beside those of the compressed cache.
void Translation::set_mla() {
  const auto integer = [&](const char* key) -> int64_t {
    const json* found = own(key);
    if (found == nullptr || !found->is_number_integer()) {
      throw Error("{}: {}.{} is missing", where_, architecture_, key);
    }
    return found->get<int64_t>();
  };
  const bool newer = own("attention.key_length_mla") != nullptr;
  const int64_t key = integer(newer ? "attention.key_length_mla" : "attention.key_length");
  const int64_t rope = integer("rope.dimension_count");
  if (rope < 0 || key <= rope) {
    throw Error("{}: {}.rope.dimension_count must be below the key length", where_, architecture_);
  }
  config_["qk_rope_head_dim"] = rope;
  config_["qk_nope_head_dim"] = key - rope;
  config_["v_head_dim"] = integer(newer ? "attention.value_length_mla" : "attention.value_length");
  config_.erase("head_dim");
  config_.erase("num_key_value_heads");
  if (!config_.contains("q_lora_rank")) config_["q_lora_rank"] = nullptr;  // V2-Lite has none
}

// Which layers slide. The file's pattern is a flag for each layer, or a number n: every n-th layer
// is full. Without a pattern the architecture decides; those not named here keep their config's
// default.
void Translation::set_windows() {
  int64_t period = 0;  // 0: every layer slides
  if (type_ == "gemma2" || type_ == "gpt_oss") {
    period = 2;
  } else if (type_ == "gemma3_text") {
    period = 6;
  } else if (type_ != "llama" && type_ != "mixtral" && type_ != "qwen2" && type_ != "qwen3" &&
             type_ != "qwen3_moe") {
    return;
  }
  const auto window = config_.find("sliding_window");
  if (window == config_.end() || *window == json(0)) {
    config_["sliding_window"] = nullptr;  // null means none; left out it would be the default
    return;
  }
  config_["use_sliding_window"] = true;
  const json* pattern = own("attention.sliding_window_pattern");
  if (pattern && pattern->is_number_integer()) {
    period = Fields(json{{"n", *pattern}}, where_).integer({"n"}, 0, kMaxLayers);
  }
  const auto count = size_t(layers());
  if (pattern && pattern->is_array() && count > 0 && pattern->size() != count) {
    throw Error("{}: {}.attention.sliding_window_pattern has {} entries for {} layers", where_,
                architecture_, pattern->size(), count);
  }
  json types = json::array();
  for (size_t i = 0; i < count; ++i) {
    bool slides = period == 0 || (int64_t(i) + 1) % period != 0;
    if (pattern && pattern->is_array()) {
      slides = (*pattern)[i] != json(false) && (*pattern)[i] != json(0);
    }
    types.push_back(slides ? "sliding_attention" : "full_attention");
  }
  if (count > 0) config_["layer_types"] = types;
}

void Translation::set_rope() {
  if (type_ != "gemma3_text") config_.erase("rope_local_base_freq");
  const double dims = metadata_.number("rope.dimension_count", 0), head = field("head_dim");
  if ((type_ == "phi3" || type_ == "glm4") && dims > 0 && head >= dims) {
    config_["partial_rotary_factor"] = dims / head;
  }
  std::string kind = "none";
  const json* given = own("rope.scaling.type");
  if (given && given->is_string()) kind = *given;
  const double factor =
      metadata_.number("rope.scaling.factor", metadata_.number("rope.scale_linear", 0));
  if (given == nullptr && factor > 0) kind = "linear";
  // longrope's factors are tensors.
  if (kind == "none" || kind == "longrope" || (factor <= 0 && kind == "linear")) return;
  json scaling = {{"rope_type", kind}, {"factor", factor > 0 ? factor : 1}};
  if (kind == "yarn") {
    if (const json* context = own("rope.scaling.original_context_length")) {
      scaling["original_max_position_embeddings"] = *context;
    }
    const double magnitude = factor <= 1 ? 1 : 0.1 * std::log(factor) + 1;
    const double given_factor = metadata_.number("rope.scaling.attn_factor", 1);
    if (is_mla()) {
      // DeepSeek applies yarn's magnitude to the scale of the softmax, not to rotated values.
      scaling["attention_factor"] = given_factor;
      scaling["mscale_all_dim"] = 10 * metadata_.number("rope.scaling.yarn_log_multiplier", 0);
    } else {
      scaling["attention_factor"] = given_factor * magnitude;
    }
    scaling["beta_fast"] = metadata_.number("rope.scaling.yarn_beta_fast", 32);
    scaling["beta_slow"] = metadata_.number("rope.scaling.yarn_beta_slow", 1);
    if (type_ == "gpt_oss") scaling["truncate"] = false;  // as it was trained
  }
  config_["rope_scaling"] = scaling;
}

// llama.cpp scales queries by the key length, and by hidden / heads for the 27B models, which it
// recognises by their number of layers. `attention.scale` is written by Ridge, for models that are
// neither.
void Translation::set_gemma() {
  for (const char* key : {"attn_logit_softcapping", "final_logit_softcapping"}) {
    if (const json* found = own(key)) config_[key] = *found;
  }
  const double heads = field("num_attention_heads"), hidden = field("hidden_size");
  double scalar = metadata_.number("attention.key_length", 256);
  if (layers() == (type_ == "gemma2" ? 46 : 62) && heads > 0) scalar = hidden / heads;
  const double scale = metadata_.number("attention.scale", 0);
  if (scale > 0) scalar = 1 / (scale * scale);
  if (!(scalar > 0) || !std::isfinite(scalar)) {
    throw Error("{}: {}.attention.key_length must be positive", where_, architecture_);
  }
  config_["query_pre_attn_scalar"] = scalar;
}

void Translation::set_experts() {
  if (is_mla() || type_ == "glm4_moe" || type_ == "dots1") {
    config_["n_routed_experts"] = config_.value("num_experts", json(0));
  }
  const json* normalized = own("expert_weights_norm");
  const json usual = !is_mla();
  config_["norm_topk_prob"] = normalized && normalized->is_boolean() ? *normalized : usual;
  if (is_mla()) set_deepseek_experts();
  if (type_ == "qwen3_moe" && metadata_.has_tensors()) set_dense_layers();
}

// llama.cpp's values of what a file of DeepSeek does not say: no groups, no scale, no dense layers.
void Translation::set_deepseek_experts() {
  if (field("routed_scaling_factor") == 0) config_["routed_scaling_factor"] = 1.0;
  if (!config_.contains("first_k_dense_replace")) config_["first_k_dense_replace"] = 0;
  const double gate = metadata_.number("expert_gating_func", 0);
  if (gate != 0 && gate != kSoftmaxGate && gate != kSigmoidGate) {
    throw Error("{}: {}.expert_gating_func {} is not supported", where_, architecture_, gate);
  }
  const json* groups = own("expert_group_count");
  const json* used = own("expert_group_used_count");
  const bool grouped = groups && used && groups->is_number_integer() && *groups > json(1);
  config_["n_group"] = grouped ? *groups : json(1);
  config_["topk_group"] = grouped ? *used : json(1);
  if (type_ == "deepseek_v2") {
    config_["topk_method"] = grouped ? "group_limited_greedy" : "greedy";
  }
}

// Layers without a router have one MLP for all tokens.
void Translation::set_dense_layers() {
  json dense = json::array();
  for (int64_t i = 0; i < layers(); ++i) {
    if (!tensor(fmt::format("blk.{}.ffn_gate_inp.weight", i))) dense.push_back(i);
  }
  config_["mlp_only_layers"] = dense;
}

json Translation::config() {
  type_ = model_type();
  config_ = {{"torch_dtype", "float16"}};
  for (const Mapping& mapping : kMappings) {
    if (const json* found = own(mapping.key)) config_[mapping.field] = scalar(mapping.key, *found);
  }
  if (type_ == "llama" && config_.value("num_experts", json(0)) != json(0)) type_ = "mixtral";
  if (type_ == "deepseek_v2" && metadata_.number("expert_gating_func", 0) == kSigmoidGate) {
    type_ = "deepseek_v3";
  }
  config_["model_type"] = type_;
  config_["vocab_size"] = vocabulary();
  set_flags();
  set_heads();
  if (is_mla()) set_mla();
  set_windows();
  set_rope();
  if (type_ == "gemma2" || type_ == "gemma3_text") set_gemma();
  set_experts();
  return std::move(config_);
}

}  // namespace

GgufMetadata::GgufMetadata(const GgufHeader& header, const std::string& where)
    : header_(header), where_(where) {
  const json* name = value("general.architecture");
  if (name == nullptr || !name->is_string()) {
    throw Error("{}: general.architecture is missing", where);
  }
  architecture_ = name->get<std::string>();
}

const json* GgufMetadata::value(std::string_view key) const {
  const auto found = header_.values.find(key);
  return found == header_.values.end() ? nullptr : &found->second;
}

const json* GgufMetadata::own(std::string_view key) const {
  return value(fmt::format("{}.{}", architecture_, key));
}

double GgufMetadata::number(std::string_view key, double otherwise) const {
  const json* found = own(key);
  if (found == nullptr) return otherwise;
  if (!found->is_number()) throw Error("{}: {}.{} must be a number", where_, architecture_, key);
  return found->get<double>();
}

json config_from_gguf(const GgufMetadata& metadata) { return Translation(metadata).config(); }

}  // namespace ridge
