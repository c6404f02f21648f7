// What executing Gemma, gpt-oss, DeepSeek and Llama 4 needs beyond the other families.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/half.h"
#include "model/config_build.h"

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

const Layer* first_with_experts(const Model& model) {
  for (const LayerGroup& group : model.groups) {
    if (group.layer.has_moe()) return &group.layer;
  }
  return nullptr;
}

// `topk_group` of `n_group` groups take part: 4 of 8, where a config of DeepSeek-V3 does not say.
void set_groups(RouterRules& routing, const Model& model, const Fields& fields) {
  const Layer* layer = first_with_experts(model);
  if (layer == nullptr) return;
  const int experts = layer->experts, top_k = layer->top_k;
  routing.groups = int(fields.integer_or({"n_group"}, 8, 1, experts));
  routing.top_groups =
      int(fields.integer_or({"topk_group"}, std::min(4, routing.groups), 1, routing.groups));
  const int each = experts / routing.groups;
  if (experts % routing.groups != 0 || top_k > each * routing.top_groups) {
    throw Error("{}: {} experts in {} groups, {} of them for {} experts per token, is not possible",
                fields.where(), experts, routing.groups, routing.top_groups, top_k);
  }
}

float rounded_scale(const Fields& outer, const Fields& fields, int hidden) {
  const float exact = float(std::sqrt(double(hidden)));
  for (const Fields* each : {&fields, &outer}) {
    for (const char* key : {"torch_dtype", "dtype"}) {
      auto name = each->text(key);
      if (!name) continue;
      if (name->ends_with("float32")) return exact;
      if (*name == "float16") return f16_to_f32(f32_to_f16(exact));
    }
  }
  return bf16_to_f32(f32_to_bf16(exact));
}

}  // namespace

void finish_deepseek(Execution& made, const Model& model, const ConfigContext& context,
                     const Fields&) {
  const Fields& fields = context.fields;
  const bool third = made.family == "deepseek_v3";
  if (model.groups[0].layer.mixer.kind != MixerKind::mla) {
    throw Error("{}: use_mla false is not executed for {}", fields.where(), made.family);
  }
  if (!fields.json().contains("q_lora_rank")) fields.missing({"q_lora_rank"});
  made.routing.scale =
      float(fields.number("routed_scaling_factor", 1e-6, 1e6).value_or(third ? 2.5 : 1));
  if (third) {
    refuse_value(fields, "topk_method", "noaux_tc");
    refuse_value(fields, "scoring_func", "sigmoid");
    made.routing.sigmoid = made.routing.correction = true;
    made.interleaved_rope = fields.flag("rope_interleave", true);
    set_groups(made.routing, model, fields);
  } else {
    refuse_value(fields, "scoring_func", "softmax");
    if (made.normalize_top_k) {
      throw Error("{}: norm_topk_prob is not executed for {}", fields.where(), made.family);
    }
    if (fields.text("topk_method") == "group_limited_greedy") {
      if (!fields.has("n_group")) fields.missing({"n_group"});
      if (!fields.has("topk_group")) fields.missing({"topk_group"});
      set_groups(made.routing, model, fields);
    } else {
      refuse_value(fields, "topk_method", "greedy");
    }
  }
  if (fields.integer_or({"moe_layer_freq"}, 1, 1, kMaxLayers) != 1) {
    throw Error("{}: moe_layer_freq is executed at 1 only", fields.where());
  }
}

void finish_gemma(Execution& made, const Model& model, const ConfigContext& context,
                  const Fields& outer) {
  const Fields& fields = context.fields;
  const bool second = made.family == "gemma2";
  made.norm_plus_one = true;
  made.activation = Activation::gelu_tanh;
  made.embed_scale = rounded_scale(outer, fields, model.hidden);
  made.query_scale =
      float(1 / std::sqrt(fields.number("query_pre_attn_scalar", 1e-3, 1e9).value_or(256)));
  // Gemma 2 has soft caps unless the config sets them to null.
  auto cap = [&](const char* key, double otherwise) {
    if (!fields.json().contains(key)) return float(otherwise);
    return float(fields.number(key, 0, 1e9).value_or(0));
  };
  made.attention_softcap = cap("attn_logit_softcapping", second ? 50 : 0);
  made.logit_softcap = cap("final_logit_softcapping", second ? 30 : 0);
}

void finish_gpt_oss(Execution& made, const Model&, const ConfigContext& context, const Fields&) {
  const Fields& fields = context.fields;
  if (!fields.flag("attention_bias", true)) {
    throw Error("{}: attention_bias false is not executed for gpt_oss", fields.where());
  }
  const double limit = double(kSwigluLimit);
  if (fields.number("swiglu_limit", 0, 1e9).value_or(limit) != limit) {
    throw Error("{}: swiglu_limit is executed at {} only", fields.where(), limit);
  }
  made.sinks = true;
  made.activation = Activation::clamped_swiglu;
}

void finish_llama4(Execution& made, const Model&, const ConfigContext& context, const Fields&) {
  const Fields& fields = context.fields;
  made.ropes.emplace_back();  // of layers without RoPE
  const std::vector<int64_t> rotary = fields.integers("no_rope_layers", 0, 1);
  const int64_t interval = fields.integer_or({"no_rope_layer_interval"}, 4, 1, kMaxLayers);
  const size_t count = made.rope_of_layer.size();
  if (!rotary.empty() && rotary.size() != count) {
    throw Error("{}: no_rope_layers and layer_types need {} entries", fields.where(), count);
  }
  for (size_t i = 0; i < count; ++i) {
    const bool rotates = rotary.empty() ? int64_t(i + 1) % interval != 0 : rotary[i] == 1;
    made.rope_of_layer[i] = rotates ? 0 : 1;
    // Without a chunk every layer sees the whole context in a prediction; no model runs so.
    const bool chunked =
        context.layer_types.empty() ? rotates : context.layer_types[i] == "chunked_attention";
    if (chunked && fields.json().contains("attention_chunk_size") &&
        !fields.has("attention_chunk_size")) {
      fields.missing({"attention_chunk_size"});
    }
  }
  made.unit_qk = fields.flag("use_qk_norm", true);
  made.routing.sigmoid = made.routing.scales_input = true;
  if (!is_on(fields, "attn_temperature_tuning")) return;
  made.temperature_scale = float(fields.number("attn_scale", 0, 1e6).value_or(0.1));
  made.temperature_floor = float(fields.number("floor_scale", 1, 1e12).value_or(8192));
}

}  // namespace ridge
