// Linear attention and short convolutions: layers with a constant state instead of a growing
// cache. Gated delta rule (Qwen), lightning attention (MiniMax), Kimi delta attention, LFM2.
#include <algorithm>

#include "base/error.h"
#include "model/config_build.h"

namespace ridge {

namespace {

void check_width(const ConfigContext& context, int64_t width, const char* what) {
  if (width < 1 || width > kMaxWidth) {
    throw Error("{}: {} is {}, not from 1 to {}", context.fields.where(), what, width, kMaxWidth);
  }
}

// Gated delta rule as in Qwen3-Next and Qwen3.5.
void add_delta(Layer& layer, const ConfigContext& context) {
  const Fields& fields = context.fields;
  int64_t key_heads = fields.integer({"linear_num_key_heads"}, 1, kMaxHeads);
  int64_t value_heads = fields.integer({"linear_num_value_heads"}, 1, kMaxHeads);
  int64_t key_dim = fields.integer({"linear_key_head_dim"}, 1, kMaxState);
  int64_t value_dim = fields.integer({"linear_value_head_dim"}, 1, kMaxState);
  int64_t kernel = fields.integer({"linear_conv_kernel_dim"}, 1, 1024);
  if (value_heads % key_heads != 0) {
    throw Error("{}: linear_num_value_heads ({}) must be a multiple of linear_num_key_heads ({})",
                fields.where(), value_heads, key_heads);
  }
  int64_t keys = key_heads * key_dim, values = value_heads * value_dim;
  check_width(context, 2 * keys + 2 * values, "the width of the linear attention");
  Mixer& mixer = layer.mixer;
  mixer.kind = MixerKind::linear;
  mixer.key_heads = int(key_heads);
  mixer.value_heads = int(value_heads);
  mixer.state_dim = int(key_dim);
  mixer.value_dim = int(value_dim);
  mixer.conv_kernel = int(kernel);
  mixer.conv_channels = int(2 * keys + values);
  mixer.output_gate = true;
  add_linear(layer,
             column("in_proj_qkv", Stage::mixer_in, context.hidden, 2 * keys + values, key_heads));
  add_linear(layer, column("in_proj_z", Stage::mixer_in, context.hidden, values, value_heads));
  add_linear(layer,
             column("in_proj_ba", Stage::mixer_in, context.hidden, 2 * value_heads, value_heads));
  add_linear(layer, row("out_proj", Stage::mixer_out, values, context.hidden, value_heads));
  layer.other_parameters +=
      double(2 * keys + values) * double(kernel) + 2.0 * double(value_heads) + double(value_dim);
}

// Lightning attention of MiniMax-01: as many key as query heads, a gate and a norm on the output.
void add_lightning(Layer& layer, const ConfigContext& context) {
  AttentionConfig shape = read_attention(context);
  int64_t width = shape.heads * shape.head_dim;
  check_width(context, 3 * width, "the width of the lightning attention");
  Mixer& mixer = layer.mixer;
  mixer.kind = MixerKind::linear;
  mixer.key_heads = mixer.value_heads = int(shape.heads);
  mixer.state_dim = mixer.value_dim = int(shape.head_dim);
  mixer.output_gate = true;
  add_linear(layer, column("qkv_proj", Stage::mixer_in, context.hidden, 3 * width, shape.heads));
  add_linear(layer, column("output_gate", Stage::mixer_in, context.hidden, width, shape.heads));
  add_linear(layer, row("out_proj", Stage::mixer_out, width, context.hidden, shape.heads));
  layer.other_parameters += norm_parameters(NormKind::rms, width);
}

// Kimi delta attention: gates of low rank (head_dim) for decay and output.
void add_kimi_delta(Layer& layer, const ConfigContext& context, const Fields& linear) {
  int64_t heads = linear.integer({"num_heads"}, 1, kMaxHeads);
  int64_t dim = linear.integer({"head_dim"}, 1, kMaxState);
  int64_t kernel = linear.integer({"short_conv_kernel_size"}, 1, 1024);
  int64_t width = heads * dim;
  check_width(context, 3 * width, "the width of the linear attention");
  Mixer& mixer = layer.mixer;
  mixer.kind = MixerKind::linear;
  mixer.key_heads = mixer.value_heads = int(heads);
  mixer.state_dim = mixer.value_dim = int(dim);
  mixer.conv_kernel = int(kernel);
  mixer.conv_channels = int(3 * width);
  mixer.output_gate = true;
  add_linear(layer, column("qkv_proj", Stage::mixer_in, context.hidden, 3 * width, heads));
  add_linear(layer, replicated("f_a_proj", Stage::mixer_in, context.hidden, dim));
  add_linear(layer, replicated("g_a_proj", Stage::mixer_in, context.hidden, dim));
  add_linear(layer, column("b_proj", Stage::mixer_in, context.hidden, heads, heads));
  add_linear(layer, column("f_b_proj", Stage::mixer_up_q, dim, width, heads));
  add_linear(layer, column("g_b_proj", Stage::mixer_up_q, dim, width, heads));
  add_linear(layer, row("o_proj", Stage::mixer_out, width, context.hidden, heads));
  layer.other_parameters +=
      3.0 * double(width) * double(kernel) + double(heads) + double(width) + double(dim);
}

[[noreturn]] void unknown_type(const ConfigContext& context, std::string_view type) {
  throw Error("{}: layer_types holds \"{}\", which is not known for {}", context.fields.where(),
              type, context.family.type);
}

}  // namespace

Layer qwen_delta_layer(const ConfigContext& context, int index) {
  Layer layer;
  std::string_view type = context.type_of(index);
  if (!type.empty() && type != "linear_attention" && type != "full_attention") {
    unknown_type(context, type);
  }
  int64_t interval = context.fields.integer_or({"full_attention_interval"}, 4, 1, kMaxLayers);
  bool full = type.empty() ? (index + 1) % interval == 0 : type == "full_attention";
  if (full) {
    AttentionConfig shape = read_attention(context);
    shape.gate = context.fields.flag("attn_output_gate", true);
    add_attention(layer, context, shape);
  } else {
    add_delta(layer, context);
  }
  add_ffn(layer, context, index);
  add_norms(layer, context, 2);
  return layer;
}

Layer minimax_layer(const ConfigContext& context, int index) {
  Layer layer;
  std::string_view type = context.type_of(index);
  auto list = context.fields.integers("attn_type_list", 0, 1);
  bool full = true;
  if (!type.empty()) {
    if (type != "linear_attention" && type != "full_attention") unknown_type(context, type);
    full = type == "full_attention";
  } else if (list.empty()) {
    context.fields.missing({"layer_types", "attn_type_list"});
  } else if (int64_t(list.size()) != context.layers) {
    throw Error("{}: attn_type_list has {} entries for {} layers", context.fields.where(),
                list.size(), context.layers);
  } else {
    full = list[size_t(index)] == 1;
  }
  if (full) {
    add_attention(layer, context, read_attention(context));
  } else {
    add_lightning(layer, context);
  }
  add_ffn(layer, context, index);
  add_norms(layer, context, 2);
  return layer;
}

Layer kimi_linear_layer(const ConfigContext& context, int index) {
  Layer layer;
  Fields linear = context.fields.object("linear_attn_config");
  if (linear.json().empty()) context.fields.missing({"linear_attn_config"});
  // Both lists count layers from one.
  bool full = contains(linear.integers("full_attn_layers", 1, kMaxLayers), index + 1);
  bool delta = contains(linear.integers("kda_layers", 1, kMaxLayers), index + 1);
  if (full == delta) {
    throw Error("{}: layer {} must be in one of full_attn_layers and kda_layers", linear.where(),
                index + 1);
  }
  if (full) {
    add_mla(layer, context, false);
  } else {
    add_kimi_delta(layer, context, linear);
  }
  add_ffn(layer, context, index);
  add_norms(layer, context, 2);
  return layer;
}

namespace {

// LFM2 states a width before its own rounding rule.
int64_t lfm2_width(const Fields& fields) {
  int64_t width = fields.integer({"block_ff_dim", "intermediate_size"}, 1, kMaxWidth);
  if (!fields.flag("block_auto_adjust_ff_dim", true)) return width;
  width = 2 * width / 3;
  if (auto scale = fields.number("block_ffn_dim_multiplier", 0, 16)) {
    width = int64_t(*scale * double(width));
  }
  int64_t multiple = fields.integer_or({"block_multiple_of"}, 256, 1, kMaxWidth);
  return (width + multiple - 1) / multiple * multiple;
}

}  // namespace

Layer lfm2_layer(const ConfigContext& context, int index) {
  const Fields& fields = context.fields;
  Layer layer;
  std::string_view type = context.type_of(index);
  if (!type.empty() && type != "full_attention" && type != "conv") unknown_type(context, type);
  if (type.empty() && !fields.has("full_attn_idxs")) {
    fields.missing({"layer_types", "full_attn_idxs"});
  }
  bool full = type.empty() ? contains(fields.integers("full_attn_idxs", 0, kMaxLayers), index)
                           : type == "full_attention";
  if (full) {
    add_attention(layer, context, read_attention(context));
  } else {
    int64_t kernel = fields.integer({"conv_L_cache"}, 1, 1024);
    bool bias = fields.flag("conv_bias", false);
    layer.mixer.kind = MixerKind::conv;
    layer.mixer.conv_kernel = int(kernel);
    layer.mixer.conv_channels = int(context.hidden);
    add_linear(layer, column("in_proj", Stage::mixer_in, context.hidden, 3 * context.hidden), bias);
    add_linear(layer, row("out_proj", Stage::mixer_out, context.hidden, context.hidden), bias);
    layer.other_parameters += double(context.hidden) * double(kernel + (bias ? 1 : 0));
  }
  bool sparse = fields.has("num_experts") &&
                index >= fields.integer_or({"num_dense_layers"}, 0, 0, kMaxLayers);
  if (sparse) {
    add_moe(layer, context, read_moe(context));
  } else if (fields.has("num_experts")) {
    add_mlp(layer, context, mlp_width(context));  // LFM2 MoE states widths as they are
  } else {
    int64_t width = lfm2_width(fields);
    check_width(context, width, "the width of the MLP");
    add_mlp(layer, context, width);
  }
  add_norms(layer, context, 2);
  return layer;
}

}  // namespace ridge
