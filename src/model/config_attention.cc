// Softmax attention (multi-head, grouped-query, multi-query) and multi-head latent attention.
#include <algorithm>

#include "base/error.h"
#include "model/config_build.h"

namespace ridge {

namespace {

constexpr int64_t kMaxHeadDim = 65536;
constexpr int64_t kMaxWindow = 1 << 30;

// A window at least as long as the context never cuts anything.
void set_window(Layer& layer, const ConfigContext& context, const Window& window) {
  if (window.tokens >= context.context) return;
  layer.mixer.window = int(std::min(window.tokens, kMaxWindow));
  layer.mixer.chunked = window.chunked;
}

// Exaone 4 writes its pattern as "LLLG"; the others as a period.
bool is_global_by_pattern(const ConfigContext& context, int index) {
  const Fields& fields = context.fields;
  for (const char* key : {"sliding_window_pattern", "_sliding_window_pattern"}) {
    if (!fields.has(key)) continue;
    if (fields.json().at(key).is_string()) {
      std::string pattern = *fields.text(key);
      if (pattern.empty() || pattern.find_first_not_of("LG") != std::string::npos) {
        throw Error("{}: {} must be a period or letters L and G, not \"{}\"", fields.where(), key,
                    pattern);
      }
      return pattern[size_t(index) % pattern.size()] == 'G' || index + 1 == context.layers;
    }
    return (index + 1) % fields.integer({key}, 1, kMaxLayers) == 0;
  }
  return context.family.window_pattern > 0 && (index + 1) % context.family.window_pattern == 0;
}

}  // namespace

AttentionConfig read_attention(const ConfigContext& context) {
  const Fields& fields = context.fields;
  AttentionConfig shape;
  shape.heads =
      fields.integer({"num_attention_heads", "n_head", "n_heads", "num_heads"}, 1, kMaxHeads);
  shape.kv_heads = fields.integer_or(kKvHeadKeys, shape.heads, 1, kMaxHeads);
  if (shape.heads % shape.kv_heads != 0) {
    throw Error("{}: num_attention_heads ({}) must be a multiple of num_key_value_heads ({})",
                fields.where(), shape.heads, shape.kv_heads);
  }
  if (auto head_dim = fields.maybe_integer(kHeadDimKeys, 1, kMaxHeadDim)) {
    shape.head_dim = *head_dim;
  } else if (context.hidden % shape.heads != 0) {
    throw Error(
        "{}: num_attention_heads ({}) must divide the hidden size ({}) where head_dim is absent",
        fields.where(), shape.heads, context.hidden);
  } else {
    shape.head_dim = context.hidden / shape.heads;
  }
  if (shape.heads * shape.head_dim > kMaxWidth) {
    throw Error("{}: num_attention_heads x head_dim is {}, more than {}", fields.where(),
                shape.heads * shape.head_dim, kMaxWidth);
  }
  shape.qkv_bias = context.is(context.family.qkv_bias);
  shape.o_bias = context.is(context.family.o_bias);
  if (context.is(context.family.qk_norm_on)) shape.qk_norm = context.family.qk_norm;
  return shape;
}

void add_attention(Layer& layer, const ConfigContext& context, const AttentionConfig& shape) {
  int64_t q = shape.heads * shape.head_dim, kv = shape.kv_heads * shape.head_dim;
  Mixer& mixer = layer.mixer;
  mixer.kind = MixerKind::attention;
  mixer.heads = int(shape.heads);
  mixer.kv_heads = int(shape.kv_heads);
  mixer.head_dim = mixer.v_head_dim = int(shape.head_dim);
  mixer.output_gate = shape.gate;
  mixer.qk_norm = shape.qk_norm != QkNorm::none;
  mixer.shares_kv = shape.no_kv;

  auto add = [&layer](Linear linear, bool bias) {
    linear.bias = bias;
    layer.linears.push_back(std::move(linear));
  };
  add(column("q_proj", Stage::mixer_in, context.hidden, shape.gate ? 2 * q : q, shape.heads),
      shape.qkv_bias);
  if (!shape.no_kv) {
    add(column("k_proj", Stage::mixer_in, context.hidden, kv, shape.kv_heads), shape.qkv_bias);
    if (!shape.value_is_key) {
      add(column("v_proj", Stage::mixer_in, context.hidden, kv, shape.kv_heads), shape.qkv_bias);
    }
  }
  add(row("o_proj", Stage::mixer_out, q, context.hidden, shape.heads), shape.o_bias);

  int64_t keys = shape.no_kv ? 0 : 1;
  if (shape.qk_norm == QkNorm::head) {
    layer.other_parameters += norm_parameters(NormKind::rms, (1 + keys) * shape.head_dim);
  } else if (shape.qk_norm == QkNorm::all_heads) {
    layer.other_parameters += norm_parameters(NormKind::rms, q + keys * kv);
  }
}

Window window_of(const ConfigContext& context, int index) {
  const Fields& fields = context.fields;
  const auto sliding = [&] {
    return Window{fields.integer({"sliding_window"}, 1, kMaxContext), false};
  };
  std::string_view type = context.type_of(index);
  if (type == "full_attention" || type == "attention") return {};
  if (type == "sliding_attention") return sliding();
  if (type == "chunked_attention") {
    return {fields.integer({"attention_chunk_size"}, 1, kMaxContext), true};
  }
  if (!type.empty()) {
    throw Error("{}: layer_types holds \"{}\", which is not known for {}", fields.where(), type,
                context.family.type);
  }
  if (!fields.has("sliding_window")) return {};
  const auto used = [&] { return fields.flag("use_sliding_window", false); };
  bool windowed = false;
  switch (context.family.window) {
    case WindowRule::none:
      break;
    case WindowRule::every:
      windowed = true;
      break;
    case WindowRule::used:
      windowed = used();
      break;
    case WindowRule::from:
      windowed = used() && index >= fields.integer_or({"max_window_layers"}, 28, 0, kMaxLayers);
      break;
    case WindowRule::pattern:
      windowed = !is_global_by_pattern(context, index);
      break;
    case WindowRule::alternate:
      windowed = index % 2 == 0;
      break;
  }
  return windowed ? sliding() : Window{};
}

void add_window(Layer& layer, const ConfigContext& context, int index) {
  const Window window = window_of(context, index);
  if (window.tokens > 0) set_window(layer, context, window);
}

void add_mla(Layer& layer, const ConfigContext& context, bool indexer) {
  const Fields& fields = context.fields;
  int64_t heads = fields.integer({"num_attention_heads"}, 1, kMaxHeads);
  int64_t kv_rank = fields.integer({"kv_lora_rank"}, 1, kMaxWidth);
  int64_t q_rank = fields.integer_or({"q_lora_rank"}, 0, 0, kMaxWidth);
  int64_t nope = fields.integer({"qk_nope_head_dim"}, 1, kMaxHeadDim);
  int64_t rope = fields.integer({"qk_rope_head_dim"}, 0, kMaxHeadDim);
  int64_t value = fields.integer({"v_head_dim"}, 1, kMaxHeadDim);
  if (heads * (nope + std::max(rope, value)) > kMaxWidth) {
    throw Error("{}: num_attention_heads x (qk_nope_head_dim + v_head_dim) is more than {}",
                fields.where(), kMaxWidth);
  }
  Mixer& mixer = layer.mixer;
  mixer.kind = MixerKind::mla;
  mixer.heads = mixer.kv_heads = int(heads);
  mixer.head_dim = int(nope + rope);
  mixer.v_head_dim = int(value);
  mixer.q_rank = int(q_rank);
  mixer.kv_rank = int(kv_rank);
  mixer.rope_dim = int(rope);

  int64_t hidden = context.hidden;
  bool bias = context.is(context.family.qkv_bias);
  auto add = [&layer](Linear linear, bool with_bias) {
    linear.bias = with_bias;
    layer.linears.push_back(std::move(linear));
  };
  if (q_rank == 0) {
    add(column("q_proj", Stage::mixer_in, hidden, heads * (nope + rope), heads), false);
  } else {
    add(replicated("q_a_proj", Stage::mixer_down, hidden, q_rank), bias);
    add(column("q_b_proj", Stage::mixer_up_q, q_rank, heads * (nope + rope), heads), false);
    layer.other_parameters += norm_parameters(NormKind::rms, q_rank);
  }
  add(replicated("kv_a_proj_with_mqa", Stage::mixer_down, hidden, kv_rank + rope), bias);
  add(column("kv_b_proj", Stage::mixer_up_kv, kv_rank, heads * (nope + value), heads), false);
  add(row("o_proj", Stage::mixer_out, heads * value, hidden, heads), bias);
  layer.other_parameters += norm_parameters(NormKind::rms, kv_rank);

  if (!indexer) return;
  int64_t index_heads = fields.integer({"index_n_heads"}, 1, kMaxHeads);
  int64_t index_dim = fields.integer({"index_head_dim"}, 1, kMaxHeadDim);
  mixer.index_heads = int(index_heads);
  mixer.index_dim = int(index_dim);
  mixer.index_topk = int(fields.integer({"index_topk"}, 1, int64_t{1} << 30));
  if (q_rank == 0) fields.missing({"q_lora_rank"});  // the indexer's queries come from it
  add(replicated("indexer.wq_b", Stage::index_in, q_rank, index_heads * index_dim), false);
  add(replicated("indexer.wk", Stage::index_in, hidden, index_dim), false);
  add(replicated("indexer.weights_proj", Stage::index_in, hidden, index_heads), false);
  layer.other_parameters += norm_parameters(NormKind::layer, index_dim);
}

}  // namespace ridge
