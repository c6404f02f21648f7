#include "model/config_extras.h"

#include <algorithm>

#include "base/error.h"

namespace ridge {

namespace {

double layer_parameters(const Layer& layer) {
  double total = layer.other_parameters;
  for (const Linear& linear : layer.linears) total += linear.parameters();
  return total;
}

// Multi-token prediction: as many layers like the last one, each with a projection of the token
// and the hidden state together and three norms. Embedding and head are the main model's.
void add_prediction_layers(Model& model, const ConfigContext& context) {
  int64_t count = context.fields.integer_or({"num_nextn_predict_layers", "mtp_num_hidden_layers"},
                                            0, 0, kMaxLayers);
  if (count == 0) return;
  double hidden = double(context.hidden);
  const Layer& last = model.groups[model.order.back()].layer;
  Extra extra;
  extra.name = "multi-token prediction";
  extra.parameters = double(count) * (layer_parameters(last) + 2 * hidden * hidden + 3 * hidden);
  extra.format = last.linears.empty() ? model.embed_format : last.linears.back().format;
  extra.counted = false;
  model.extras.push_back(extra);
  context.note("multi-token prediction layers are in the checkpoint but not in the counts");
}

// What some families hold outside their layers.
void add_family_tensors(Model& model, const ConfigContext& context) {
  std::string_view type = context.family.type;
  double hidden = double(context.hidden);
  int64_t embedding =
      context.fields.integer_or({"word_embed_proj_dim"}, context.hidden, 1, kMaxWidth);
  if (embedding != context.hidden) {  // OPT 350M projects narrower embeddings
    throw Error("{}: word_embed_proj_dim ({}) other than the hidden size is not supported",
                context.fields.where(), embedding);
  }
  if (type == "opt" || type == "bloom") {
    // OPT's positions start at two; BLOOM has a norm of two vectors after the embedding.
    model.other_parameters += 2 * hidden;
  } else if (type.starts_with("gemma3n") || type.starts_with("gemma4")) {
    model.other_parameters += per_layer_embedding_parameters(context);
    if (type.starts_with("gemma3n")) {
      // AltUp projections into and out of the extra streams.
      double streams = double(context.fields.integer_or({"altup_num_inputs"}, 4, 1, 1024));
      model.other_parameters += 2 * (streams - 1) * hidden * hidden;
    }
  }
}

struct Tower {
  double hidden, layers, width, patch, channels, positions;
  bool gated;
};

// A vision transformer: attention of four square matrices, an MLP, two norms, biases throughout.
double vit_parameters(const Tower& tower) {
  double attention = 4 * tower.hidden * tower.hidden + 4 * tower.hidden;
  double mlp = (tower.gated ? 3 : 2) * tower.hidden * tower.width + tower.width + tower.hidden;
  double embedding = tower.channels * tower.patch * tower.patch * tower.hidden;
  return tower.layers * (attention + mlp + 4 * tower.hidden) + embedding +
         tower.positions * tower.hidden;
}

double projector_parameters(const Fields& outer, const Fields& vision, double from, double to) {
  // Qwen merges m x m patches and runs an MLP over them; deepstack repeats that per tapped layer.
  if (auto merge = vision.maybe_integer({"spatial_merge_size"}, 1, 64)) {
    double merged = from * double(*merge) * double(*merge);
    double taps = 1 + double(vision.integers("deepstack_visual_indexes", 0, kMaxLayers).size());
    return taps * (merged * merged + merged * to);
  }
  std::string type = outer.text("model_type").value_or("");
  bool single = type.starts_with("gemma") || type == "llama4" || type == "paligemma";
  return from * to + (single ? 0 : to * to);
}

}  // namespace

void add_text_extras(Model& model, const ConfigContext& context) {
  add_family_tensors(model, context);
  add_prediction_layers(model, context);
}

void add_towers(Model& model, const Fields& outer) {
  if (outer.has("audio_config")) {
    model.notes.push_back("the audio encoder (audio_config) is not counted");
  }
  if (!outer.has("vision_config")) {
    if (outer.text("model_type").value_or("") == "llama4") {
      model.notes.push_back("no vision_config: the vision tower is not counted");
    }
    return;
  }
  Fields vision = outer.object("vision_config");
  auto hidden = vision.maybe_integer({"embed_dim", "hidden_size", "width"}, 1, kMaxWidth);
  auto layers = vision.maybe_integer({"num_hidden_layers", "depth", "layers"}, 1, kMaxLayers);
  // In the first Qwen2-VL configs hidden_size is the language model's.
  if (!hidden || !layers) {
    model.notes.push_back("vision_config gives no dimensions: the vision tower is not counted");
    return;
  }
  Tower tower{};
  tower.hidden = double(*hidden);
  tower.layers = double(*layers);
  double ratio = vision.number("mlp_ratio", 0.1, 64).value_or(4);
  auto width = vision.maybe_integer({"intermediate_size"}, 1, kMaxWidth);
  tower.width = width ? double(*width) : ratio * tower.hidden;
  double patch = double(vision.integer_or({"patch_size"}, 14, 1, 1024));
  tower.patch = patch;
  tower.channels = double(vision.integer_or({"num_channels", "in_channels"}, 3, 1, 64)) *
                   double(vision.integer_or({"temporal_patch_size"}, 1, 1, 64));
  double side = double(vision.integer_or({"image_size"}, 0, 0, 1 << 16)) / patch;
  tower.positions = double(
      vision.integer_or({"num_position_embeddings", "position_embedding_size"}, 0, 0, 1 << 24));
  if (tower.positions == 0) tower.positions = side * side;
  std::string type = vision.text("model_type").value_or("");
  tower.gated = type == "qwen2_5_vl" || type == "gemma4_vision" || type == "pixtral";
  double to = double(vision.integer_or({"out_hidden_size"}, model.hidden, 1, kMaxWidth));
  Extra extra;
  extra.name = "vision tower";
  extra.parameters = vit_parameters(tower) + projector_parameters(outer, vision, tower.hidden, to);
  extra.format = model.embed_format;
  // Google states Gemma 4's totals without the encoder; the others count theirs.
  extra.counted = type != "gemma4_vision";
  model.extras.push_back(extra);
  model.notes.push_back("the vision tower's size is an estimate from its dimensions");
}

}  // namespace ridge
