#include "model/architecture.h"

#include <algorithm>

#include "base/error.h"
#include "model/config_build.h"
#include "model/model.h"

namespace ridge {

namespace {

// Backends have one size for all layers; `made` is 0 until a layer sets it.
void unite(int& made, int64_t size, const char* what, const Model& model) {
  if (made != 0 && made != size) {
    throw Error("{}: layers with {} and {} {} are not executed", model.source, made, size, what);
  }
  made = int(size);
}

void set_latent(Architecture& made, const Model& model, const Mixer& mixer) {
  LatentAttention& latent = made.latent;
  latent.kv_rank = mixer.kv_rank;
  latent.q_rank = mixer.q_rank;
  latent.rope = mixer.rope_dim;
  latent.nope = mixer.head_dim - mixer.rope_dim;
  latent.value = mixer.v_head_dim;
  constexpr int kMaxRow = 1024;
  if (latent.kv_rank % 8 != 0 || latent.rope % 8 != 0 || latent.rope == 0 ||
      latent.kv_rank + latent.rope > kMaxRow) {
    throw Error(
        "{}: kv_lora_rank {} and qk_rope_head_dim {} are not executed: multiples of 8 are, of "
        "together at most {}",
        model.source, latent.kv_rank, latent.rope, kMaxRow);
  }
  unite(made.kv_heads, 1, "KV heads", model);
  unite(made.head_dim, latent.kv_rank + latent.rope, "elements a head", model);
  const int64_t widest = std::max({made.head_dim, latent.q_head(), latent.nope + latent.value});
  if (made.heads * widest > kMaxWidth) {
    throw Error("{}: {} heads of {} are more than {}", model.source, made.heads, widest, kMaxWidth);
  }
}

void set_attention(Architecture& made, const Model& model, const Mixer& mixer) {
  const bool latent = mixer.kind == MixerKind::mla;
  if (!latent && mixer.kind != MixerKind::attention) {
    throw Error("{}: layers without attention are not executed", model.source);
  }
  unite(made.heads, mixer.heads, "heads", model);
  if (latent) return set_latent(made, model, mixer);
  unite(made.kv_heads, mixer.kv_heads, "KV heads", model);
  unite(made.head_dim, mixer.head_dim, "elements a head", model);
  if (made.head_dim % 2 != 0 || int64_t{made.heads} * made.head_dim > kMaxWidth) {
    throw Error("{}: {} heads of {} are not possible (even, together at most {})", model.source,
                made.heads, made.head_dim, kMaxWidth);
  }
  made.qk_norm = mixer.qk_norm;
}

void set_linears(Architecture& made, const Model& model, const Layer& layer) {
  for (const Linear& linear : layer.linears) {
    switch (linear.stage) {
      case Stage::mixer_in:
        made.qkv_bias = made.qkv_bias || linear.bias;
        break;
      case Stage::mixer_out:
        made.out_bias = made.out_bias || linear.bias;
        break;
      case Stage::ffn_in:
        unite(made.ffn, linear.out, "columns of the MLP", model);
        break;
      case Stage::expert_in:
        unite(made.expert_ffn, linear.out, "columns of an expert", model);
        made.expert_bias = linear.bias;
        break;
      case Stage::shared_in:
        unite(made.shared_ffn, linear.out, "columns of the shared experts", model);
        break;
      default:
        break;
    }
  }
  if (!layer.has_moe()) return;
  unite(made.experts, layer.experts, "experts", model);
  unite(made.top_k, layer.top_k, "experts per token", model);
  // Every expert of every layer has entries in a list; this bound keeps that list small.
  constexpr int64_t kMostMatrices = 1 << 17;
  if (int64_t{made.experts} * model.layers() > kMostMatrices) {
    throw Error("{}: {} experts in each of {} layers are not executed, only {} together",
                model.source, made.experts, model.layers(), kMostMatrices);
  }
}

}  // namespace

Architecture executed_sizes(const Model& model) {
  Architecture made;
  made.hidden = model.hidden;
  made.vocab = int(model.vocab);
  made.tied = model.tied_embeddings;
  made.max_context = int(std::min(model.max_context, int64_t{1} << 30));
  for (const LayerGroup& group : model.groups) {
    set_attention(made, model, group.layer.mixer);
    set_linears(made, model, group.layer);
  }
  for (const uint16_t group : model.order) {
    const Layer& layer = model.groups[group].layer;
    made.layers.push_back({.window = layer.mixer.window,
                           .chunked = layer.mixer.chunked,
                           .rope = 0,
                           .moe = layer.has_moe()});
  }
  return made;
}

Architecture architecture_of(const Model& model) {
  if (!model.execution) throw Error("{}", model.not_executed);
  Architecture made = executed_sizes(model);
  static_cast<Execution&>(made) = *model.execution;
  if (made.unit_qk) made.qk_norm = false;  // Llama 4's has no weights
  for (size_t i = 0; i < made.layers.size(); ++i) made.layers[i].rope = made.rope_of_layer[i];
  return made;
}

void choose_long_ropes(Architecture& architecture, int context) {
  if (architecture.max_context > 0) context = std::min(context, architecture.max_context);
  for (Rope& rope : architecture.ropes) {
    if (rope.long_frequency.empty()) continue;
    if (context > rope.original_context) rope.frequency = rope.long_frequency;
    rope.long_frequency.clear();
  }
}

}  // namespace ridge
