// Converts a Hugging Face config to an Architecture. Fields that a config omits take the defaults
// of transformers' configuration classes.
#include "engine/weights/architecture.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "engine/weights/architecture_families.h"
#include "model/rope.h"
#include "engine/weights/storage.h"
#include "model/config_fields.h"

namespace ridge {

namespace {

using nlohmann::json;

// Differences between the families; numbers are the defaults of the configuration classes.
struct Family {
  const char* type;
  double theta = 10000;
  double eps = 1e-6;
  int64_t head_dim = 0;  // 0: hidden / heads
  int64_t heads = 0;     // 0: required
  int64_t kv_heads = 0;  // 0: heads
  int64_t vocab = 0;     // 0: required
  bool gemma = false;    // GeGLU, (1 + w) norms before and after, scaled embeddings, tied
  bool qkv_bias = false;
  bool qk_norm = false;
  bool attention_bias = true;  // the attention_bias flag adds biases to all four projections
  bool experts = false;
  double rotary = 0;        // default of partial_rotary_factor; 0: only 1 is executed
  bool post_norms = false;  // norms after the blocks, as Gemma's
  bool interleaved_rope = false;
};

constexpr Family kFamilies[] = {
    {.type = "llama"},
    {.type = "mistral", .kv_heads = 8, .attention_bias = false},
    {.type = "qwen2", .kv_heads = 32, .qkv_bias = true, .attention_bias = false},
    {.type = "qwen3", .head_dim = 128, .kv_heads = 32, .qk_norm = true},
    {.type = "gemma2", .head_dim = 256, .heads = 8, .kv_heads = 4, .vocab = 256000, .gemma = true},
    {.type = "gemma3_text",
     .theta = 1e6,
     .head_dim = 256,
     .heads = 8,
     .kv_heads = 4,
     .vocab = 262208,
     .gemma = true,
     .qk_norm = true},
    {.type = "mixtral",
     .theta = 1e6,
     .eps = 1e-5,
     .kv_heads = 8,
     .attention_bias = false,
     .experts = true},
    {.type = "qwen3_moe", .kv_heads = 4, .qk_norm = true, .experts = true},
    {.type = "phi3", .eps = 1e-5, .attention_bias = false, .rotary = 1},
    {.type = "glm4",
     .eps = 1.5625e-7,
     .head_dim = 128,
     .kv_heads = 2,
     .vocab = 151552,
     .attention_bias = false,
     .rotary = 0.5,
     .post_norms = true,
     .interleaved_rope = true},
    {.type = "gpt_oss",
     .theta = 150000,
     .eps = 1e-5,
     .head_dim = 64,
     .kv_heads = 8,
     .vocab = 201088,
     .attention_bias = false,
     .experts = true},
    {.type = "deepseek_v2", .experts = true, .interleaved_rope = true},
    {.type = "deepseek_v3", .experts = true, .interleaved_rope = true},
    {.type = "llama4_text",
     .theta = 500000,
     .eps = 1e-5,
     .head_dim = 128,
     .heads = 40,
     .kv_heads = 8,
     .vocab = 202048,
     .experts = true,
     .interleaved_rope = true},
};

bool is_deepseek(const Family& family) {
  return std::string_view(family.type).starts_with("deepseek");
}

const Family& family_of(const Fields& fields) {
  auto type = fields.text("model_type");
  if (!type) fields.missing({"model_type"});
  const std::string_view text = *type == "gemma3"   ? "gemma3_text"
                                : *type == "llama4" ? "llama4_text"
                                                    : std::string_view(*type);
  for (const Family& family : kFamilies) {
    if (text == family.type) return family;
  }
  throw Error(
      "{}: {} is predicted, not executed; the engine runs llama, mistral, qwen2, qwen3, gemma2, "
      "gemma3, mixtral, qwen3_moe, phi3, glm4, gpt_oss, deepseek_v2, deepseek_v3, llama4",
      fields.where(), type->substr(0, 80));
}

void refuse_flag(const Fields& fields, const char* key, const char* what) {
  if (fields.flag(key, false)) {
    throw Error("{}: {}: {} is not executed by the engine", fields.where(), key, what);
  }
}

// Whether the loader reads the weights of such a quantization_config: MXFP4 experts of gpt-oss, and
// fp8 (load_fp8.cc) of the other families.
bool reads_quantized(const Fields& quantization, const Family& family) {
  const std::string method = quantization.text("quant_method").value_or("modelopt");
  if (family.type == std::string_view("gpt_oss")) return method == "mxfp4";
  if (method == "fp8" || method == "fbgemm_fp8") return true;
  if (method == "modelopt") return quantization.text("quant_algo") == "FP8";
  if (method != "compressed-tensors") return false;
  const Fields groups = quantization.object("config_groups");
  for (const auto& [key, group] : groups.json().items()) {
    const Fields weights = Fields(group, groups.where() + ": " + key).object("weights");
    if (weights.text("type") != "float" || weights.integer_or({"num_bits"}, 0, 0, 64) != 8) {
      return false;
    }
  }
  return !groups.json().empty();
}

void refuse_variants(const Fields& outer, const Fields& fields, const Family& family) {
  for (const Fields* each : {&outer, &fields}) {
    for (const char* key : {"quantization_config", "compression_config"}) {
      if (each->has(key) && !reads_quantized(each->object(key), family)) {
        throw Error(
            "{}: {}: checkpoints quantized in this way are predicted, not executed; 16-bit and fp8 "
            "weights and GGUFs are",
            each->where(), key);
      }
    }
  }
  refuse_flag(fields, "mlp_bias", "a bias in the MLP");
  refuse_flag(fields, "use_bidirectional_attention", "attention to later tokens");
  if (family.attention_bias) refuse_flag(fields, "attention_bias", "a bias of the output matrix");
  const char* key = family.gemma ? "hidden_activation" : "hidden_act";
  auto activation = fields.text(key);
  bool known = !activation || (family.gemma ? *activation == "gelu_pytorch_tanh"
                                            : *activation == "silu" || *activation == "swish");
  if (!known) {
    throw Error("{}: {} \"{}\" is not executed for {}", fields.where(), key,
                activation->substr(0, 40), family.type);
  }
}

void set_sizes(Architecture& made, const Fields& fields, const Family& family) {
  auto integer = [&](Fields::Keys keys, int64_t otherwise, int64_t high) {
    if (otherwise == 0) return int(fields.integer(keys, 1, high));
    return int(fields.integer_or(keys, otherwise, 1, high));
  };
  made.hidden = integer({"hidden_size"}, 0, kMaxWidth);
  made.vocab = integer({"vocab_size"}, family.vocab, kMaxVocab);
  made.heads = integer({"num_attention_heads"}, family.heads, kMaxHeads);
  made.layers.resize(size_t(fields.integer({"num_hidden_layers"}, 1, kMaxLayers)));
  made.max_context = int(fields.integer_or({"max_position_embeddings"}, 0, 0, int64_t{1} << 30));
  if (is_deepseek(family)) return set_latent_attention(made, fields);
  made.kv_heads =
      integer({"num_key_value_heads"}, family.kv_heads ? family.kv_heads : made.heads, kMaxHeads);
  if (made.heads % made.kv_heads != 0) {
    throw Error("{}: {} attention heads do not divide among {} key-value heads", fields.where(),
                made.heads, made.kv_heads);
  }
  int64_t head_dim = family.head_dim;
  if (head_dim == 0 && !fields.has("head_dim")) {
    if (made.hidden % made.heads != 0) {
      throw Error("{}: hidden_size {} does not divide among {} heads", fields.where(), made.hidden,
                  made.heads);
    }
    head_dim = made.hidden / made.heads;
  }
  constexpr int64_t kMaxHeadDim = 8192;
  made.head_dim = int(head_dim > 0 ? fields.integer_or({"head_dim"}, head_dim, 1, kMaxHeadDim)
                                   : fields.integer({"head_dim"}, 1, kMaxHeadDim));
  if (made.head_dim % 2 != 0 || int64_t{made.heads} * made.head_dim > kMaxWidth) {
    throw Error("{}: {} heads of {} are not possible (even, together at most {})", fields.where(),
                made.heads, made.head_dim, kMaxWidth);
  }
}

void set_experts(Architecture& made, const Fields& fields, const Family& family) {
  if (!family.experts) {
    made.ffn = int(fields.integer({"intermediate_size"}, 1, kMaxWidth));
    return;
  }
  const bool mixtral = family.type == std::string_view("mixtral");
  // Every expert of every layer has entries in a list; this bound keeps that list small.
  constexpr int64_t kMostMatrices = 1 << 17;
  made.experts = int(fields.integer({"num_local_experts", "num_experts", "n_routed_experts"}, 1,
                                    kMostMatrices / made.layer_count()));
  made.top_k = int(fields.integer({"num_experts_per_tok"}, 1, made.experts));
  if (is_deepseek(family)) return set_deepseek_experts(made, fields, family.type);
  if (family.type == std::string_view("llama4_text")) return set_llama4_experts(made, fields);
  const bool gpt_oss = family.type == std::string_view("gpt_oss");
  made.normalize_top_k = mixtral || gpt_oss || fields.flag("norm_topk_prob", false);
  std::vector<int64_t> dense;
  int64_t step = 1;
  if (mixtral) {
    made.expert_ffn = int(fields.integer({"intermediate_size"}, 1, kMaxWidth));
  } else if (gpt_oss) {
    made.expert_ffn =
        int(fields.integer({"moe_intermediate_size", "intermediate_size"}, 1, kMaxWidth));
  } else {
    made.expert_ffn = int(fields.integer({"moe_intermediate_size"}, 1, kMaxWidth));
    dense = fields.integers("mlp_only_layers", 0, kMaxLayers);
    step = fields.integer_or({"decoder_sparse_step"}, 1, 1, kMaxLayers);
  }
  bool any_dense = false;
  for (int i = 0; i < made.layer_count(); ++i) {
    const bool only = std::find(dense.begin(), dense.end(), i) != dense.end();
    made.layers[size_t(i)].moe = !only && (i + 1) % step == 0;
    any_dense = any_dense || !made.layers[size_t(i)].moe;
  }
  if (any_dense) made.ffn = int(fields.integer({"intermediate_size"}, 1, kMaxWidth));
}

// Whether a layer uses sliding-window attention, when layer_types does not say so.
bool slides(const Fields& fields, const Family& family, int layer) {
  const std::string_view type = family.type;
  if (type == "gemma2" || type == "gpt_oss") return layer % 2 == 0;
  if (type == "gemma3_text") {
    return (layer + 1) % fields.integer_or({"sliding_window_pattern", "_sliding_window_pattern"}, 6,
                                           1, kMaxLayers) !=
           0;
  }
  if (type == "qwen2" || type == "qwen3") {
    return layer >= fields.integer_or({"max_window_layers"}, 28, 0, kMaxLayers);
  }
  return true;
}

void set_windows(Architecture& made, const Fields& fields, const Family& family) {
  const std::string_view type = family.type;
  if (made.latent) return;
  if (type == "llama4_text") return set_llama4_attention(made, fields);
  int64_t window = fields.integer_or({"sliding_window"}, 0, 0, int64_t{1} << 30);
  const bool absent = !fields.json().contains("sliding_window");
  // An explicit null means no window.
  if (absent && (family.gemma || type == "mistral")) window = 4096;
  if (absent && type == "gpt_oss") window = 128;
  if (type.starts_with("qwen") && !fields.flag("use_sliding_window", false)) window = 0;
  if (type == "llama" && !fields.has("layer_types")) window = 0;  // not a field of Llama configs
  const std::vector<std::string> types = fields.texts("layer_types");
  if (!types.empty() && types.size() != made.layers.size()) {
    throw Error("{}: layer_types has {} entries for {} layers", fields.where(), types.size(),
                made.layers.size());
  }
  for (size_t i = 0; i < made.layers.size(); ++i) {
    bool sliding = types.empty() ? window > 0 && slides(fields, family, int(i))
                                 : types[i] == "sliding_attention";
    if (!types.empty() && !sliding && types[i] != "full_attention") {
      throw Error("{}: layer_types: \"{}\" is not executed", fields.where(),
                  types[i].substr(0, 40));
    }
    if (sliding && window == 0) fields.missing({"sliding_window"});
    made.layers[i].window = sliding ? int(window) : 0;
  }
}

// Rotated elements of a head.
int rotary_dims(const Architecture& made, const Fields& fields, const Fields& scaling,
                const Family& family) {
  if (made.latent) return made.latent.rope;
  auto given = scaling.number("partial_rotary_factor", 0, 1);
  if (!given) given = fields.number("partial_rotary_factor", 0, 1);
  const double part = given.value_or(family.rotary > 0 ? family.rotary : 1);
  if (part != 1 && family.rotary == 0) {
    throw Error("{}: partial_rotary_factor {} is not executed for {}, only 1 is", fields.where(),
                part, family.type);
  }
  const int dims = int(made.head_dim * part);
  if (dims < 2 || dims % 2 != 0) {
    throw Error("{}: partial_rotary_factor {} of heads of {} is no even number of elements",
                fields.where(), part, made.head_dim);
  }
  return dims;
}

// One RoPE, or two for Gemma 3: the scaled one for full-attention layers, a local one for sliding.
void set_ropes(Architecture& made, const Fields& fields, const Family& family) {
  const double theta = fields.number("rope_theta", 1.001, 1e15).value_or(family.theta);
  const bool newer = fields.has("rope_parameters");  // transformers 5
  const Fields scaling = fields.object(newer ? "rope_parameters" : "rope_scaling");
  const bool by_type = newer && scaling.has("full_attention");
  const Fields full = by_type ? scaling.object("full_attention") : scaling;
  const RopeSizes sizes{
      .dims = rotary_dims(made, fields, full, family),
      .max_context = double(made.max_context),
      .original_context = fields.number("original_max_position_embeddings", 2, 1e9).value_or(0)};
  made.ropes.push_back(make_rope(full, theta, sizes));
  if (family.type == std::string_view("llama4_text"))
    made.ropes.emplace_back();  // of no-RoPE layers
  if (made.latent) made.query_scale = latent_query_scale(made, full);
  if (family.type != std::string_view("gemma3_text")) return;
  const double local = fields.number("rope_local_base_freq", 1.001, 1e15).value_or(10000);
  const json none = json::object();
  const Fields sliding =
      by_type ? scaling.object("sliding_attention") : Fields(none, fields.where());
  made.ropes.push_back(make_rope(sliding, local, sizes));
  for (LayerShape& layer : made.layers) layer.rope = layer.window > 0 ? 1 : 0;
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

void set_gemma(Architecture& made, const Fields& outer, const Fields& fields,
               const Family& family) {
  made.norm_plus_one = made.post_norms = true;
  made.activation = Activation::gelu_tanh;
  made.embed_scale = rounded_scale(outer, fields, made.hidden);
  made.query_scale =
      float(1 / std::sqrt(fields.number("query_pre_attn_scalar", 1e-3, 1e9).value_or(256)));
  // Gemma 2 has soft caps unless the config sets them to null.
  auto cap = [&](const char* key, double otherwise) {
    if (!fields.json().contains(key)) return float(otherwise);
    return float(fields.number(key, 0, 1e9).value_or(0));
  };
  const bool second = family.type == std::string_view("gemma2");
  made.attention_softcap = cap("attn_logit_softcapping", second ? 50 : 0);
  made.logit_softcap = cap("final_logit_softcapping", second ? 30 : 0);
}

void set_gpt_oss(Architecture& made, const Fields& fields) {
  if (!fields.flag("attention_bias", true)) {
    throw Error("{}: attention_bias false is not executed for gpt_oss", fields.where());
  }
  const double limit = double(kSwigluLimit);
  if (fields.number("swiglu_limit", 0, 1e9).value_or(limit) != limit) {
    throw Error("{}: swiglu_limit is executed at {} only", fields.where(), limit);
  }
  made.qkv_bias = made.out_bias = made.expert_bias = made.sinks = true;
  made.activation = Activation::clamped_swiglu;
}

void add_ends(Architecture& made, const Fields& fields) {
  if (!fields.has("eos_token_id")) return;
  std::vector<int64_t> ids;
  if (fields.json().at("eos_token_id").is_array()) {
    ids = fields.integers("eos_token_id", -1, kMaxVocab);
  } else {
    ids.push_back(fields.integer({"eos_token_id"}, -1, kMaxVocab));
  }
  for (int64_t id : ids) {
    if (id >= 0 && std::find(made.ends.begin(), made.ends.end(), int(id)) == made.ends.end()) {
      made.ends.push_back(int(id));
    }
  }
}

}  // namespace

void add_generation_config(Architecture& architecture, const json& config,
                           const std::string& where) {
  const Fields fields(config, where);
  add_ends(architecture, fields);
  if (architecture.bos < 0) {
    architecture.bos = int(fields.integer_or({"bos_token_id"}, -1, -1, kMaxVocab));
  }
}

Architecture architecture_from_config(const json& config, const std::string& where) {
  const Fields outer(config, where);
  const Family& family = family_of(outer);
  const bool nested = outer.has("text_config");
  if (nested && outer.text("model_type") != "gemma3" && outer.text("model_type") != "llama4") {
    throw Error("{}: text_config is executed for gemma3 and llama4 only", where);
  }
  const Fields fields = nested ? outer.object("text_config") : outer;
  refuse_variants(outer, fields, family);
  Architecture made;
  made.family = family.type;
  set_sizes(made, fields, family);
  set_experts(made, fields, family);
  set_windows(made, fields, family);
  made.query_scale = float(1 / std::sqrt(double(made.head_dim)));
  set_ropes(made, fields, family);
  made.norm_eps = float(fields.number("rms_norm_eps", 0, 1).value_or(family.eps));
  made.qk_norm = family.qk_norm;
  // GLM-4's attention_bias covers q, k and v only.
  made.qkv_bias =
      family.qkv_bias || (made.family == "glm4" && fields.flag("attention_bias", false));
  made.post_norms = family.post_norms;
  made.interleaved_rope = family.interleaved_rope;
  if (made.family == "deepseek_v3") made.interleaved_rope = fields.flag("rope_interleave", true);
  if (family.gemma) set_gemma(made, outer, fields, family);
  if (made.family == "gpt_oss") set_gpt_oss(made, fields);
  made.tied = fields.flag("tie_word_embeddings", outer.flag("tie_word_embeddings", family.gemma));
  add_generation_config(made, fields.json(), where);
  if (nested) add_generation_config(made, outer.json(), where);
  return made;
}

}  // namespace ridge
