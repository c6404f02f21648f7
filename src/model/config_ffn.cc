// Feed-forward parts: dense MLPs and mixtures of experts.
#include <algorithm>

#include "base/error.h"
#include "model/config_build.h"

namespace ridge {

namespace {

// Some families repeat one figure per layer in a list (Hunyuan, Ernie); a list of different
// figures would need layers of different widths, which none of them has.
std::optional<int64_t> same_everywhere(const Fields& fields, Fields::Keys keys, int64_t high) {
  for (const char* key : keys) {
    if (!fields.has(key)) continue;
    if (!fields.json().at(key).is_array()) return fields.integer({key}, 0, high);
    std::vector<int64_t> values = fields.integers(key, 0, high);
    if (values.empty()) throw Error("{}: {} must not be an empty list", fields.where(), key);
    if (std::any_of(values.begin(), values.end(), [&](int64_t v) { return v != values[0]; })) {
      throw Error("{}: {} differs between layers, which is not supported", fields.where(), key);
    }
    return values[0];
  }
  return std::nullopt;
}

int64_t shared_width(const ConfigContext& context, int64_t expert_width) {
  const Fields& fields = context.fields;
  int64_t count = same_everywhere(fields,
                                  {"n_shared_experts", "num_shared_experts",
                                   "moe_num_shared_experts", "num_shared_expert"},
                                  kMaxExperts)
                      .value_or(0);
  auto each = fields.maybe_integer(
      {"moe_shared_expert_intermediate_size", "shared_expert_intermediate_size",
       "shared_intermediate_size", "share_expert_dim"},
      0, kMaxWidth);
  // A width without a count describes one shared expert; a count without a width, experts as wide
  // as the routed ones.
  int64_t width = each ? *each * std::max<int64_t>(count, 1) : count * expert_width;
  if (width > kMaxWidth) {
    throw Error("{}: the shared experts are {} wide together, more than {}", fields.where(), width,
                kMaxWidth);
  }
  return width;
}

void add_gated(Layer& layer, bool gated, bool bias, int64_t copies, Stage in, Stage out,
               const std::string& prefix, int64_t hidden, int64_t width) {
  auto add = [&](const char* name, Linear linear) {
    linear.name = prefix + name;
    linear.bias = bias;
    linear.copies = copies;
    layer.linears.push_back(std::move(linear));
  };
  if (gated) add("gate_proj", column("", in, hidden, width));
  add("up_proj", column("", in, hidden, width));
  add("down_proj", row("", out, width, hidden));
}

}  // namespace

int64_t mlp_width(const ConfigContext& context) {
  const Fields& fields = context.fields;
  // GPT-2 and its kin leave the width to a factor of four.
  if (auto width = fields.maybe_integer(
          {"intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "d_ff"}, 1, kMaxWidth)) {
    return *width;
  }
  if (context.family.gated) fields.missing({"intermediate_size"});
  return 4 * context.hidden;
}

void add_mlp(Layer& layer, const ConfigContext& context, int64_t width) {
  layer.gated = context.family.gated;
  add_gated(layer, layer.gated, context.is(context.family.mlp_bias), 1, Stage::ffn_in,
            Stage::ffn_out, "", context.hidden, width);
}

void add_moe(Layer& layer, const ConfigContext& context, const MoeShape& shape) {
  layer.gated = shape.gated;
  layer.experts = int(shape.experts);
  layer.top_k = int(shape.top_k);
  Linear router = replicated("router", Stage::router, context.hidden, shape.experts);
  router.bias = shape.router_bias;
  layer.linears.push_back(router);
  add_gated(layer, shape.gated, shape.bias, shape.experts, Stage::expert_in, Stage::expert_out,
            "experts.", context.hidden, shape.width);
  if (context.family.router_correction) layer.other_parameters += double(shape.experts);
  if (shape.shared_width == 0) return;
  add_gated(layer, shape.gated, shape.bias, 1, Stage::shared_in, Stage::shared_out, "shared.",
            context.hidden, shape.shared_width);
  if (context.family.shared_expert_gate) layer.other_parameters += double(context.hidden);
}

MoeShape read_moe(const ConfigContext& context) {
  const Fields& fields = context.fields;
  MoeShape shape;
  shape.experts = same_everywhere(fields, kExpertKeys, kMaxExperts).value_or(0);
  if (shape.experts == 0) fields.missing(kExpertKeys);
  auto top_k = same_everywhere(fields, kTopKeys, kMaxExperts);
  if (!top_k) fields.missing(kTopKeys);
  shape.top_k = *top_k;
  if (shape.top_k < 1 || shape.top_k > shape.experts) {
    throw Error("{}: experts per token ({}) must be from 1 to the number of experts ({})",
                fields.where(), shape.top_k, shape.experts);
  }
  auto width =
      same_everywhere(fields, {"moe_intermediate_size", "expert_ffn_hidden_size"}, kMaxWidth);
  shape.width = width.value_or(0) > 0 ? *width : mlp_width(context);
  shape.shared_width = shared_width(context, shape.width);
  shape.gated = context.family.gated;
  shape.bias = context.is(context.family.mlp_bias);
  return shape;
}

bool is_moe_layer(const ConfigContext& context, int index) {
  const Fields& fields = context.fields;
  if (same_everywhere(fields, kExpertKeys, kMaxExperts).value_or(0) == 0) return false;
  auto types = fields.texts("mlp_layer_types");
  if (!types.empty()) {
    if (int64_t(types.size()) != context.layers) {
      throw Error("{}: mlp_layer_types has {} entries for {} layers", fields.where(), types.size(),
                  context.layers);
    }
    const std::string& type = types[size_t(index)];
    if (type != "dense" && type != "sparse") {
      throw Error("{}: mlp_layer_types holds \"{}\", not dense or sparse", fields.where(), type);
    }
    return type == "sparse";
  }
  auto dense = fields.integers("mlp_only_layers", 0, kMaxLayers);
  if (std::find(dense.begin(), dense.end(), index) != dense.end()) return false;
  if (index < fields.integer_or({"first_k_dense_replace"}, 0, 0, kMaxLayers)) return false;
  if (fields.has("moe_layer_freq") && fields.json().at("moe_layer_freq").is_array()) {
    auto which = fields.integers("moe_layer_freq", 0, 1);
    if (int64_t(which.size()) != context.layers) {
      throw Error("{}: moe_layer_freq has {} entries for {} layers", fields.where(), which.size(),
                  context.layers);
    }
    return which[size_t(index)] == 1;
  }
  if (index % fields.integer_or({"moe_layer_freq"}, 1, 1, kMaxLayers) != 0) return false;
  if ((index + 1) % fields.integer_or({"decoder_sparse_step"}, 1, 1, kMaxLayers) != 0) return false;
  // Ernie 4.5: from a start to an end index, at an interval.
  int64_t last = fields.integer_or({"moe_layer_end_index"}, -1, -1, kMaxLayers);
  if (last < 0) last = context.layers - 1;
  bool in_range =
      index >= fields.integer_or({"moe_layer_start_index"}, 0, 0, kMaxLayers) && index <= last;
  return in_range && (index + 1) % fields.integer_or({"moe_layer_interval"}, 1, 1, kMaxLayers) == 0;
}

void add_ffn(Layer& layer, const ConfigContext& context, int index) {
  if (is_moe_layer(context, index)) {
    add_moe(layer, context, read_moe(context));
  } else {
    add_mlp(layer, context, mlp_width(context));
  }
}

Layer decoder_layer(const ConfigContext& context, int index) {
  Layer layer;
  add_attention(layer, context, read_attention(context));
  add_window(layer, context, index);
  add_ffn(layer, context, index);
  add_norms(layer, context, context.is(context.family.parallel_norm) ? 1 : context.family.norms);
  return layer;
}

Layer deepseek_layer(const ConfigContext& context, int index) {
  // The smallest DeepSeek-VL2 uses plain attention.
  if (!context.fields.flag("use_mla", true)) return decoder_layer(context, index);
  Layer layer;
  add_mla(layer, context, false);
  add_ffn(layer, context, index);
  add_norms(layer, context, 2);
  return layer;
}

Layer deepseek_sparse_layer(const ConfigContext& context, int index) {
  Layer layer;
  add_mla(layer, context, true);
  add_ffn(layer, context, index);
  add_norms(layer, context, 2);
  return layer;
}

}  // namespace ridge
