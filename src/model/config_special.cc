// Families whose layers differ from the plain decoder in more than the family table can say.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/config_build.h"

namespace ridge {

// Sinks: one learned logit per head. Router and experts carry biases.
Layer gpt_oss_layer(const ConfigContext& context, int index) {
  Layer layer;
  AttentionConfig shape = read_attention(context);
  add_attention(layer, context, shape);
  add_window(layer, context, index);
  layer.other_parameters += double(shape.heads);
  MoeShape moe = read_moe(context);
  moe.bias = moe.router_bias = true;
  add_moe(layer, context, moe);
  add_norms(layer, context, 2);
  return layer;
}

// Chunked attention in the layers with rotary positions, the whole context in every fourth.
// Experts and the shared expert are intermediate_size wide, dense layers intermediate_size_mlp.
Layer llama4_layer(const ConfigContext& context, int index) {
  const Fields& fields = context.fields;
  Layer layer;
  add_attention(layer, context, read_attention(context));
  layer.mixer.qk_norm = fields.flag("use_qk_norm", true);  // without weights
  if (!context.layer_types.empty()) {
    add_window(layer, context, index);
  } else if (fields.has("attention_chunk_size") ||
             !fields.json().contains("attention_chunk_size")) {
    auto rotary = fields.integers("no_rope_layers", 0, 1);
    int64_t interval = fields.integer_or({"no_rope_layer_interval"}, 4, 1, kMaxLayers);
    if (!rotary.empty() && int64_t(rotary.size()) != context.layers) {
      throw Error("{}: no_rope_layers has {} entries for {} layers", fields.where(), rotary.size(),
                  context.layers);
    }
    bool chunked = rotary.empty() ? (index + 1) % interval != 0 : rotary[size_t(index)] == 1;
    int64_t chunk = fields.integer_or({"attention_chunk_size"}, 8192, 1, kMaxContext);
    if (chunked && chunk < context.context) {
      layer.mixer.window = int(std::min<int64_t>(chunk, 1 << 30));
      layer.mixer.chunked = true;
    }
  }
  auto listed = fields.integers("moe_layers", 0, kMaxLayers);
  int64_t step = fields.integer_or({"interleave_moe_layer_step"}, 1, 1, kMaxLayers);
  bool sparse = listed.empty() ? (index + 1) % step == 0
                               : std::find(listed.begin(), listed.end(), index) != listed.end();
  if (sparse) {
    MoeShape moe = read_moe(context);
    moe.shared_width = moe.width;
    add_moe(layer, context, moe);
  } else {
    add_mlp(layer, context, fields.integer_or({"intermediate_size_mlp"}, 16384, 1, kMaxWidth));
  }
  add_norms(layer, context, 2);
  return layer;
}

// Falcon 7B shares one key-value head and one norm; 40B and 180B group the heads and have two.
Layer falcon_layer(const ConfigContext& context, int) {
  const Fields& fields = context.fields;
  Layer layer;
  AttentionConfig shape = read_attention(context);
  bool grouped = fields.flag("new_decoder_architecture", false);
  if (!grouped) {
    shape.kv_heads = fields.flag("multi_query", true) ? 1 : shape.heads;
  } else {
    shape.kv_heads = fields.integer_or({"num_kv_heads", "n_head_kv"}, shape.heads, 1, kMaxHeads);
    if (shape.heads % shape.kv_heads != 0) {
      throw Error("{}: num_attention_heads ({}) must be a multiple of num_kv_heads ({})",
                  fields.where(), shape.heads, shape.kv_heads);
    }
  }
  add_attention(layer, context, shape);
  add_mlp(layer, context, mlp_width(context));
  int64_t parallel = fields.integer_or({"num_ln_in_parallel_attn"}, grouped ? 2 : 1, 1, 2);
  bool one = (grouped || fields.flag("parallel_attn", true)) && parallel == 1;
  add_norms(layer, context, one ? 1 : 2);
  return layer;
}

Layer gpt_bigcode_layer(const ConfigContext& context, int) {
  Layer layer;
  AttentionConfig shape = read_attention(context);
  if (context.fields.flag("multi_query", true)) shape.kv_heads = 1;
  add_attention(layer, context, shape);
  add_mlp(layer, context, mlp_width(context));
  add_norms(layer, context, 2);
  return layer;
}

Layer chatglm_layer(const ConfigContext& context, int) {
  const Fields& fields = context.fields;
  Layer layer;
  AttentionConfig shape = read_attention(context);
  if (fields.flag("multi_query_attention", false)) {
    shape.kv_heads = fields.integer({"multi_query_group_num"}, 1, kMaxHeads);
    if (shape.heads % shape.kv_heads != 0) {
      throw Error("{}: num_attention_heads ({}) must be a multiple of multi_query_group_num ({})",
                  fields.where(), shape.heads, shape.kv_heads);
    }
  }
  add_attention(layer, context, shape);
  add_mlp(layer, context, fields.integer({"ffn_hidden_size"}, 1, kMaxWidth));
  add_norms(layer, context, 2);
  return layer;
}

Layer mpt_layer(const ConfigContext& context, int) {
  const Fields& fields = context.fields;
  Layer layer;
  Fields attention = fields.object("attn_config");
  AttentionConfig shape = read_attention(context);
  std::string type = attention.text("attn_type").value_or("multihead_attention");
  if (type == "multiquery_attention") {
    shape.kv_heads = 1;
  } else if (type == "grouped_query_attention") {
    shape.kv_heads = attention.integer({"kv_n_heads"}, 1, shape.heads);
  } else if (type != "multihead_attention") {
    throw Error("{}: attn_type \"{}\" is not known", attention.where(), type);
  }
  if (!fields.flag("no_bias", true)) shape.qkv_bias = shape.o_bias = true;
  add_attention(layer, context, shape);
  int64_t ratio = fields.integer_or({"expansion_ratio"}, 4, 1, 64);
  add_mlp(layer, context, ratio * context.hidden);
  for (Linear& linear : layer.linears) linear.bias = !fields.flag("no_bias", true);
  add_norms(layer, context, 2);
  return layer;
}

Layer dbrx_layer(const ConfigContext& context, int) {
  const Fields& fields = context.fields;
  Layer layer;
  Fields attention = fields.object("attn_config");
  Fields ffn = fields.object("ffn_config");
  AttentionConfig shape = read_attention(context);
  shape.kv_heads = attention.integer_or({"kv_n_heads"}, shape.heads, 1, shape.heads);
  if (shape.heads % shape.kv_heads != 0) {
    throw Error("{}: n_heads ({}) must be a multiple of kv_n_heads ({})", attention.where(),
                shape.heads, shape.kv_heads);
  }
  add_attention(layer, context, shape);
  MoeShape moe;
  moe.experts = ffn.integer({"moe_num_experts"}, 1, kMaxExperts);
  moe.top_k = ffn.integer({"moe_top_k"}, 1, moe.experts);
  moe.width = ffn.integer({"ffn_hidden_size"}, 1, kMaxWidth);
  add_moe(layer, context, moe);
  add_norms(layer, context, 2);
  return layer;
}

// Qwen (the first): the stated width counts gate and up together.
Layer qwen1_layer(const ConfigContext& context, int) {
  Layer layer;
  add_attention(layer, context, read_attention(context));
  add_mlp(layer, context, std::max<int64_t>(mlp_width(context) / 2, 1));
  add_norms(layer, context, 2);
  return layer;
}

// GLM-5: some layers reuse the tokens an earlier layer's indexer picked.
Layer glm_dsa_layer(const ConfigContext& context, int index) {
  const Fields& fields = context.fields;
  bool own = true;
  auto types = fields.texts("indexer_types");
  if (!types.empty()) {
    if (int64_t(types.size()) != context.layers) {
      throw Error("{}: indexer_types has {} entries for {} layers", fields.where(), types.size(),
                  context.layers);
    }
    own = types[size_t(index)] != "shared";
  } else if (fields.has("index_topk_pattern")) {
    throw Error("{}: index_topk_pattern is not supported: write indexer_types", fields.where());
  } else {
    int64_t every = fields.integer_or({"index_topk_freq"}, 1, 1, kMaxLayers);
    int64_t offset = fields.integer_or({"index_skip_topk_offset"}, 2, 0, kMaxLayers);
    own = std::max<int64_t>(index - offset + 1, 0) % every == 0;
  }
  Layer layer;
  add_mla(layer, context, own);
  if (!own) layer.mixer.index_topk = int(fields.integer({"index_topk"}, 1, 1 << 30));
  add_ffn(layer, context, index);
  add_norms(layer, context, 2);
  return layer;
}

// Multi-matrix factorization attention: queries through a low rank, one key-value head.
Layer step3_layer(const ConfigContext& context, int index) {
  const Fields& fields = context.fields;
  Layer layer;
  int64_t heads = fields.integer({"num_attention_heads"}, 1, kMaxHeads);
  int64_t dim = fields.integer({"head_dim"}, 1, 65536);
  int64_t rank = fields.integer({"share_q_dim"}, 1, kMaxWidth);
  int64_t groups = fields.integer_or({"num_attention_groups"}, 1, 1, kMaxHeads);
  if (heads * dim > kMaxWidth || heads % groups != 0) {
    throw Error("{}: num_attention_heads ({}) does not fit head_dim or num_attention_groups",
                fields.where(), heads);
  }
  Mixer& mixer = layer.mixer;
  mixer.heads = int(heads);
  mixer.kv_heads = int(groups);
  mixer.head_dim = mixer.v_head_dim = int(dim);
  mixer.q_rank = int(rank);
  add_linear(layer, replicated("q_proj", Stage::mixer_down, context.hidden, rank));
  add_linear(layer, replicated("k_proj", Stage::mixer_down, context.hidden, groups * dim));
  add_linear(layer, replicated("v_proj", Stage::mixer_down, context.hidden, groups * dim));
  add_linear(layer, column("wq", Stage::mixer_up_q, rank, heads * dim, heads));
  add_linear(layer, row("o_proj", Stage::mixer_out, heads * dim, context.hidden, heads));
  layer.other_parameters += norm_parameters(NormKind::rms, rank);

  // "4,5,6,...": the layers with experts; absent: all but the first.
  bool sparse = index > 0;
  if (auto text = fields.text("moe_layers_enum")) {
    sparse = ("," + *text + ",").find(fmt::format(",{},", index)) != std::string::npos;
  }
  if (sparse) {
    add_moe(layer, context, read_moe(context));
  } else {
    add_mlp(layer, context, mlp_width(context));
  }
  add_norms(layer, context, 2);
  return layer;
}

// NVIDIA's pruned Llamas: every block has its own attention and MLP, or none.
Layer deci_layer(const ConfigContext& context, int index) {
  const Fields& fields = context.fields;
  if (!fields.has("block_configs")) fields.missing({"block_configs"});
  const auto& blocks = fields.json().at("block_configs");
  if (!blocks.is_array() || int64_t(blocks.size()) != context.layers) {
    throw Error("{}: block_configs must be a list of {} blocks", fields.where(), context.layers);
  }
  Fields block(blocks[size_t(index)], fmt::format("{}: block_configs[{}]", fields.where(), index));
  Fields attention = block.object("attention"), ffn = block.object("ffn");
  Layer layer;
  layer.mixer.kind = MixerKind::none;
  int norms = 0;
  if (attention.flag("replace_with_linear", false)) {
    throw Error("{}: replace_with_linear is not supported", attention.where());
  }
  if (ffn.flag("replace_with_linear", false)) {
    throw Error("{}: replace_with_linear is not supported", ffn.where());
  }
  if (!attention.flag("no_op", false)) {
    AttentionConfig shape = read_attention(context);
    int64_t group = attention.integer({"n_heads_in_group"}, 1, shape.heads);
    if (shape.heads % group != 0) {
      throw Error("{}: n_heads_in_group ({}) must divide the heads ({})", attention.where(), group,
                  shape.heads);
    }
    shape.kv_heads = shape.heads / group;
    add_attention(layer, context, shape);
    ++norms;
  }
  if (!ffn.flag("no_op", false)) {
    auto multiple = ffn.number("ffn_mult", 0.001, 64);
    if (!multiple) ffn.missing({"ffn_mult"});
    // As in the model's own code: two thirds of the multiple, rounded up to 256.
    int64_t width = int64_t(2 * *multiple * double(context.hidden) / 3);
    width = (std::max<int64_t>(width, 1) + 255) / 256 * 256;
    if (width > kMaxWidth) throw Error("{}: ffn_mult makes the MLP {} wide", ffn.where(), width);
    add_mlp(layer, context, width);
    ++norms;
  }
  add_norms(layer, context, norms);
  return layer;
}

// Local and global layers alternate; the config may spell the list out or as repeated patterns.
Layer gpt_neo_layer(const ConfigContext& context, int index) {
  const Fields& fields = context.fields;
  Layer layer;
  add_attention(layer, context, read_attention(context));
  auto types = fields.texts("attention_layers");
  if (types.empty()) fields.missing({"attention_layers"});
  if (int64_t(types.size()) != context.layers) {
    throw Error("{}: attention_layers has {} entries for {} layers", fields.where(), types.size(),
                context.layers);
  }
  if (types[size_t(index)] == "local") {
    layer.mixer.window = int(fields.integer({"window_size"}, 1, 1 << 30));
  }
  add_mlp(layer, context, mlp_width(context));
  add_norms(layer, context, 2);
  return layer;
}

// OpenELM: heads and MLP widths grow with depth, one figure a layer.
Layer openelm_layer(const ConfigContext& context, int index) {
  const Fields& fields = context.fields;
  auto heads = fields.integers("num_query_heads", 1, kMaxHeads);
  auto kv_heads = fields.integers("num_kv_heads", 1, kMaxHeads);
  const char* key = "ffn_multipliers";
  if (!fields.has(key)) fields.missing({key});
  const auto& multipliers = fields.json().at(key);
  size_t layers = size_t(context.layers), at = size_t(index);
  if (heads.size() != layers || kv_heads.size() != layers || !multipliers.is_array() ||
      multipliers.size() != layers || !multipliers[at].is_number()) {
    throw Error("{}: num_query_heads, num_kv_heads and {} must have {} numbers each",
                fields.where(), key, layers);
  }
  AttentionConfig shape;
  shape.heads = heads[at];
  shape.kv_heads = kv_heads[at];
  shape.head_dim = fields.integer({"head_dim"}, 1, 65536);
  if (shape.heads % shape.kv_heads != 0 || shape.heads * shape.head_dim > kMaxWidth) {
    throw Error("{}: num_query_heads ({}) does not fit num_kv_heads or head_dim", fields.where(),
                shape.heads);
  }
  if (fields.flag("normalize_qk_projections", false)) shape.qk_norm = QkNorm::head;
  double divisor = double(fields.integer_or({"ffn_dim_divisor"}, 256, 1, 65536));
  double raw = multipliers[at].get<double>() * double(context.hidden);
  if (!(raw > 0 && raw < double(kMaxWidth))) {
    throw Error("{}: {} makes layer {} {:g} wide", fields.where(), key, index, raw);
  }
  // To the nearest multiple of the divisor, never more than a tenth down.
  double width = std::max(divisor, std::floor((raw + divisor / 2) / divisor) * divisor);
  if (width < 0.9 * raw) width += divisor;
  Layer layer;
  add_attention(layer, context, shape);
  add_mlp(layer, context, int64_t(width));
  add_norms(layer, context, 2);
  return layer;
}

}  // namespace ridge
