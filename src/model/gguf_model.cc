// From a GGUF header to a Model: the metadata becomes a Hugging Face config (gguf_config.h), which
// read_config reads. The tensors then give each matrix its format and biases and the file its
// bytes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/config_build.h"
#include "model/gguf.h"
#include "model/gguf_config.h"
#include "model/read.h"

namespace ridge {

namespace {

using nlohmann::json;

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

// A config says of q, k and v together whether they have biases, and often of the output as well.
void set_bias(const GgufHeader& header, Linear& linear, int layer) {
  if (linear.stage != Stage::mixer_in && linear.stage != Stage::mixer_out) return;
  const std::vector<std::string> names = tensor_names(linear);
  linear.bias = std::any_of(names.begin(), names.end(), [&](const std::string& name) {
    return header.tensors.contains(fmt::format("blk.{}.{}.bias", layer, name));
  });
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
      if (layer.mixer.kind == MixerKind::attention) set_bias(header, linear, int(i));
    }
    append_layer(model, std::move(layer));
  }
}

void check_tensors(const GgufMetadata& metadata) {
  const auto& tensors = metadata.header().tensors;
  const auto embedding = tensors.find("token_embd.weight");
  if (embedding == tensors.end() || embedding->second.shape.size() != 2) {
    throw Error("{}: token_embd.weight is missing: a model needs its tensors to run",
                metadata.where());
  }
  const bool gpt_oss = metadata.architecture() == "gpt-oss";
  for (const char* name : {"blk.0.attn_output.bias", "blk.0.ffn_up.bias", "blk.0.ffn_down.bias"}) {
    if (metadata.tensor(name) && !gpt_oss) {
      throw Error("{}: {} is not executed by the engine", metadata.where(), name);
    }
  }
}

void check_head_sizes(const Execution& made, const Mixer& mixer, const GgufMetadata& metadata) {
  if (mixer.kind == MixerKind::mla) return;  // the config was made from them
  const auto check = [&](const char* key, int expected) {
    if (metadata.number(key, expected) != expected) {
      throw Error("{}: {}.{} is not {}, which is not executed", metadata.where(),
                  metadata.architecture(), key, expected);
    }
  };
  check("attention.key_length", mixer.head_dim);
  check("attention.value_length", mixer.head_dim);
  check("rope.dimension_count", made.ropes[0].dims());
}

// The factors are tensors, which load_weights applies.
void set_long_rope(Execution& made, const GgufMetadata& metadata) {
  const double original = metadata.number("rope.scaling.original_context_length", 0);
  const double magnitude = metadata.number("rope.scaling.attn_factor", 1);
  if (!(original >= 0 && original < 1e9) || !(magnitude >= 1e-6 && magnitude <= 1e6)) {
    throw Error("{}: {}.rope.scaling is out of range", metadata.where(), metadata.architecture());
  }
  made.ropes[0].original_context = int(original);
  made.ropes[0].magnitude = float(magnitude);
}

void add_token_ids(Execution& made, const GgufMetadata& metadata) {
  json config = json::object();
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    if (const json* id = metadata.value(key)) config["eos_token_id"] = *id;
    add_generation_config(made, config, metadata.where());
  }
  if (const json* id = metadata.value("tokenizer.ggml.bos_token_id")) config["bos_token_id"] = *id;
  add_generation_config(made, config, metadata.where());
}

// What llama.cpp stores or computes in another way than transformers.
void complete_execution(Execution& made, const Model& model, const GgufMetadata& metadata) {
  check_tensors(metadata);
  check_head_sizes(made, model.groups[0].layer.mixer, metadata);
  if (made.norm_plus_one) {  // Gemma: files store 1 + w, and llama.cpp keeps this scale in f32
    made.norm_plus_one = false;
    made.embed_scale = float(std::sqrt(double(model.hidden)));
  }
  if (made.family == "phi3") set_long_rope(made, metadata);
  add_token_ids(made, metadata);
}

}  // namespace

Model model_from_gguf_header(const GgufHeader& header, const std::string& where) {
  const GgufMetadata metadata(header, where);
  const TensorFacts facts{
      [&](Model& model) {
        if (metadata.has_tensors()) set_formats(model, header);
      },
      [&](Execution& made, const Model& model) { complete_execution(made, model, metadata); }};
  Model model = read_config(config_from_gguf(metadata), where, facts);
  auto name = header.values.find("general.name");
  if (name != header.values.end() && name->second.is_string()) {
    model.title = name->second.get<std::string>().substr(0, 200);
  }
  model.kv_format = format_from_name("fp16");
  if (header.tensors.empty()) {
    model.notes.push_back("the file holds no tensors: bytes are those of 16-bit weights");
    return model;
  }
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
