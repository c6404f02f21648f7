// A Hugging Face config.json becomes a Model.
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "model/config_build.h"
#include "model/config_extras.h"
#include "model/config_quant.h"
#include "model/read.h"

namespace ridge {

Linear column(const char* name, Stage stage, int64_t in, int64_t out, int64_t max_shards) {
  Linear linear;
  linear.name = name;
  linear.stage = stage;
  linear.in = in;
  linear.out = out;
  linear.shard = Shard::column;
  linear.max_shards = max_shards;
  return linear;
}

Linear row(const char* name, Stage stage, int64_t in, int64_t out, int64_t max_shards) {
  Linear linear = column(name, stage, in, out, max_shards);
  linear.shard = Shard::row;
  return linear;
}

Linear replicated(const char* name, Stage stage, int64_t in, int64_t out) {
  Linear linear = column(name, stage, in, out);
  linear.shard = Shard::replicated;
  return linear;
}

double norm_parameters(NormKind kind, int64_t channels) {
  if (kind == NormKind::bare) return 0;
  return double(channels) * (kind == NormKind::layer ? 2 : 1);
}

void add_norms(Layer& layer, const ConfigContext& context, int count) {
  layer.norms = count;
  layer.other_parameters += count * norm_parameters(context.family.norm, context.hidden);
}

bool ConfigContext::is(const Toggle& toggle) const {
  return toggle.field == nullptr ? toggle.value : fields.flag(toggle.field, toggle.value);
}

void ConfigContext::note(const std::string& text) const {
  if (std::find(notes->begin(), notes->end(), text) == notes->end()) notes->push_back(text);
}

std::string_view ConfigContext::type_of(int index) const {
  return layer_types.empty() ? std::string_view() : layer_types[size_t(index)];
}

namespace {

bool same(const Linear& a, const Linear& b) {
  return a.name == b.name && a.stage == b.stage && a.in == b.in && a.out == b.out &&
         a.copies == b.copies && a.bias == b.bias && a.format == b.format;
}

bool same(const Layer& a, const Layer& b) {
  return a.mixer == b.mixer && a.gated == b.gated && a.experts == b.experts && a.top_k == b.top_k &&
         a.norms == b.norms && a.other_parameters == b.other_parameters &&
         std::equal(a.linears.begin(), a.linears.end(), b.linears.begin(), b.linears.end(),
                    [](const Linear& x, const Linear& y) { return same(x, y); });
}

}  // namespace

void append_layer(Model& model, Layer layer) {
  std::stable_sort(layer.linears.begin(), layer.linears.end(),
                   [](const Linear& a, const Linear& b) { return a.stage < b.stage; });
  auto found = std::find_if(model.groups.begin(), model.groups.end(),
                            [&](const LayerGroup& group) { return same(group.layer, layer); });
  if (found == model.groups.end()) {
    model.groups.push_back({std::move(layer), 0});
    found = model.groups.end() - 1;
  }
  ++found->count;
  model.order.push_back(uint16_t(found - model.groups.begin()));
}

namespace {

using nlohmann::json;

const Family& family_of(const Fields& fields) {
  auto type = fields.text("model_type");
  if (!type) fields.missing({"model_type"});
  if (const Family* family = find_family(*type)) return *family;
  auto near = nearest_names(*type, family_names());
  if (near.empty()) {
    throw Error("{}: model_type \"{}\" is not an architecture this program knows", fields.where(),
                type->substr(0, 80));
  }
  throw Error("{}: model_type \"{}\" is not known: did you mean {}?", fields.where(),
              type->substr(0, 80), fmt::join(near, ", "));
}

// Multimodal wrappers keep the language model in an object of their own.
const char* nested_key(const Fields& fields) {
  for (const char* key : {"text_config", "language_config", "llm_config"}) {
    if (fields.has(key)) return key;
  }
  return nullptr;
}

Format dense_format(const Fields& outer, const Fields& inner) {
  for (const Fields* fields : {&inner, &outer}) {
    for (const char* key : {"torch_dtype", "dtype"}) {
      auto name = fields->text(key);
      if (!name) continue;
      std::string_view short_name = *name;
      if (short_name.starts_with("torch.")) short_name.remove_prefix(6);
      if (short_name == "bfloat16") return format_from_name("bf16");
      if (short_name == "float16" || short_name == "half") return format_from_name("fp16");
      if (short_name == "float32" || short_name == "float") return format_from_name("fp32");
      if (short_name == "auto") continue;
      throw Error("{}: {} must be bfloat16, float16 or float32, not {}", fields->where(), key,
                  *name);
    }
  }
  return format_from_name("bf16");
}

std::vector<std::string> read_layer_types(const Fields& fields, int64_t layers) {
  auto types = fields.texts("layer_types");
  if (!types.empty() && int64_t(types.size()) != layers) {
    throw Error("{}: layer_types has {} entries for {} layers", fields.where(), types.size(),
                layers);
  }
  return types;
}

int64_t read_layer_count(const Fields& fields) {
  const Fields::Keys keys = {"num_hidden_layers", "n_layer", "n_layers", "num_layers",
                             "num_transformer_layers"};
  if (auto count = fields.maybe_integer(keys, 1, kMaxLayers)) return *count;
  // Hybrids may only write their layers out.
  if (auto pattern = fields.text("hybrid_override_pattern"); pattern && !pattern->empty()) {
    if (int64_t(pattern->size()) <= kMaxLayers) return int64_t(pattern->size());
  }
  fields.missing(keys);
}

// The language model, read from its own object; `outer` holds what wrappers say beside it.
Model read_language_model(const Fields& outer, const Fields& fields, const Family& family,
                          const TensorFacts* facts) {
  Model model;
  model.family = family.type;
  model.source = outer.where();
  ConfigContext context(fields, family);
  context.notes = &model.notes;
  context.hidden = fields.integer(
      {"hidden_size", "n_embd", "d_model", "hidden_dim", "n_embed", "model_dim"}, 1, kMaxWidth);
  context.layers = read_layer_count(fields);
  context.layer_types = read_layer_types(fields, context.layers);
  context.context = fields.integer_or(kContextKeys, 0, 0, kMaxContext);
  if (context.context == 0) {
    context.context = kMaxContext;
    context.note("the config gives no maximum context");
  } else {
    model.max_context = context.context;
  }
  if (family.unsupported != nullptr && fields.has(family.unsupported)) {
    const json& value = fields.json().at(family.unsupported);
    if (value != json(false) && value != json(0)) {
      throw Error("{}: {} is not supported for {}", fields.where(), family.unsupported,
                  family.type);
    }
  }

  model.hidden = int(context.hidden);
  model.vocab = fields.integer({"vocab_size", "padded_vocab_size"}, 1, kMaxVocab);
  // Wrappers may hold the flag outside, and then mean it.
  bool tied = context.is(family.tied);
  if (!fields.has(family.tied.field) && outer.has(family.tied.field)) {
    tied = outer.flag(family.tied.field, tied);
  }
  model.tied_embeddings = tied;
  model.active_includes_embedding = family.embedding_counts;

  Quantization quantization(outer.has("quantization_config") ? outer : fields,
                            dense_format(outer, fields), model.notes);
  model.embed_format = quantization.dense();
  model.kv_format = quantization.kv_format();
  model.head = column("lm_head", Stage::head, context.hidden, model.vocab);
  model.head.bias = context.is(family.head_bias);
  model.head.format = quantization.head_format();

  for (int i = 0; i < int(context.layers); ++i) {
    Layer layer = family.layer ? family.layer(context, i) : decoder_layer(context, i);
    for (Linear& linear : layer.linears) linear.format = quantization.format(linear, i);
    append_layer(model, std::move(layer));
  }
  model.other_parameters += norm_parameters(family.norm, context.hidden);
  if (family.learned_positions && model.max_context > 0) {
    model.other_parameters += double(model.max_context) * double(context.hidden);
  }
  add_text_extras(model, context);
  if (facts != nullptr) facts->correct(model);
  set_execution(model, context, outer, nested_key(outer) != nullptr, facts);
  return model;
}

// Sizes that a config of its own must state, though the class has defaults: without them it is no
// config of a model. The longest context is left unknown instead, because it limits what is run.
constexpr std::string_view kRequiredSizes[] = {"hidden_size",         "num_hidden_layers",
                                               "num_attention_heads", "intermediate_size",
                                               "vocab_size",          "max_position_embeddings"};

// Whether the config has the field under this or another name; null counts, as no default then
// holds.
bool is_given(const json& config, const std::string& name) {
  for (Fields::Keys keys : {kContextKeys, kKvHeadKeys, kHeadDimKeys, kExpertKeys, kTopKeys}) {
    if (std::find(keys.begin(), keys.end(), name) == keys.end()) continue;
    return std::any_of(keys.begin(), keys.end(), [&](const char* k) { return config.contains(k); });
  }
  return config.contains(name);
}

// The config with the class's defaults of what it leaves out: transformers writes nested configs as
// differences from them, and reads any config so. `wrapper`: the key of a nested config, or null.
json with_defaults(const json& config, const Family& family, const char* wrapper,
                   std::vector<std::string>& notes) {
  json filled = config;
  const json defaults = json::parse(family.defaults);
  bool taken = false;
  for (const auto& [name, value] : defaults.items()) {
    const bool required = std::find(std::begin(kRequiredSizes), std::end(kRequiredSizes), name) !=
                          std::end(kRequiredSizes);
    if (is_given(config, name) || (required && wrapper == nullptr)) continue;
    filled[name] = value;
    taken = true;
    if (wrapper == nullptr) {
      notes.push_back(
          fmt::format("{} absent: {}, the default of {}", name, value.dump(), family.type));
    }
  }
  if (taken && wrapper != nullptr) {
    notes.push_back(
        fmt::format("fields absent from {} have the defaults of {}", wrapper, family.type));
  }
  return filled;
}

Model read(const json& config, std::string_view where, const TensorFacts* facts) {
  const Fields outer(config, std::string(where));
  const char* wrapper = nested_key(outer);
  const Fields given = wrapper ? outer.object(wrapper) : outer;
  // The wrapper's name stands for its language model, where that has none (Gemma 3, Llama 4).
  const bool unnamed = wrapper != nullptr && !given.has("model_type") &&
                       find_family(outer.text("model_type").value_or("")) != nullptr;
  const Family& family = family_of(unnamed ? outer : given);
  std::vector<std::string> notes;
  const json filled = facts ? given.json() : with_defaults(given.json(), family, wrapper, notes);
  Model model = read_language_model(outer, Fields(filled, given.where()), family, facts);
  model.notes.insert(model.notes.end(), notes.begin(), notes.end());
  add_towers(model, outer);
  return model;
}

}  // namespace

Model read_config(const json& config, std::string_view where) {
  return read(config, where, nullptr);
}

Model read_config(const json& config, std::string_view where, const TensorFacts& facts) {
  return read(config, where, &facts);
}

}  // namespace ridge
