#include "engine/weights/load_parts.h"

#include <fmt/format.h>

#include <array>
#include <cassert>
#include <string_view>

#include "model/config_build.h"

namespace ridge {

namespace {

struct Names {
  std::string_view gguf, hugging_face;
  std::string_view variant = {};  // name in Gemma (norms) or Mixtral (experts), where it differs
};

constexpr std::array<Names, size_t(TensorRole::kCount)> kNames = {{
    {"token_embd.weight", "embed_tokens.weight"},
    {"output.weight", "lm_head.weight"},
    {"output_norm.weight", "norm.weight"},
    {"attn_norm.weight", "input_layernorm.weight"},
    {"post_attention_norm.weight", "post_attention_layernorm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight", "pre_feedforward_layernorm.weight"},
    {"post_ffw_norm.weight", "post_feedforward_layernorm.weight"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"ffn_gate_inp.weight", "mlp.gate.weight", "block_sparse_moe.gate.weight"},
    {"ffn_gate_exps.weight", "mlp.experts.{}.gate_proj.weight",
     "block_sparse_moe.experts.{}.w1.weight"},
    {"ffn_up_exps.weight", "mlp.experts.{}.up_proj.weight",
     "block_sparse_moe.experts.{}.w3.weight"},
    {"ffn_down_exps.weight", "mlp.experts.{}.down_proj.weight",
     "block_sparse_moe.experts.{}.w2.weight"},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"attn_sinks.weight", "self_attn.sinks"},
    {"ffn_gate_inp.bias", "mlp.router.bias"},
    {"ffn_gate_exps.bias", "mlp.experts.gate_up_proj_bias"},
    {"ffn_up_exps.bias", "mlp.experts.gate_up_proj_bias"},
    {"ffn_down_exps.bias", "mlp.experts.down_proj_bias"},
    {"attn_q_a.weight", "self_attn.q_a_proj.weight"},
    {"attn_q_a_norm.weight", "self_attn.q_a_layernorm.weight"},
    {"attn_kv_a_mqa.weight", "self_attn.kv_a_proj_with_mqa.weight"},
    {"attn_kv_a_norm.weight", "self_attn.kv_a_layernorm.weight"},
    {"attn_kv_b.weight", "self_attn.kv_b_proj.weight"},
    {"exp_probs_b.bias", "mlp.gate.e_score_correction_bias"},
    {"ffn_gate_shexp.weight", "mlp.shared_experts.gate_proj.weight"},
    {"ffn_up_shexp.weight", "mlp.shared_experts.up_proj.weight"},
    {"ffn_down_shexp.weight", "mlp.shared_experts.down_proj.weight"},
}};

// Llama 4: "feed_forward" for "mlp", one shared expert, and a router of that name.
std::string llama4_name(std::string name) {
  if (!name.starts_with("mlp.")) return name;
  name.replace(0, std::string_view("mlp").size(), "feed_forward");
  for (const auto& [ours, theirs] :
       {std::pair{".shared_experts.", ".shared_expert."}, {".gate.weight", ".router.weight"}}) {
    if (const size_t at = name.find(ours); at != std::string::npos) {
      name.replace(at, std::string_view(ours).size(), theirs);
    }
  }
  return name;
}

// W is Weights or const Weights.
template <typename W, typename S>
class Lister {
 public:
  explicit Lister(W& weights) : weights_(weights), shape_(weights.architecture) {}

  std::vector<S> list() {
    add(TensorRole::embed, weights_.embed, shape_.vocab, shape_.hidden);
    for (int i = 0; i < shape_.layer_count(); ++i) {
      layer_ = i;
      add_layer(weights_.layers[size_t(i)], shape_.layers[size_t(i)].moe);
    }
    layer_ = -1;
    add(TensorRole::final_norm, weights_.final_norm, shape_.hidden);
    if (!shape_.tied) add(TensorRole::head, weights_.head, shape_.vocab, shape_.hidden);
    return std::move(slots_);
  }

 private:
  template <typename M>
  void add(TensorRole role, M& matrix, int64_t rows, int64_t columns, int expert = -1) {
    slots_.push_back({role, layer_, expert, rows, columns, &matrix, nullptr});
  }
  template <typename V>
  void add(TensorRole role, V& vector, int64_t count) {
    slots_.push_back({role, layer_, -1, count, 0, nullptr, &vector});
  }
  template <typename V>
  void add_bias(TensorRole role, V& vector, int64_t count, int expert) {
    slots_.push_back({role, layer_, expert, count, 0, nullptr, &vector});
  }

