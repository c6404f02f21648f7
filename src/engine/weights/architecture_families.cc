#include "engine/weights/architecture_families.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/rope.h"

namespace ridge {

namespace {

void refuse_value(const Fields& fields, const char* key, std::string_view only) {
  const auto given = fields.text(key);
  if (given && *given != only) {
    throw Error("{}: {} \"{}\" is not executed, only \"{}\" is", fields.where(), key,
                given->substr(0, 40), only);
  }
}

// True unless the config says no. Llama 4's first configs say 4.
bool is_on(const Fields& fields, const char* key) {
  if (!fields.has(key) || !fields.json().at(key).is_number()) return fields.flag(key, true);
  return *fields.number(key, 0, 1e9) != 0;
}

// `topk_group` of `n_group` groups take part: 4 of 8, where a config of DeepSeek-V3 does not say.
void set_groups(Architecture& made, const Fields& fields) {
  RouterRules& routing = made.routing;
  routing.groups = int(fields.integer_or({"n_group"}, 8, 1, made.experts));
  routing.top_groups =
      int(fields.integer_or({"topk_group"}, std::min(4, routing.groups), 1, routing.groups));
  const int each = made.experts / routing.groups;
  if (made.experts % routing.groups != 0 || made.top_k > each * routing.top_groups) {
    throw Error("{}: {} experts in {} groups, {} of them for {} experts per token, is not possible",
                fields.where(), made.experts, routing.groups, routing.top_groups, made.top_k);
  }
}

}  // namespace

void set_latent_attention(Architecture& made, const Fields& fields) {
  LatentAttention& latent = made.latent;
  if (!fields.json().contains("q_lora_rank")) fields.missing({"q_lora_rank"});
  latent.q_rank = int(fields.integer_or({"q_lora_rank"}, 0, 1, kMaxWidth));
  latent.kv_rank = int(fields.integer_or({"kv_lora_rank"}, 512, 1, kMaxWidth));
  constexpr int64_t kMaxHeadDim = 8192;
  latent.nope = int(fields.integer_or({"qk_nope_head_dim"}, 128, 1, kMaxHeadDim));
  latent.rope = int(fields.integer_or({"qk_rope_head_dim"}, 64, 1, kMaxHeadDim));
  latent.value = int(fields.integer_or({"v_head_dim"}, 128, 1, kMaxHeadDim));
  constexpr int kMaxRow = 1024;
  if (latent.kv_rank % 8 != 0 || latent.rope % 8 != 0 || latent.kv_rank + latent.rope > kMaxRow) {
    throw Error(
        "{}: kv_lora_rank {} and qk_rope_head_dim {} are not executed: multiples of 8 are, of "
        "together at most {}",
        fields.where(), latent.kv_rank, latent.rope, kMaxRow);
  }
  made.kv_heads = 1;
  made.head_dim = latent.kv_rank + latent.rope;
  const int64_t widest = std::max({made.head_dim, latent.q_head(), latent.nope + latent.value});
  if (made.heads * widest > kMaxWidth) {
    throw Error("{}: {} heads of {} are more than {}", fields.where(), made.heads, widest,
                kMaxWidth);
  }
}

void set_deepseek_experts(Architecture& made, const Fields& fields, std::string_view family) {
  const bool third = family == "deepseek_v3";
  made.expert_ffn = int(fields.integer({"moe_intermediate_size"}, 1, kMaxWidth));
  const int64_t shared = fields.integer_or({"n_shared_experts"}, 0, 0, kMaxExperts);
  if (shared * made.expert_ffn > kMaxWidth) {
    throw Error("{}: the shared experts are wider than {}", fields.where(), kMaxWidth);
  }
  made.shared_ffn = int(shared * made.expert_ffn);
  made.normalize_top_k = fields.flag("norm_topk_prob", third);
  made.routing.scale =
      float(fields.number("routed_scaling_factor", 1e-6, 1e6).value_or(third ? 2.5 : 1));
  if (third) {
    refuse_value(fields, "topk_method", "noaux_tc");
    refuse_value(fields, "scoring_func", "sigmoid");
    made.routing.sigmoid = made.routing.correction = true;
    set_groups(made, fields);
  } else {
    refuse_value(fields, "scoring_func", "softmax");
    if (made.normalize_top_k) {
      throw Error("{}: norm_topk_prob is not executed for {}", fields.where(), family);
    }
    if (fields.text("topk_method") == "group_limited_greedy") {
      if (!fields.has("n_group")) fields.missing({"n_group"});
      if (!fields.has("topk_group")) fields.missing({"topk_group"});
      set_groups(made, fields);
    } else {
      refuse_value(fields, "topk_method", "greedy");
    }
  }
  if (fields.integer_or({"moe_layer_freq"}, 1, 1, kMaxLayers) != 1) {
    throw Error("{}: moe_layer_freq is executed at 1 only", fields.where());
  }
  const int64_t dense = fields.integer_or({"first_k_dense_replace"}, third ? 3 : 0, 0, kMaxLayers);
  for (int i = 0; i < made.layer_count(); ++i) made.layers[size_t(i)].moe = i >= dense;
  if (dense > 0) made.ffn = int(fields.integer({"intermediate_size"}, 1, kMaxWidth));
}

float latent_query_scale(const Architecture& made, const Fields& scaling) {
  return float(yarn_softmax_scale(scaling, double(made.max_context)) /
               std::sqrt(double(made.latent.q_head())));
}

void set_llama4_attention(Architecture& made, const Fields& fields) {
  const auto count = made.layers.size();
  const std::vector<int64_t> rotary = fields.integers("no_rope_layers", 0, 1);
  const std::vector<std::string> types = fields.texts("layer_types");
  const int64_t interval = fields.integer_or({"no_rope_layer_interval"}, 4, 1, kMaxLayers);
  if ((!rotary.empty() && rotary.size() != count) || (!types.empty() && types.size() != count)) {
    throw Error("{}: no_rope_layers and layer_types need {} entries", fields.where(), count);
  }
  int64_t chunk = fields.integer_or({"attention_chunk_size"}, 0, 1, int64_t{1} << 30);
  if (!fields.json().contains("attention_chunk_size")) chunk = 8192;
  for (size_t i = 0; i < count; ++i) {
    LayerShape& layer = made.layers[i];
    const bool rotates = rotary.empty() ? int64_t(i + 1) % interval != 0 : rotary[i] == 1;
    layer.rope = rotates ? 0 : 1;
    layer.chunked = types.empty() ? rotates : types[i] == "chunked_attention";
    if (!types.empty() && !layer.chunked && types[i] != "full_attention") {
      throw Error("{}: layer_types: \"{}\" is not executed", fields.where(),
                  types[i].substr(0, 40));
    }
    if (!layer.chunked) continue;
    if (chunk == 0) fields.missing({"attention_chunk_size"});
    layer.window = int(chunk);
  }
  made.unit_qk = fields.flag("use_qk_norm", true);
  if (!is_on(fields, "attn_temperature_tuning")) return;
  made.temperature_scale = float(fields.number("attn_scale", 0, 1e6).value_or(0.1));
  made.temperature_floor = float(fields.number("floor_scale", 1, 1e12).value_or(8192));
}

void set_llama4_experts(Architecture& made, const Fields& fields) {
  made.expert_ffn = made.shared_ffn = int(fields.integer({"intermediate_size"}, 1, kMaxWidth));
  made.routing.sigmoid = made.routing.scales_input = true;
  const std::vector<int64_t> listed = fields.integers("moe_layers", 0, kMaxLayers);
  const int64_t step = fields.integer_or({"interleave_moe_layer_step"}, 1, 1, kMaxLayers);
  bool any_dense = false;
  for (int i = 0; i < made.layer_count(); ++i) {
    const bool moe = listed.empty() ? (i + 1) % step == 0
                                    : std::find(listed.begin(), listed.end(), i) != listed.end();
    made.layers[size_t(i)].moe = moe;
    any_dense = any_dense || !moe;
  }
  if (any_dense) {
    made.ffn = int(fields.integer_or({"intermediate_size_mlp"}, 16384, 1, kMaxWidth));
  }
}

}  // namespace ridge
