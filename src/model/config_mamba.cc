// State-space models and the hybrids built on them: Mamba 1 and 2, Nemotron-H, Bamba, Granite 4,
// Falcon-H1, Jamba.
#include <algorithm>

#include "base/error.h"
#include "model/config_build.h"

namespace ridge {

namespace {

void check_width(const ConfigContext& context, int64_t width) {
  if (width < 1 || width > kMaxWidth) {
    throw Error("{}: the Mamba projection is {} wide, not from 1 to {}", context.fields.where(),
                width, kMaxWidth);
  }
}

// The names of Mamba's dimensions differ between families.
struct Mamba2Shape {
  int64_t heads = 0, head_dim = 0, groups = 0, state = 0, kernel = 0;
  bool proj_bias = false, out_bias = false, conv_bias = true, norm = true;
};

void add_mamba2(Layer& layer, const ConfigContext& context, const Mamba2Shape& shape) {
  int64_t inner = shape.heads * shape.head_dim;
  int64_t channels = inner + 2 * shape.groups * shape.state;
  check_width(context, 2 * channels + shape.heads);
  Mixer& mixer = layer.mixer;
  if (mixer.kind != MixerKind::attention || mixer.heads == 0) mixer.kind = MixerKind::mamba2;
  mixer.key_heads = int(shape.groups);
  mixer.value_heads = int(shape.heads);
  mixer.state_dim = int(shape.state);
  mixer.value_dim = int(shape.head_dim);
  mixer.conv_kernel = int(shape.kernel);
  mixer.conv_channels = int(channels);
  add_linear(layer,
             column("in_proj", Stage::mixer_in, context.hidden, inner + channels + shape.heads,
                    shape.heads),
             shape.proj_bias);
  add_linear(layer, row("out_proj", Stage::mixer_out, inner, context.hidden, shape.heads),
             shape.out_bias);
  // Convolution, then A, D and the bias of dt per head, then the gated norm.
  layer.other_parameters += double(channels) * double(shape.kernel + (shape.conv_bias ? 1 : 0)) +
                            3.0 * double(shape.heads) + (shape.norm ? double(inner) : 0);
}

// Bamba, Granite 4 and Falcon-H1 share their field names.
Mamba2Shape read_mamba2(const ConfigContext& context) {
  const Fields& fields = context.fields;
  Mamba2Shape shape;
  shape.heads = fields.integer({"mamba_n_heads"}, 1, kMaxHeads);
  shape.groups = fields.integer({"mamba_n_groups"}, 1, kMaxHeads);
  shape.state = fields.integer({"mamba_d_state"}, 1, kMaxState);
  shape.kernel = fields.integer_or({"mamba_d_conv"}, 4, 1, 1024);
  int64_t inner = fields.integer_or({"mamba_d_ssm"}, 0, 0, kMaxWidth);
  if (inner == 0) inner = fields.integer_or({"mamba_expand"}, 2, 1, 64) * context.hidden;
  if (inner % shape.heads != 0) {
    throw Error("{}: mamba_n_heads ({}) must divide the inner width ({})", fields.where(),
                shape.heads, inner);
  }
  // "auto" and a number that repeats it mean the same.
  shape.head_dim = inner / shape.heads;
  shape.proj_bias = fields.flag("mamba_proj_bias", false);
  shape.out_bias = shape.proj_bias;
  shape.conv_bias = fields.flag("mamba_conv_bias", true);
  return shape;
}

struct Mamba1Shape {
  int64_t inner = 0, state = 0, kernel = 0, rank = 0;
  bool proj_bias = false, conv_bias = true, inner_norms = false;
};

void add_mamba1(Layer& layer, const ConfigContext& context, const Mamba1Shape& shape) {
  check_width(context, 2 * shape.inner);
  Mixer& mixer = layer.mixer;
  mixer.kind = MixerKind::mamba1;
  mixer.key_heads = mixer.value_heads = 1;
  mixer.state_dim = int(shape.state);
  mixer.value_dim = int(shape.inner);
  mixer.conv_kernel = int(shape.kernel);
  mixer.conv_channels = int(shape.inner);
  add_linear(layer, column("in_proj", Stage::mixer_in, context.hidden, 2 * shape.inner),
             shape.proj_bias);
  add_linear(layer, row("out_proj", Stage::mixer_out, shape.inner, context.hidden),
             shape.proj_bias);
  // x_proj and dt_proj run on the inner width between the two: small, counted with the rest.
  double between = double(shape.inner) * double(shape.rank + 2 * shape.state) +
                   double(shape.rank) * double(shape.inner) + double(shape.inner);
  double scan = double(shape.inner) * double(shape.state) + double(shape.inner);
  double conv = double(shape.inner) * double(shape.kernel + (shape.conv_bias ? 1 : 0));
  double norms = shape.inner_norms ? double(shape.rank + 2 * shape.state) : 0;
  layer.other_parameters += between + scan + conv + norms;
}

int64_t rank_of(const Fields& fields, const char* key, int64_t hidden) {
  // "auto": a sixteenth of hidden, rounded up.
  if (!fields.has(key) || fields.json().at(key).is_string()) return (hidden + 15) / 16;
  return fields.integer({key}, 1, kMaxWidth);
}

}  // namespace

// One character a layer: M Mamba 2, * attention, - MLP, E experts. Each has its own norm.
Layer nemotron_h_layer(const ConfigContext& context, int index) {
  const Fields& fields = context.fields;
  auto pattern = fields.text("hybrid_override_pattern");
  if (!pattern) fields.missing({"hybrid_override_pattern"});
  if (int64_t(pattern->size()) != context.layers) {
    throw Error("{}: hybrid_override_pattern has {} letters for {} layers", fields.where(),
                pattern->size(), context.layers);
  }
  Layer layer;
  layer.mixer.kind = MixerKind::none;
  switch ((*pattern)[size_t(index)]) {
    case 'M': {
      Mamba2Shape shape;
      shape.heads = fields.integer({"mamba_num_heads"}, 1, kMaxHeads);
      shape.head_dim = fields.integer({"mamba_head_dim"}, 1, kMaxState);
      shape.groups = fields.integer({"n_groups"}, 1, kMaxHeads);
      shape.state = fields.integer({"ssm_state_size"}, 1, kMaxState);
      shape.kernel = fields.integer_or({"conv_kernel"}, 4, 1, 1024);
      shape.proj_bias = shape.out_bias = fields.flag("mamba_proj_bias", false);
      shape.conv_bias = fields.flag("use_conv_bias", true);
      add_mamba2(layer, context, shape);
      break;
    }
    case '*':
      add_attention(layer, context, read_attention(context));
      break;
    case '-':
      add_mlp(layer, context, mlp_width(context));
      break;
    case 'E':
      add_moe(layer, context, read_moe(context));
      break;
    default:
      throw Error("{}: hybrid_override_pattern holds '{}', not M, *, - or E", fields.where(),
                  (*pattern)[size_t(index)]);
  }
  add_norms(layer, context, 1);
  return layer;
}

Layer bamba_layer(const ConfigContext& context, int index) {
  Layer layer;
  if (contains(context.fields.integers("attn_layer_indices", 0, kMaxLayers), index)) {
    add_attention(layer, context, read_attention(context));
  } else {
    add_mamba2(layer, context, read_mamba2(context));
  }
  add_ffn(layer, context, index);
  add_norms(layer, context, 2);
  return layer;
}

Layer granite_hybrid_layer(const ConfigContext& context, int index) {
  Layer layer;
  std::string_view type = context.type_of(index);
  if (type.empty()) context.fields.missing({"layer_types"});
  if (type == "attention" || type == "full_attention") {
    add_attention(layer, context, read_attention(context));
  } else if (type == "mamba") {
    add_mamba2(layer, context, read_mamba2(context));
  } else {
    throw Error("{}: layer_types holds \"{}\", not attention or mamba", context.fields.where(),
                type);
  }
  if (is_moe_layer(context, index)) {
    add_moe(layer, context, read_moe(context));
  } else {
    // Without experts the shared one is the whole MLP.
    add_mlp(layer, context, context.fields.integer({"shared_intermediate_size"}, 1, kMaxWidth));
  }
  add_norms(layer, context, 2);
  return layer;
}

// Attention and Mamba 2 side by side on the same input; the mixer carries both.
Layer falcon_h1_layer(const ConfigContext& context, int index) {
  Layer layer;
  add_attention(layer, context, read_attention(context));
  Mamba2Shape shape = read_mamba2(context);
  shape.out_bias = context.fields.flag("projectors_bias", false);
  shape.norm = context.fields.flag("mamba_rms_norm", false);
  add_mamba2(layer, context, shape);
  layer.linears.back().name = "mamba.out_proj";
  add_ffn(layer, context, index);
  add_norms(layer, context, 2);
  context.note("each layer runs attention and Mamba 2 side by side; the scan is not an operator");
  return layer;
}

Layer jamba_layer(const ConfigContext& context, int index) {
  const Fields& fields = context.fields;
  Layer layer;
  auto at = [&](const char* period, const char* offset) {
    int64_t every = fields.integer({period}, 1, kMaxLayers);
    return index % every == fields.integer({offset}, 0, kMaxLayers);
  };
  if (at("attn_layer_period", "attn_layer_offset")) {
    add_attention(layer, context, read_attention(context));
  } else {
    Mamba1Shape shape;
    shape.inner = fields.integer_or({"mamba_expand"}, 2, 1, 64) * context.hidden;
    shape.state = fields.integer({"mamba_d_state"}, 1, kMaxState);
    shape.kernel = fields.integer_or({"mamba_d_conv"}, 4, 1, 1024);
    shape.rank = rank_of(fields, "mamba_dt_rank", context.hidden);
    shape.proj_bias = fields.flag("mamba_proj_bias", false);
    shape.conv_bias = fields.flag("mamba_conv_bias", true);
    shape.inner_norms = true;
    add_mamba1(layer, context, shape);
  }
  bool sparse = fields.integer({"num_experts"}, 1, kMaxExperts) > 1 &&
                at("expert_layer_period", "expert_layer_offset");
  if (sparse) {
    add_moe(layer, context, read_moe(context));
  } else {
    add_mlp(layer, context, mlp_width(context));
  }
  add_norms(layer, context, 2);
  return layer;
}

Layer mamba_layer(const ConfigContext& context, int) {
  const Fields& fields = context.fields;
  Layer layer;
  Mamba1Shape shape;
  shape.inner =
      fields.integer_or({"intermediate_size", "d_inner"},
                        fields.integer_or({"expand"}, 2, 1, 64) * context.hidden, 1, kMaxWidth);
  shape.state = fields.integer({"state_size"}, 1, kMaxState);
  shape.kernel = fields.integer_or({"conv_kernel"}, 4, 1, 1024);
  shape.rank = rank_of(fields, "time_step_rank", context.hidden);
  shape.proj_bias = fields.flag("use_bias", false);
  shape.conv_bias = fields.flag("use_conv_bias", true);
  add_mamba1(layer, context, shape);
  add_norms(layer, context, 1);
  return layer;
}

Layer mamba2_layer(const ConfigContext& context, int) {
  const Fields& fields = context.fields;
  Layer layer;
  Mamba2Shape shape;
  shape.heads = fields.integer({"num_heads"}, 1, kMaxHeads);
  shape.head_dim = fields.integer({"head_dim"}, 1, kMaxState);
  shape.groups = fields.integer({"n_groups"}, 1, kMaxHeads);
  shape.state = fields.integer({"state_size"}, 1, kMaxState);
  shape.kernel = fields.integer_or({"conv_kernel"}, 4, 1, 1024);
  shape.proj_bias = shape.out_bias = fields.flag("use_bias", false);
  shape.conv_bias = fields.flag("use_conv_bias", true);
  add_mamba2(layer, context, shape);
  add_norms(layer, context, 1);
  return layer;
}

}  // namespace ridge