  template <typename L>
  void add_layer(L& layer, bool moe) {
    const int64_t hidden = shape_.hidden, q = shape_.q_columns(), kv = shape_.kv_columns();
    add(TensorRole::attn_norm, layer.attn_norm, hidden);
    if (shape_.latent) {
      add_latents(layer);
    } else {
      add(TensorRole::q, layer.q, q, hidden);
      add(TensorRole::k, layer.k, kv, hidden);
      add(TensorRole::v, layer.v, kv, hidden);
    }
    add(TensorRole::out, layer.out, hidden, shape_.out_columns());
    if (shape_.qkv_bias) {
      add(TensorRole::q_bias, layer.q_bias, q);
      add(TensorRole::k_bias, layer.k_bias, kv);
      add(TensorRole::v_bias, layer.v_bias, kv);
    }
    if (shape_.out_bias) add(TensorRole::out_bias, layer.out_bias, hidden);
    if (shape_.sinks) add(TensorRole::sinks, layer.sinks, shape_.heads);
    if (shape_.qk_norm) {
      add(TensorRole::q_norm, layer.q_norm, shape_.head_dim);
      add(TensorRole::k_norm, layer.k_norm, shape_.head_dim);
    }
    if (shape_.post_norms) add(TensorRole::post_attn_norm, layer.post_attn_norm, hidden);
    add(TensorRole::mlp_norm, layer.mlp_norm, hidden);
    if (moe) {
      add(TensorRole::router, layer.router, shape_.experts, hidden);
      add_experts(TensorRole::expert_gate, layer.expert_gate, shape_.expert_ffn, hidden);
      add_experts(TensorRole::expert_up, layer.expert_up, shape_.expert_ffn, hidden);
      add_experts(TensorRole::expert_down, layer.expert_down, hidden, shape_.expert_ffn);
      if (shape_.expert_bias) add_expert_biases(layer);
      if (shape_.routing.correction) {
        add(TensorRole::router_correction, layer.router_correction, shape_.experts);
      }
      if (shape_.shared_ffn > 0) {
        add(TensorRole::shared_gate, layer.shared_gate, shape_.shared_ffn, hidden);
        add(TensorRole::shared_up, layer.shared_up, shape_.shared_ffn, hidden);
        add(TensorRole::shared_down, layer.shared_down, hidden, shape_.shared_ffn);
      }
    } else {
      add(TensorRole::gate, layer.gate, shape_.ffn, hidden);
      add(TensorRole::up, layer.up, shape_.ffn, hidden);
      add(TensorRole::down, layer.down, hidden, shape_.ffn);
    }
    if (shape_.post_norms) add(TensorRole::post_mlp_norm, layer.post_mlp_norm, hidden);
  }

  template <typename L>
  void add_latents(L& layer) {
    const LatentAttention& latent = shape_.latent;
    const int64_t heads = shape_.heads;
    if (latent.q_rank > 0) {
      add(TensorRole::q_a, layer.q_a, latent.q_rank, shape_.hidden);
      add(TensorRole::q_a_norm, layer.q_a_norm, latent.q_rank);
    }
    add(TensorRole::q, layer.q, shape_.q_rows(), latent.q_rank > 0 ? latent.q_rank : shape_.hidden);
    add(TensorRole::kv_a, layer.kv_a, shape_.kv_columns(), shape_.hidden);
    add(TensorRole::kv_a_norm, layer.kv_a_norm, latent.kv_rank);
    add(TensorRole::kv_b, layer.kv_b, heads * (latent.nope + latent.value), latent.kv_rank);
  }

  template <typename E>
  void add_experts(TensorRole role, E& experts, int64_t rows, int64_t columns) {
    assert(int(experts.size()) == shape_.experts);
    for (size_t e = 0; e < experts.size(); ++e) add(role, experts[e], rows, columns, int(e));
  }

