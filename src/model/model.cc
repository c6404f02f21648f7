#include "model/model.h"

#include <algorithm>
#include <cmath>

namespace ridge {

namespace {

// DeepSeek's sparse-attention indexer keeps one key of index_dim per token, in fp8 with an fp32
// scale per 128 elements, whatever the KV cache's format (DeepSeek-V3.2-Exp's inference code).
double index_bytes_per_token(const Mixer& mixer) {
  if (mixer.index_dim == 0) return 0;
  return mixer.index_dim + 4 * std::ceil(mixer.index_dim / 128.0);
}

bool stores_kv(const Mixer& mixer) {
  bool attends = mixer.kind == MixerKind::attention || mixer.kind == MixerKind::mla;
  return attends && !mixer.shares_kv;
}

double kv_elements_per_token(const Mixer& mixer) {
  // MLA keeps the compressed vector and the rotary part once, not per head.
  if (mixer.kind == MixerKind::mla) return double(mixer.kv_rank) + mixer.rope_dim;
  return double(mixer.kv_heads) * (double(mixer.head_dim) + mixer.v_head_dim);
}

double token_bytes(const Mixer& mixer, const Format& kv) {
  if (!stores_kv(mixer)) return 0;
  return kv_elements_per_token(mixer) * kv.bytes() + index_bytes_per_token(mixer);
}

// Linear attention and SSMs: the recurrent state, and the last kernel - 1 inputs of the
// convolution in 16 bits.
double state_bytes(const Mixer& mixer) {
  double state = double(mixer.value_heads) * mixer.state_dim * mixer.value_dim;
  double conv = double(mixer.conv_channels) * std::max(0, mixer.conv_kernel - 1);
  return state * mixer.state_format.bytes() + conv * 2;
}

double linear_parameters(const Layer& layer, bool active) {
  double total = 0;
  for (const Linear& linear : layer.linears) {
    bool routed = linear.stage == Stage::expert_in || linear.stage == Stage::expert_out;
    double share = active && routed && layer.experts > 0 ? double(layer.top_k) / layer.experts : 1;
    total += linear.parameters() * share;
  }
  return total;
}

double body_parameters(const Model& model, bool active) {
  double total = model.other_parameters;
  for (const LayerGroup& group : model.groups) {
    double layer = linear_parameters(group.layer, active) + group.layer.other_parameters;
    total += layer * group.count;
  }
  return total;
}

double head_parameters(const Model& model) {
  if (!model.tied_embeddings) return model.head.parameters();
  return model.head.bias ? double(model.head.out) : 0;
}

}  // namespace

bool Layer::has(Stage stage) const {
  return std::any_of(linears.begin(), linears.end(),
                     [stage](const Linear& linear) { return linear.stage == stage; });
}

double parameters(const Model& model) {
  double total = body_parameters(model, false) + model.embed_parameters() + head_parameters(model);
  for (const Extra& extra : model.extras) total += extra.counted ? extra.parameters : 0;
  return total;
}

double active_parameters(const Model& model) {
  double total = body_parameters(model, true) + head_parameters(model);
  bool embedding = model.tied_embeddings || model.active_includes_embedding;
  return total + (embedding ? model.embed_parameters() : 0);
}

const Format& main_weight_format(const Model& model) {
  const Format* format = &model.embed_format;
  double most = 0;
  for (const LayerGroup& g : model.groups) {
    for (const Linear& l : g.layer.linears) {
      const double size = g.count * l.parameters();
      if (size <= most) continue;
      most = size;
      format = &l.format;
    }
  }
  return *format;
}

bool has_mxfp4_experts(const Model& model) {
  bool some = false;
  for (const LayerGroup& g : model.groups) {
    for (const Linear& l : g.layer.linears) {
      if (!is_expert(l.stage)) continue;
      if (l.format.name != "mxfp4") return false;
      some = true;
    }
  }
  return some;
}

double weight_bytes(const Model& model) {
  if (model.exact_weight_bytes) return *model.exact_weight_bytes;
  double total = model.embed_parameters() * model.embed_format.bytes() +
                 model.other_parameters * model.format_of_other().bytes() +
                 head_parameters(model) * model.head.format.bytes();
  for (const LayerGroup& group : model.groups) {
    double layer = group.layer.other_parameters * model.format_of_other().bytes();
    for (const Linear& linear : group.layer.linears) layer += linear.bytes();
    total += layer * group.count;
  }
  for (const Extra& extra : model.extras) {
    if (extra.counted) total += extra.parameters * extra.format.bytes();
  }
  return total;
}

double kv_bytes_per_token(const Model& model, const Format& kv) {
  double total = 0;
  for (const LayerGroup& group : model.groups) {
    const Mixer& mixer = group.layer.mixer;
    if (mixer.window == 0) total += token_bytes(mixer, kv) * group.count;
  }
  return total;
}

double kv_bytes_per_token_full(const Model& model, const Format& kv) {
  double total = 0;
  for (const LayerGroup& group : model.groups) {
    total += token_bytes(group.layer.mixer, kv) * group.count;
  }
  return total;
}

double sequence_bytes(const Model& model, double context, const Format& kv) {
  double total = 0;
  for (const LayerGroup& group : model.groups) {
    const Mixer& mixer = group.layer.mixer;
    double tokens = mixer.window > 0 ? std::min(context, double(mixer.window)) : context;
    total += (tokens * token_bytes(mixer, kv) + state_bytes(mixer)) * group.count;
  }
  return total;
}

}  // namespace ridge
