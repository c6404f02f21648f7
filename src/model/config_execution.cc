// From a config to an Execution: what a backend needs beyond sizes, and which fields it does not
// run. Absent fields take the defaults of transformers' configuration classes (Executed).
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "model/architecture.h"
#include "model/config_build.h"
#include "model/read.h"
#include "model/rope.h"

namespace ridge {

namespace {

using nlohmann::json;

const Executed& executed_of(const Fields& outer, const Family& family, bool nested) {
  const auto type = outer.text("model_type");
  if (!type) outer.missing({"model_type"});
  const Family* named = nested ? find_family(*type) : &family;
  if (named == nullptr || named->executed == nullptr) {
    throw Error("{}: {} is predicted, not executed; the engine runs {}", outer.where(),
                type->substr(0, 80), fmt::join(executed_family_names(), ", "));
  }
  const bool wrapper = *type == "gemma3" || *type == "llama4";
  if (nested && (!wrapper || family.executed == nullptr)) {
    throw Error("{}: text_config is executed for gemma3 and llama4 only", outer.where());
  }
  return *family.executed;
}

void refuse_flag(const Fields& fields, const char* key, const char* what) {
  if (fields.flag(key, false)) {
    throw Error("{}: {}: {} is not executed by the engine", fields.where(), key, what);
  }
}

// Whether the loader reads the weights of such a quantization_config: MXFP4 experts of gpt-oss, and
// fp8 (load_fp8.cc) of the other families.
bool reads_quantized(const Fields& quantization, const Executed& executed) {
  const std::string method = quantization.text("quant_method").value_or("modelopt");
  if (executed.family == std::string_view("gpt_oss")) return method == "mxfp4";
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

void refuse_variants(const Fields& outer, const Fields& fields, const Executed& executed) {
  for (const Fields* each : {&outer, &fields}) {
    for (const char* key : {"quantization_config", "compression_config"}) {
      if (each->has(key) && !reads_quantized(each->object(key), executed)) {
        throw Error(
            "{}: {}: checkpoints quantized in this way are predicted, not executed; 16-bit and fp8 "
            "weights and GGUFs are",
            each->where(), key);
      }
    }
  }
  refuse_flag(fields, "mlp_bias", "a bias in the MLP");
  refuse_flag(fields, "use_bidirectional_attention", "attention to later tokens");
  const char* key = executed.gemma ? "hidden_activation" : "hidden_act";
  auto activation = fields.text(key);
  bool known = !activation || (executed.gemma ? *activation == "gelu_pytorch_tanh"
                                              : *activation == "silu" || *activation == "swish");
  if (!known) {
    throw Error("{}: {} \"{}\" is not executed for {}", fields.where(), key,
                activation->substr(0, 40), executed.family);
  }
}

// Layers that the family's code does not have.
void refuse_layers(const Model& model, const Fields& fields, const Executed& executed) {
  bool experts = false;
  for (const LayerGroup& group : model.groups) {
    const Layer& layer = group.layer;
    experts = experts || layer.has_moe();
    if (layer.mixer.chunked && executed.family != std::string_view("llama4_text")) {
      throw Error("{}: layer_types: \"chunked_attention\" is not executed", fields.where());
    }
    if (layer.has(Stage::shared_in) && !executed.shared_experts) {
      throw Error("{}: shared experts are not executed for {}", fields.where(), executed.family);
    }
  }
  if (experts && !executed.experts) {
    throw Error("{}: experts are not executed for {}", fields.where(), executed.family);
  }
  // Dense layers only are possible, but experts must be described.
  if (!experts && executed.experts) {
    fields.integer({"num_local_experts", "num_experts", "n_routed_experts"}, 1, kMaxExperts);
  }
}

// Rotated elements of a head.
int rotary_dims(const Mixer& mixer, const Fields& fields, const Fields& scaling,
                const Executed& executed) {
  if (mixer.kind == MixerKind::mla) return mixer.rope_dim;
  auto given = scaling.number("partial_rotary_factor", 0, 1);
  if (!given) given = fields.number("partial_rotary_factor", 0, 1);
  const double part = given.value_or(executed.rotary > 0 ? executed.rotary : 1);
  if (part != 1 && executed.rotary == 0) {
    throw Error("{}: partial_rotary_factor {} is not executed for {}, only 1 is", fields.where(),
                part, executed.family);
  }
  const int dims = int(mixer.head_dim * part);
  if (dims < 2 || dims % 2 != 0) {
    throw Error("{}: partial_rotary_factor {} of heads of {} is no even number of elements",
                fields.where(), part, mixer.head_dim);
  }
  return dims;
}

// One RoPE, or two for Gemma 3: the scaled one for full-attention layers, a local one for sliding.
void set_ropes(Execution& made, const Model& model, const ConfigContext& context,
               const Executed& executed) {
  const Fields& fields = context.fields;
  const Mixer& mixer = model.groups[0].layer.mixer;
  const double theta = fields.number("rope_theta", 1.001, 1e15).value_or(executed.theta);
  const bool newer = fields.has("rope_parameters");  // transformers 5
  const Fields scaling = fields.object(newer ? "rope_parameters" : "rope_scaling");
  const bool by_type = newer && scaling.has("full_attention");
  const Fields full = by_type ? scaling.object("full_attention") : scaling;
  const RopeSizes sizes{
      .dims = rotary_dims(mixer, fields, full, executed),
      .max_context = double(model.max_context),
      .original_context = fields.number("original_max_position_embeddings", 2, 1e9).value_or(0)};
  made.ropes.push_back(make_rope(full, theta, sizes));
  made.rope_of_layer.assign(model.order.size(), 0);
  made.query_scale = float(1 / std::sqrt(double(mixer.head_dim)));
  if (mixer.kind == MixerKind::mla) {
    made.query_scale =
        float(yarn_softmax_scale(full, sizes.max_context) / std::sqrt(double(mixer.head_dim)));
  }
  if (made.family != "gemma3_text") return;
  const double local = fields.number("rope_local_base_freq", 1.001, 1e15).value_or(10000);
  const json none = json::object();
  const Fields sliding =
      by_type ? scaling.object("sliding_attention") : Fields(none, fields.where());
  made.ropes.push_back(make_rope(sliding, local, sizes));
  for (size_t i = 0; i < made.rope_of_layer.size(); ++i) {
    made.rope_of_layer[i] = window_of(context, int(i)).tokens > 0 ? 1 : 0;
  }
}

void add_ends(Execution& made, const Fields& fields) {
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

Execution read_execution(const Model& model, const ConfigContext& context, const Fields& outer,
                         bool nested, const TensorFacts* facts) {
  const Fields& fields = context.fields;
  const Executed& executed = executed_of(outer, context.family, nested);
  refuse_variants(outer, fields, executed);
  refuse_layers(model, fields, executed);
  executed_sizes(model);  // before what is computed from them
  Execution made;
  made.family = executed.family;
  set_ropes(made, model, context, executed);
  made.norm_eps = float(fields.number("rms_norm_eps", 0, 1).value_or(executed.eps));
  made.normalize_top_k = context.is(executed.normalize_top_k);
  made.post_norms = executed.post_norms;
  made.interleaved_rope = executed.interleaved_rope;
  if (executed.finish != nullptr) executed.finish(made, model, context, outer);
  // A file's tensors say which biases there are, and TensorFacts which of them are not run.
  if (facts == nullptr && !made.sinks) {
    for (const LayerGroup& group : model.groups) {
      for (const Linear& linear : group.layer.linears) {
        if (linear.stage == Stage::mixer_out && linear.bias) {
          refuse_flag(fields, "attention_bias", "a bias of the output matrix");
        }
      }
    }
  }
  add_generation_config(made, fields.json(), outer.where());
  if (nested) add_generation_config(made, outer.json(), outer.where());
  if (facts != nullptr) facts->complete(made, model);
  return made;
}

}  // namespace

void add_generation_config(Execution& execution, const json& config, const std::string& where) {
  const Fields fields(config, where);
  add_ends(execution, fields);
  if (execution.bos < 0) {
    execution.bos = int(fields.integer_or({"bos_token_id"}, -1, -1, kMaxVocab));
  }
}

// A prediction needs none of this, so nothing here stops it.
void set_execution(Model& model, const ConfigContext& context, const Fields& outer, bool nested,
                   const TensorFacts* facts) {
  try {
    model.execution =
        std::make_shared<const Execution>(read_execution(model, context, outer, nested, facts));
  } catch (const Error& error) {
    model.not_executed = error.what();
  }
}

}  // namespace ridge