  template <typename L>
  void add_expert_biases(L& layer) {
    add(TensorRole::router_bias, layer.router_bias, shape_.experts);
    for (size_t e = 0; e < layer.expert_bias.size(); ++e) {
      auto& bias = layer.expert_bias[e];
      add_bias(TensorRole::expert_gate_bias, bias.gate, shape_.expert_ffn, int(e));
      add_bias(TensorRole::expert_up_bias, bias.up, shape_.expert_ffn, int(e));
      add_bias(TensorRole::expert_down_bias, bias.down, shape_.hidden, int(e));
    }
  }

  W& weights_;
  const Architecture& shape_;
  std::vector<S> slots_;
  int layer_ = -1;
};

const Matrix* matrix_of(const LayerWeights& layer, const std::string& linear) {
  struct Entry {
    std::string_view name;
    const Matrix* matrix;
  };
  auto first = [](const std::vector<Matrix>& experts) {
    return experts.empty() ? nullptr : &experts[0];
  };
  const Entry entries[] = {{"q_proj", &layer.q},
                           {"q_a_proj", &layer.q_a},
                           {"q_b_proj", &layer.q},
                           {"kv_a_proj_with_mqa", &layer.kv_a},
                           {"kv_b_proj", &layer.kv_b},
                           {"k_proj", &layer.k},
                           {"v_proj", &layer.v},
                           {"o_proj", &layer.out},
                           {"gate_proj", &layer.gate},
                           {"up_proj", &layer.up},
                           {"down_proj", &layer.down},
                           {"router", &layer.router},
                           {"shared.gate_proj", &layer.shared_gate},
                           {"shared.up_proj", &layer.shared_up},
                           {"shared.down_proj", &layer.shared_down},
                           {"experts.gate_proj", first(layer.expert_gate)},
                           {"experts.up_proj", first(layer.expert_up)},
                           {"experts.down_proj", first(layer.expert_down)}};
  for (const Entry& entry : entries) {
    if (linear == entry.name && entry.matrix && *entry.matrix) return entry.matrix;
  }
  return nullptr;
}

Format format_of(const Matrix& matrix) {
  Format format = format_from_name(storage_info(matrix.storage).name);
  format.bits = storage_info(matrix.storage).bits();  // of fp8: its scales counted
  return format;
}

}  // namespace

std::vector<Slot> make_slots(Weights& weights) {
  const Architecture& shape = weights.architecture;
  weights.layers.assign(shape.layers.size(), {});
  for (size_t i = 0; i < shape.layers.size(); ++i) {
    if (!shape.layers[i].moe) continue;
    LayerWeights& layer = weights.layers[i];
    for (auto* experts : {&layer.expert_gate, &layer.expert_up, &layer.expert_down}) {
      experts->resize(size_t(shape.experts));
    }
    if (shape.expert_bias) layer.expert_bias.resize(size_t(shape.experts));
  }
  return Lister<Weights, Slot>(weights).list();
}

std::vector<ConstSlot> slots_of(const Weights& weights) {
  return Lister<const Weights, ConstSlot>(weights).list();
}

bool is_norm(TensorRole role) {
  return role == TensorRole::final_norm || role == TensorRole::q_a_norm ||
         role == TensorRole::kv_a_norm ||
         (role >= TensorRole::attn_norm && role <= TensorRole::k_norm);
}

bool is_expert(TensorRole role) {
  return role >= TensorRole::expert_gate && role <= TensorRole::expert_down;
}

bool is_expert_bias(TensorRole role) {
  return role >= TensorRole::expert_gate_bias && role <= TensorRole::expert_down_bias;
}

Storage storage_for(TensorRole role, int64_t columns, Storage wanted) {
  if (role == TensorRole::router) return Storage::f32;
  auto fits = [columns](Storage storage) { return columns % storage_info(storage).block == 0; };
  if (fits(wanted)) return wanted;
  const Storage smaller = wanted == Storage::q4_k   ? Storage::q5_0
                          : wanted == Storage::q5_k ? Storage::q5_1
                                                    : Storage::q8_0;
  return storage_info(wanted).block == 256 && fits(smaller) ? smaller : Storage::bf16;
}

