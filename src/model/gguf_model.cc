// From a GGUF header to a Model: the metadata becomes a Hugging Face config (gguf_config.h), which
// model_from_config reads. The tensors then give each matrix its format and the file its bytes.
#include <fmt/format.h>

#include <cmath>

#include "model/config_build.h"
#include "model/gguf.h"
#include "model/gguf_config.h"
#include "model/read.h"

namespace ridge {

namespace {

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
  Model model = model_from_config(config_from_gguf(GgufMetadata(header, where)), where);
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
