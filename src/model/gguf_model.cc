// From a GGUF header to a Model: its metadata is written as a Hugging Face config, which the one
// reader understands; its tensors then give each matrix its format and the file its bytes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "model/config_build.h"
#include "model/gguf.h"
#include "model/read.h"

namespace ridge {

namespace {

using nlohmann::json;

struct Architecture {
  const char* gguf;
  const char* model_type;
};

constexpr Architecture kArchitectures[] = {
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
    {"attention.sliding_window", "sliding_window"},
    {"attention.kv_lora_rank", "kv_lora_rank"},
    {"attention.q_lora_rank", "q_lora_rank"},
    {"expert_count", "num_experts"},
    {"expert_used_count", "num_experts_per_tok"},
    {"expert_feed_forward_length", "moe_intermediate_size"},
    {"expert_shared_count", "n_shared_experts"},
    {"expert_shared_feed_forward_length", "shared_expert_intermediate_size"},
    {"leading_dense_block_count", "first_k_dense_replace"},
    {"nextn_predict_layers", "num_nextn_predict_layers"},
};

class Translation {
 public:
  Translation(const GgufHeader& header, const std::string& where) : header_(header), where_(where) {
    const json* name = value("general.architecture");
    if (name == nullptr || !name->is_string()) {
      throw Error("{}: general.architecture is missing", where);
    }
    architecture_ = name->get<std::string>();
  }

  json config();

 private:
  const json* value(std::string_view key) const {
    auto found = header_.values.find(key);
    return found == header_.values.end() ? nullptr : &found->second;
  }
  const json* own(const char* key) const { return value(architecture_ + "." + key); }
  bool tensor(const char* name) const { return header_.tensors.contains(name); }

  // A list with one figure a layer becomes that figure where all agree.
  json scalar(const char* key, const json& found) const {
    if (!found.is_array()) return found;
    bool same = !found.empty() && std::all_of(found.begin(), found.end(),
                                              [&](const json& each) { return each == found[0]; });
    if (!same) {
      throw Error("{}: {}.{} differs between layers, which is not supported", where_, architecture_,
                  key);
    }
    return found[0];
  }

  int64_t vocabulary() const;
  void set_mla(json& config) const;
  void set_flags(json& config) const;