std::string tensor_name(FileKind kind, const Architecture& architecture, TensorRole role, int layer,
                        int expert) {
  const Names& names = kNames[size_t(role)];
  const bool gpt_oss = architecture.family == "gpt_oss";
  if (kind == FileKind::gguf && gpt_oss && role == TensorRole::mlp_norm) {
    return fmt::format("blk.{}.post_attention_norm.weight", layer);
  }
  if (kind == FileKind::gguf) {
    if (role == TensorRole::q && architecture.latent.q_rank > 0) {
      return fmt::format("blk.{}.attn_q_b.weight", layer);
    }
    return layer < 0 ? std::string(names.gguf) : fmt::format("blk.{}.{}", layer, names.gguf);
  }
  const bool variant =
      role == TensorRole::mlp_norm ? architecture.post_norms : architecture.family == "mixtral";
  std::string name(variant && !names.variant.empty() ? names.variant : names.hugging_face);
  if (role == TensorRole::q && architecture.latent.q_rank > 0) name = "self_attn.q_b_proj.weight";
  if (gpt_oss && role == TensorRole::router) name = "mlp.router.weight";
  if (architecture.family == "llama4_text") name = llama4_name(name);
  if (architecture.family == "glm4") {
    if (role == TensorRole::post_attn_norm) name = "post_self_attn_layernorm.weight";
    if (role == TensorRole::mlp_norm) name = "post_attention_layernorm.weight";
    if (role == TensorRole::post_mlp_norm) name = "post_mlp_layernorm.weight";
  }
  if (is_expert(role)) name = fmt::format(fmt::runtime(name), expert);
  if (role == TensorRole::head) return name;
  return layer < 0 ? "model." + name : fmt::format("model.layers.{}.{}", layer, name);
}

FusedRows fused_rows(FileKind kind, const Architecture& architecture, TensorRole role, int layer) {
  const int64_t q = architecture.q_columns(), kv = architecture.kv_columns();
  const bool gguf = kind == FileKind::gguf;
  const auto named = [&](std::string_view in_gguf, std::string_view in_folder) {
    return gguf ? fmt::format("blk.{}.{}", layer, in_gguf)
                : fmt::format("model.layers.{}.{}", layer, in_folder);
  };
  switch (role) {
    case TensorRole::q:
    case TensorRole::k:
    case TensorRole::v:
      return {named("attn_qkv.weight", "self_attn.qkv_proj.weight"),
              role == TensorRole::q   ? 0
              : role == TensorRole::k ? q
                                      : q + kv,
              q + 2 * kv};
    case TensorRole::gate:
    case TensorRole::up:
      return {named("ffn_up.weight", "mlp.gate_up_proj.weight"),
              role == TensorRole::gate ? 0 : architecture.ffn, 2 * int64_t{architecture.ffn}};
    default:
      return {};
  }
}

bool interleaves_rows(FileKind kind, const Architecture& architecture, TensorRole role) {
  const bool rotates = role == TensorRole::q || role == TensorRole::k ||
                       role == TensorRole::q_bias || role == TensorRole::k_bias ||
                       role == TensorRole::kv_a;
  const std::string& family = architecture.family;
  const bool llama = family == "llama" || family == "mistral" || family == "mixtral";
  return rotates && ((kind == FileKind::gguf && llama) || architecture.interleaved_rope);
}

void set_model_formats(Weights& weights) {
  Model& model = weights.model;
  model.embed_format = format_of(weights.embed);
  model.head.format = format_of(weights.head);
  // Layers of the same shape may differ in format, so the groups are rebuilt.
  const std::vector<LayerGroup> groups = std::move(model.groups);
  const std::vector<uint16_t> order = std::move(model.order);
  model.groups.clear();
  model.order.clear();
  assert(order.size() == weights.layers.size());
  for (size_t i = 0; i < order.size(); ++i) {
    Layer layer = groups[order[i]].layer;
    for (Linear& linear : layer.linears) {
      if (const Matrix* matrix = matrix_of(weights.layers[i], linear.name)) {
        linear.format = format_of(*matrix);
      }
    }
    append_layer(model, std::move(layer));
  }
  model.extras.clear();  // vision towers and draft heads are not executed
  model.exact_weight_bytes = weights.bytes;
}

void finish_weights(Weights& weights) {
  if (weights.architecture.tied) weights.head = weights.embed;
  weights.bytes = 0;
  for (const ConstSlot& slot : slots_of(weights)) {
    weights.bytes += slot.matrix ? slot.matrix->bytes() : double(slot.vector->size()) * 4;
  }
  set_model_formats(weights);
}

}  // namespace ridge
