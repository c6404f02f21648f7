#include "model/model_json.h"

#include <cmath>

#include "model/builtin.h"
#include "model/describe.h"

namespace ridge {
namespace {

constexpr double kContexts[] = {1024, 4096, 8192, 32768, 131072};

// Counts and bytes are whole; JSON should show them so.
int64_t whole(double value) { return std::llround(value); }

double quoted_kv(const Model& model) { return kv_bytes_per_token_full(model, model.kv_format); }

Json parameters_json(const ParameterGroup& group) {
  return {
      {"name", group.name}, {"parameters", whole(group.parameters)}, {"bytes", whole(group.bytes)}};
}

Json layer_group_json(const LayerGroup& group) {
  const Layer& layer = group.layer;
  Json linears = Json::array();
  double layer_parameters = layer.other_parameters;
  for (const Linear& linear : layer.linears) {
    layer_parameters += linear.parameters();
    linears.push_back({{"name", linear.name},
                       {"in", linear.in},
                       {"out", linear.out},
                       {"copies", linear.copies},
                       {"format", linear.format.name}});
  }
  return {{"count", group.count},
          {"kind", describe_layer(layer)},
          {"parameters", whole(layer_parameters)},
          {"window", layer.mixer.window},
          {"experts", layer.experts},
          {"top_k", layer.top_k},
          {"linears", linears}};
}

}  // namespace

Json model_summary(const Model& model) {
  Json entry;
  entry["name"] = model.name;
  entry["title"] = model.title;
  entry["family"] = model.family;
  entry["parameters"] = whole(parameters(model));
  entry["active_parameters"] = whole(active_parameters(model));
  entry["weight_bytes"] = whole(weight_bytes(model));
  entry["kv_bytes_per_token"] = whole(quoted_kv(model));
  entry["layers"] = model.layers();
  entry["max_context"] = model.max_context > 0 ? Json(model.max_context) : Json();
  return entry;
}

Json model_details(const Model& model) {
  Json entry = model_summary(model);
  entry["source"] = model.source;
  const std::string repository =
      model.source == "built in" ? model_repository(model.name) : std::string();
  entry["repository"] = repository.empty() ? Json() : Json(repository);
  entry["hidden"] = model.hidden;
  entry["vocab"] = model.vocab;
  entry["tied_embeddings"] = model.tied_embeddings;
  entry["weight_bytes_exact"] = model.exact_weight_bytes.has_value();
  entry["layer_groups"] = Json::array();
  for (const LayerGroup& group : model.groups)
    entry["layer_groups"].push_back(layer_group_json(group));
  entry["parts"] = Json::array();
  for (const ParameterGroup& group : parameter_groups(model))
    entry["parts"].push_back(parameters_json(group));
  entry["formats"] = Json::array();
  for (const ParameterGroup& group : parameters_by_format(model))
    entry["formats"].push_back(parameters_json(group));
  entry["kv_format"] = model.kv_format.name;
  entry["kv"] = Json::array();
  for (double context : kContexts) {
    entry["kv"].push_back({{"context", whole(context)},
                           {"bytes", whole(sequence_bytes(model, context, model.kv_format))}});
  }
  entry["extras"] = Json::array();
  for (const Extra& extra : model.extras) {
    entry["extras"].push_back({{"name", extra.name},
                               {"parameters", whole(extra.parameters)},
                               {"format", extra.format.name},
                               {"counted", extra.counted}});
  }
  entry["not_executed"] = model.execution ? Json() : Json(model.not_executed);
  entry["notes"] = model.notes;
  if (auto published = model.source == "built in" ? published_counts(model.name) : std::nullopt) {
    entry["published"] = {
        {"parameters", whole(published->parameters)},
        {"active_parameters",
         published->active_parameters > 0 ? Json(whole(published->active_parameters)) : Json()},
        {"source", published->source}};
  }
  return entry;
}

}  // namespace ridge