  const GgufHeader& header_;
  const std::string& where_;
  std::string architecture_;
};

int64_t Translation::vocabulary() const {
  auto embedding = header_.tensors.find("token_embd.weight");
  if (embedding != header_.tensors.end() && embedding->second.shape.size() == 2) {
    return embedding->second.shape[1];
  }
  if (const json* size = own("vocab_size"); size && size->is_number_integer()) {
    return size->get<int64_t>();
  }
  auto tokens = header_.arrays.find("tokenizer.ggml.tokens");
  if (tokens == header_.arrays.end()) {
    throw Error("{}: neither token_embd.weight nor {}.vocab_size gives the vocabulary", where_,
                architecture_);
  }
  return int64_t(std::min<uint64_t>(tokens->second.count, INT64_MAX));
}

// Newer files state the heads' own lengths beside those of the compressed cache.
void Translation::set_mla(json& config) const {
  auto integer = [&](const char* key) -> int64_t {
    const json* found = own(key);
    if (found == nullptr || !found->is_number_integer()) {
      throw Error("{}: {}.{} is missing", where_, architecture_, key);
    }
    return found->get<int64_t>();
  };
  bool newer = own("attention.key_length_mla") != nullptr;
  int64_t key = integer(newer ? "attention.key_length_mla" : "attention.key_length");
  int64_t rope = integer("rope.dimension_count");
  if (rope < 0 || key <= rope) {
    throw Error("{}: {}.rope.dimension_count must be below the key length", where_, architecture_);
  }
  config["qk_rope_head_dim"] = rope;
  config["qk_nope_head_dim"] = key - rope;
  config["v_head_dim"] = integer(newer ? "attention.value_length_mla" : "attention.value_length");
  config.erase("head_dim");
  config.erase("num_key_value_heads");
}

// What the tensors tell better than any default.
void Translation::set_flags(json& config) const {
  if (header_.tensors.empty()) return;
  config["tie_word_embeddings"] = !tensor("output.weight");
  bool attention = tensor("blk.0.attn_q.bias") || tensor("blk.0.attn_qkv.bias");
  bool mlp = tensor("blk.0.ffn_up.bias");
  config["attention_bias"] = config["qkv_bias"] = config["use_qkv_bias"] = attention;
  config["bias"] = config["use_bias"] = attention;
  config["mlp_bias"] = mlp;
  config["attention_out_bias"] = tensor("blk.0.attn_output.bias");
  config["use_qk_norm"] = config["qk_layernorm"] = tensor("blk.0.attn_q_norm.weight");
  // Two norms feed a layer unless attention and MLP share one.
  config["use_parallel_residual"] =
      !tensor("blk.0.ffn_norm.weight") && !tensor("blk.0.post_attention_norm.weight");
  config["new_decoder_architecture"] = tensor("blk.0.attn_norm_2.weight");
}

json Translation::config() {
  const Architecture* known =
      std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                   [&](const Architecture& each) { return architecture_ == each.gguf; });
  if (known == std::end(kArchitectures)) {
    std::vector<std::string> names;
    for (const Architecture& each : kArchitectures) names.emplace_back(each.gguf);
    auto near = nearest_names(architecture_, names, 1);
    throw Error("{}: general.architecture \"{}\" is not known{}", where_,
                architecture_.substr(0, 80), near.empty() ? "" : ": did you mean " + near[0] + "?");
  }
  json config = {{"model_type", known->model_type}, {"torch_dtype", "float16"}};
  for (const Mapping& mapping : kMappings) {
    if (const json* found = own(mapping.key)) config[mapping.field] = scalar(mapping.key, *found);
  }
  config["vocab_size"] = vocabulary();
  set_flags(config);
  std::string type = known->model_type;
  if (type == "llama" && config.value("num_experts", json(0)) != json(0)) {
    config["model_type"] = "mixtral";
  }
  if (type == "deepseek_v2") set_mla(config);
  if (type == "deepseek_v2" || type == "glm4_moe" || type == "dots1") {
    config["n_routed_experts"] = config.value("num_experts", json(0));
  }
  if (type == "falcon") {
    config["num_kv_heads"] = config.value("num_key_value_heads", json(1));
  }
  if (type == "gpt_oss") {
    // Every other layer slides; the metadata gives only the window.
    json types = json::array();
    const json& layers = config["num_hidden_layers"];
    if (layers.is_number_integer() && layers > 0 && layers <= kMaxLayers) {
      for (int64_t i = 0; i < layers.get<int64_t>(); ++i) {
        types.push_back(i % 2 == 0 ? "sliding_attention" : "full_attention");
      }
    }
    config["layer_types"] = types;
  }
  return config;
}

// The tensors that may hold one of our matrices: its own, or one fused with its neighbours.
std::vector<std::string> tensor_names(const Linear& linear) {
  struct Names {
    const char* ours;
    std::vector<std::string> theirs;
  };
  static const std::vector<Names> kNames = {
      {"q_proj", {"attn_q", "attn_qkv"}},
      {"k_proj", {"attn_k", "attn_qkv"}},
      {"v_proj", {"attn_v", "attn_qkv"}},
      {"o_proj", {"attn_output"}},
      {"q_a_proj", {"attn_q_a"}},
      {"q_b_proj", {"attn_q_b"}},
      {"kv_a_proj_with_mqa", {"attn_kv_a_mqa"}},
      {"kv_b_proj", {"attn_kv_b", "attn_k_b"}},
      {"router", {"ffn_gate_inp"}},
      {"experts.gate_proj", {"ffn_gate_exps", "ffn_gate.0"}},
      {"experts.up_proj", {"ffn_up_exps", "ffn_up.0"}},
      {"experts.down_proj", {"ffn_down_exps", "ffn_down.0"}},
      {"shared.gate_proj", {"ffn_gate_shexp"}},
      {"shared.up_proj", {"ffn_up_shexp"}},
      {"shared.down_proj", {"ffn_down_shexp"}},
      {"gate_proj", {"ffn_gate", "ffn_up"}},
      {"up_proj", {"ffn_up"}},
      {"down_proj", {"ffn_down"}},
  };
  for (const Names& names : kNames) {
    if (linear.name == names.ours) return names.theirs;
  }
  return {};
}

const Format* stored_format(const GgufHeader& header, const Linear& linear, int layer) {
  for (const std::string& name : tensor_names(linear)) {
    auto found = header.tensors.find(fmt::format("blk.{}.{}.weight", layer, name));
    if (found != header.tensors.end()) return &found->second.format;
  }
  return nullptr;
}

void set_formats(Model& model, const GgufHeader& header) {
  auto format_of = [&header](const char* name, Format& format) {
    auto found = header.tensors.find(name);
    if (found != header.tensors.end()) format = found->second.format;
  };
  format_of("token_embd.weight", model.embed_format);
  model.head.format = model.embed_format;
  format_of("output.weight", model.head.format);
  if (auto norm = header.tensors.find("output_norm.weight"); norm != header.tensors.end()) {
    model.other_format = norm->second.format;
  }
  // Layers alike in shape may differ in format, so groups are made anew.
  std::vector<LayerGroup> groups = std::move(model.groups);
  std::vector<uint16_t> order = std::move(model.order);
  model.groups.clear();
  model.order.clear();
  for (size_t i = 0; i < order.size(); ++i) {
    Layer layer = groups[order[i]].layer;
    for (Linear& linear : layer.linears) {
      if (const Format* format = stored_format(header, linear, int(i))) linear.format = *format;
    }
    append_layer(model, std::move(layer));
  }
}

}  // namespace

Model model_from_gguf_header(const GgufHeader& header, const std::string& where) {
  Model model = model_from_config(Translation(header, where).config(), where);
  auto name = header.values.find("general.name");
  if (name != header.values.end() && name->second.is_string()) {
    model.title = name->second.get<std::string>().substr(0, 200);
  }
  model.kv_format = format_from_name("fp16");
  if (header.tensors.empty()) {
    model.notes.push_back("the file holds no tensors: bytes are those of 16-bit weights");
    return model;
  }
  set_formats(model, header);
  model.exact_weight_bytes = double(header.tensor_bytes);
  double stored = 0;
  for (const auto& [key, tensor] : header.tensors) stored += tensor.elements;
  double expected = parameters(model);
  if (std::abs(stored - expected) > 0.02 * expected) {
    model.notes.push_back(fmt::format("tensors hold {:.4g} parameters, the metadata implies {:.4g}",
                                      stored, expected));
  }
  return model;
}

}  // namespace ridge
