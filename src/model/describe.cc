#include "model/describe.h"

#include <fmt/format.h>

#include <algorithm>

namespace ridge {

namespace {

std::string describe_window(const Mixer& mixer) {
  if (mixer.window == 0) return "";
  return fmt::format(", {} {}", mixer.chunked ? "chunks of" : "window", mixer.window);
}

std::string describe_mixer(const Mixer& mixer) {
  switch (mixer.kind) {
    case MixerKind::none:
      return "";
    case MixerKind::attention: {
      std::string text = fmt::format("attention {}/{} heads of {}{}", mixer.heads, mixer.kv_heads,
                                     mixer.head_dim, describe_window(mixer));
      if (mixer.shares_kv) text += ", KV of an earlier layer";
      if (mixer.value_heads > 0) {
        text += fmt::format(" beside Mamba 2 with {} heads of {} x {}", mixer.value_heads,
                            mixer.value_dim, mixer.state_dim);
      }
      return text;
    }
    case MixerKind::mla: {
      std::string text =
          fmt::format("latent attention {} heads of {}/{}, KV rank {} + {}", mixer.heads,
                      mixer.head_dim, mixer.v_head_dim, mixer.kv_rank, mixer.rope_dim);
      if (mixer.index_topk > 0) text += fmt::format(", best {} tokens", mixer.index_topk);
      return text;
    }
    case MixerKind::linear:
      return fmt::format("linear attention {}/{} heads, state {} x {}", mixer.value_heads,
                         mixer.key_heads, mixer.state_dim, mixer.value_dim);
    case MixerKind::mamba2:
      return fmt::format("Mamba 2 {} heads of {}, state {}", mixer.value_heads, mixer.value_dim,
                         mixer.state_dim);
    case MixerKind::mamba1:
      return fmt::format("Mamba {} channels, state {}", mixer.value_dim, mixer.state_dim);
    case MixerKind::conv:
      return fmt::format("convolution {} channels, kernel {}", mixer.conv_channels,
                         mixer.conv_kernel);
  }
  return "";
}

int64_t width_at(const Layer& layer, Stage stage) {
  for (const Linear& linear : layer.linears) {
    if (linear.stage == stage) return linear.out;
  }
  return 0;
}

std::string describe_ffn(const Layer& layer) {
  const char* gated = layer.gated ? "gated " : "";
  if (!layer.has_moe()) {
    int64_t width = width_at(layer, Stage::ffn_in);
    return width > 0 ? fmt::format("{}MLP {}", gated, width) : "";
  }
  std::string text = fmt::format("{} of {} {}experts of {}", layer.top_k, layer.experts, gated,
                                 width_at(layer, Stage::expert_in));
  if (int64_t shared = width_at(layer, Stage::shared_in)) {
    text += fmt::format(" + shared {}", shared);
  }
  return text;
}

const char* group_name(Stage stage) {
  switch (stage) {
    case Stage::router:
      return "router";
    case Stage::expert_in:
    case Stage::expert_out:
      return "experts";
    case Stage::shared_in:
    case Stage::shared_out:
      return "shared experts";
    case Stage::ffn_in:
    case Stage::ffn_out:
      return "MLP";
    default:
      return "attention";
  }
}

void add_to(std::vector<ParameterGroup>& groups, const std::string& name, double parameters,
            double bytes) {
  auto found = std::find_if(groups.begin(), groups.end(),
                            [&](const ParameterGroup& group) { return group.name == name; });
  if (found == groups.end()) {
    groups.push_back({name, 0, 0});
    found = groups.end() - 1;
  }
  found->parameters += parameters;
  found->bytes += bytes;
}

void drop_empty(std::vector<ParameterGroup>& groups) {
  std::erase_if(groups, [](const ParameterGroup& group) { return group.parameters == 0; });
}

}  // namespace

std::string describe_layer(const Layer& layer) {
  std::string mixer = describe_mixer(layer.mixer), ffn = describe_ffn(layer);
  if (mixer.empty() && ffn.empty()) return "nothing";
  return mixer.empty() ? ffn : ffn.empty() ? mixer : mixer + " + " + ffn;
}

std::vector<ParameterGroup> parameter_groups(const Model& model) {
  // In the order of the forward pass.
  std::vector<ParameterGroup> groups;
  for (const char* name : {"embedding", "attention", "linear attention", "state space",
                           "convolution", "MLP", "router", "experts", "shared experts"}) {
    groups.push_back({name, 0, 0});
  }
  double dense = model.embed_format.bytes();
  add_to(groups, "embedding", model.embed_parameters(), model.embed_parameters() * dense);
  double other = model.other_parameters;
  for (const LayerGroup& group : model.groups) {
    const Layer& layer = group.layer;
    other += layer.other_parameters * group.count;
    for (const Linear& linear : layer.linears) {
      std::string name = group_name(linear.stage);
      if (name == "attention") {
        MixerKind kind = layer.mixer.kind;
        if (kind == MixerKind::linear) name = "linear attention";
        if (kind == MixerKind::mamba1 || kind == MixerKind::mamba2) name = "state space";
        if (kind == MixerKind::conv) name = "convolution";
      }
      add_to(groups, name, linear.parameters() * group.count, linear.bytes() * group.count);
    }
  }
  add_to(groups, "norms and other", other, other * model.format_of_other().bytes());
  double head = model.tied_embeddings ? (model.head.bias ? double(model.head.out) : 0)
                                      : model.head.parameters();
  add_to(groups, "head", head, head * model.head.format.bytes());
  for (const Extra& extra : model.extras) {
    if (extra.counted)
      add_to(groups, extra.name, extra.parameters, extra.parameters * extra.format.bytes());
  }
  drop_empty(groups);
  return groups;
}

std::vector<ParameterGroup> parameters_by_format(const Model& model) {
  std::vector<ParameterGroup> formats;
  auto add = [&formats](const Format& format, double count) {
    add_to(formats, format.name, count, count * format.bytes());
  };
  add(model.embed_format, model.embed_parameters());
  add(model.format_of_other(), model.other_parameters);
  if (!model.tied_embeddings) add(model.head.format, model.head.parameters());
  for (const LayerGroup& group : model.groups) {
    add(model.format_of_other(), group.layer.other_parameters * group.count);
    for (const Linear& linear : group.layer.linears) {
      add(linear.format, linear.parameters() * group.count);
    }
  }
  for (const Extra& extra : model.extras) {
    if (extra.counted) add(extra.format, extra.parameters);
  }
  drop_empty(formats);
  std::stable_sort(
      formats.begin(), formats.end(),
      [](const ParameterGroup& a, const ParameterGroup& b) { return a.parameters > b.parameters; });
  return formats;
}

}  // namespace ridge
