// Gemma 3n and 4: key-value caches shared between layers, per-layer embeddings, and (4) experts
// beside a dense MLP.
#include <algorithm>

#include "base/error.h"
#include "model/config_build.h"

namespace ridge {

namespace {

bool shares_kv(const ConfigContext& context, int index) {
  int64_t shared = context.fields.integer_or({"num_kv_shared_layers"}, 0, 0, kMaxLayers);
  int64_t first = context.layers - shared;
  return shared > 0 && first > 0 && index >= first;
}

// The gate that mixes a layer's own token embedding back in.
void add_per_layer_input(Layer& layer, const ConfigContext& context) {
  int64_t width = context.fields.integer_or({"hidden_size_per_layer_input"}, 0, 0, kMaxWidth);
  if (width == 0) return;
  // Two small matrices after the MLP; no operator of their own here, only parameters.
  layer.other_parameters += 2.0 * double(width) * double(context.hidden);
  layer.other_parameters += norm_parameters(NormKind::rms, context.hidden);
}

// One figure, or one a layer.
int64_t width_of(const ConfigContext& context, int index) {
  const Fields& fields = context.fields;
  if (!fields.has("intermediate_size") || !fields.json().at("intermediate_size").is_array()) {
    return mlp_width(context);
  }
  auto widths = fields.integers("intermediate_size", 1, kMaxWidth);
  if (int64_t(widths.size()) != context.layers) {
    throw Error("{}: intermediate_size has {} entries for {} layers", fields.where(), widths.size(),
                context.layers);
  }
  return widths[size_t(index)];
}

}  // namespace

double per_layer_embedding_parameters(const ConfigContext& context) {
  const Fields& fields = context.fields;
  int64_t width = fields.integer_or({"hidden_size_per_layer_input"}, 0, 0, kMaxWidth);
  if (width == 0) return 0;
  double vocab = double(fields.integer({"vocab_size_per_layer_input", "vocab_size"}, 1, kMaxVocab));
  double all = double(context.layers) * double(width);
  return vocab * all + double(context.hidden) * all + double(width);
}

Layer gemma3n_layer(const ConfigContext& context, int index) {
  const Fields& fields = context.fields;
  Layer layer;
  AttentionConfig shape = read_attention(context);
  shape.no_kv = shares_kv(context, index);
  add_attention(layer, context, shape);
  if (shape.no_kv) {
    // The checkpoint holds the unused key and value matrices all the same.
    layer.other_parameters += double(2 * shape.kv_heads * shape.head_dim) * double(context.hidden) +
                              double(shape.head_dim);
  }
  add_window(layer, context, index);
  add_mlp(layer, context, width_of(context, index));
  add_norms(layer, context, 4);
  add_per_layer_input(layer, context);
  // LAuReL: a low-rank residual; AltUp: predictions and corrections of the parallel streams.
  double hidden = double(context.hidden);
  double rank = double(fields.integer_or({"laurel_rank"}, 64, 1, kMaxWidth));
  double streams = double(fields.integer_or({"altup_num_inputs"}, 4, 1, 1024));
  layer.other_parameters += 2 * hidden * rank + hidden;
  layer.other_parameters += 2 * hidden + streams * streams * (1 + streams) + hidden * streams;
  context.note("AltUp, LAuReL and per-layer inputs are counted as parameters, not as operators");
  return layer;
}

Layer gemma4_layer(const ConfigContext& context, int index) {
  const Fields& fields = context.fields;
  Layer layer;
  if (context.layer_types.empty()) fields.missing({"layer_types"});
  bool sliding = context.type_of(index) == "sliding_attention";
  AttentionConfig shape = read_attention(context);
  if (!sliding) {
    shape.head_dim = fields.integer_or({"global_head_dim"}, shape.head_dim, 1, 65536);
    if (fields.flag("attention_k_eq_v", false)) {
      shape.value_is_key = true;
      shape.kv_heads =
          fields.integer_or({"num_global_key_value_heads"}, shape.kv_heads, 1, shape.heads);
    }
    if (shape.heads * shape.head_dim > kMaxWidth || shape.heads % shape.kv_heads != 0) {
      throw Error("{}: num_attention_heads does not fit global_head_dim or the key-value heads",
                  fields.where());
    }
  }
  shape.no_kv = shares_kv(context, index);
  add_attention(layer, context, shape);
  add_window(layer, context, index);

  int64_t width = mlp_width(context);
  if (shape.no_kv && fields.flag("use_double_wide_mlp", false)) {
    width = std::min<int64_t>(2 * width, kMaxWidth);
  }
  if (fields.flag("enable_moe_block", false)) {
    // The dense MLP runs beside the experts on every token: a shared expert in all but name.
    MoeShape moe = read_moe(context);
    moe.shared_width = width;
    add_moe(layer, context, moe);
    // Router scales (per channel and per expert) and three more norms.
    layer.other_parameters += double(context.hidden) + double(moe.experts);
    add_norms(layer, context, 7);
  } else {
    add_mlp(layer, context, width);
    add_norms(layer, context, 4);
  }
  add_per_layer_input(layer, context);
  layer.other_parameters += 1;  // layer_scalar
  return layer;
}

}  // namespace ridge
