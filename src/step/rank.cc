#include "step/rank.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace ridge {
namespace {

// A number that cannot be cut evenly leaves the fullest rank with one piece more.
double cut(double columns, double pieces) { return std::ceil(columns / pieces); }

bool is_quantizable(Stage stage) { return stage != Stage::router && stage != Stage::head; }

Format format_of(const Linear& linear, const Plan& plan) {
  return plan.weights && is_quantizable(linear.stage) ? *plan.weights : linear.format;
}

// What the matrix units run in. Narrow arithmetic needs narrow weights and narrow activations;
// everything else is widened on the way (weight-only quantization). fp8 and nvfp4 checkpoints are
// made to be run with activations of the same type; integer and group-scaled ones are not unless
// the plan says so.
DType math_of(const Format& weights, const Plan& plan) {
  DType act = DType::bf16;
  if (plan.activations) {
    act = *plan.activations;
  } else if (weights.dtype == DType::fp8) {
    act = DType::fp8;
  } else if (weights.name == "nvfp4") {
    act = DType::fp4;
  }
  if (dtype_bits(act) <= 8) {
    // Narrower weights widen to the activations' type; fp8 and int8 do not become each other.
    const bool same = weights.dtype == act || dtype_bits(weights.dtype) < dtype_bits(act);
    return same ? act : DType::bf16;
  }
  if (weights.dtype == DType::fp32 || weights.dtype == DType::fp16) return weights.dtype;
  return act;
}

struct Cutter {
  const Plan& plan;
  double moe_shards;  // pieces of one expert's inner dimension

  double pieces(const Linear& l) const {
    if (l.shard == Shard::replicated) return 1;
    double n = is_expert(l.stage) ? moe_shards : plan.tp;
    return l.max_shards > 0 ? std::min<double>(n, static_cast<double>(l.max_shards)) : n;
  }

  double rank_bytes(const Linear& l) const {
    const double copies = is_expert(l.stage) ? cut(double(l.copies), plan.ep) : double(l.copies);
    const double in = l.shard == Shard::row ? cut(double(l.in), pieces(l)) : double(l.in);
    const double out = l.shard == Shard::column ? cut(double(l.out), pieces(l)) : double(l.out);
    return copies * (in * out + (l.bias ? out : 0)) * format_of(l, plan).bytes();
  }

  Projection stage(const Layer& layer, Stage stage, const char* name) const {
    Projection p;
    p.name = name;
    double bits = 0, size = 0;
    for (const Linear& l : layer.linears) {
      if (l.stage != stage) continue;
      const double in = l.shard == Shard::row ? cut(double(l.in), pieces(l)) : double(l.in);
      const double out = l.shard == Shard::column ? cut(double(l.out), pieces(l)) : double(l.out);
      const Format format = format_of(l, plan);
      bits += in * out * format.bits;
      size += in * out;
      p.out += out;
      p.matrices += 1;
      p.math = math_of(format, plan);
      p.format = cpu_format(format);
    }
    if (size > 0) {
      // Matrices of one stage share their input, but for the sparse indexer's: there the mean over
      // outputs keeps FLOPs and weight bytes.
      p.in = size / p.out;
      p.weight_bits = bits / size;
    }
    return p;
  }

  // An up-projection whose activation follows: gate and up collapse to one inner column each.
  Projection up_stage(const Layer& layer, Stage stage_id, const char* gated,
                      const char* plain) const {
    Projection p = stage(layer, stage_id, layer.gated ? gated : plain);
    p.gated = layer.gated;
    p.inner = layer.gated ? p.out / 2 : p.out;
    return p;
  }
};

void cut_attention(RankGroup& g, const Mixer& m, const Plan& plan, const Rank& rank) {
  AttentionShape& a = g.attention;
  const double tp = plan.tp;
  a.heads = cut(m.heads, tp);
  a.kv_heads = std::max(1.0, cut(m.kv_heads, tp));
  a.head_dim = m.head_dim;
  a.v_head_dim = m.v_head_dim;
  a.window = m.window;
  a.chunked = m.chunked;
  a.kv_bytes = rank.kv_bytes;
  a.act_bytes = rank.act_bytes;
  a.index_heads = m.index_heads;
  a.index_dim = m.index_dim;
  a.index_topk = m.index_topk;
  g.window = m.window;
  g.output_gate = m.output_gate;
  g.q_columns = a.heads * a.head_dim;
  if (m.kind == MixerKind::mla) {
    a.kv_rank = m.kv_rank;
    a.rope_dim = m.rope_dim;
    a.kv_heads = a.heads;  // when expanded, every head has its own
    g.q_columns = a.heads * m.rope_dim;
    g.kv_columns = m.kv_rank + m.rope_dim;
  } else {
    g.kv_columns = a.kv_heads * (a.head_dim + a.v_head_dim);
  }
  // The sparse indexer keeps one fp8 key per token beside the cache, scales as in model.cc.
  const double index_bytes = m.index_dim + 4 * std::ceil(m.index_dim / 128.0);
  if (!m.shares_kv) g.cache_per_token = g.kv_columns * rank.kv_bytes + index_bytes;
}

ScanKind scan_kind(MixerKind kind) {
  switch (kind) {
    case MixerKind::mamba1:
      return ScanKind::mamba1;
    case MixerKind::mamba2:
      return ScanKind::mamba2;
    case MixerKind::conv:
      return ScanKind::conv;
    default:
      return ScanKind::delta;
  }
}

void cut_scan(RankGroup& g, const Mixer& m, const Plan& plan, const Rank& rank) {
  ScanShape& s = g.scan;
  s.kind = scan_kind(m.kind);
  s.heads = cut(m.value_heads, plan.tp);
  s.state_dim = m.state_dim;
  s.value_dim = m.value_dim;
  s.key_columns = 2 * cut(m.key_heads, plan.tp) * m.state_dim;
  s.conv_channels = cut(m.conv_channels, plan.tp);
  s.conv_kernel = m.conv_kernel;
  s.state_bytes = m.state_format.bytes();
  s.act_bytes = rank.act_bytes;
  g.state_bytes = s.heads * s.state_dim * s.value_dim * s.state_bytes +
                  s.conv_channels * std::max(0.0, s.conv_kernel - 1) * s.act_bytes;
}

RankGroup cut_group(const LayerGroup& source, const Cutter& cutter, const Rank& rank) {
  const Layer& layer = source.layer;
  const Mixer& m = layer.mixer;
  const bool attends = m.kind == MixerKind::attention || m.kind == MixerKind::mla;
  RankGroup g;
  g.kind = m.kind;
  g.count = source.count;
  g.norms = layer.norms;
  g.mixer_in = cutter.stage(layer, Stage::mixer_in, attends ? "qkv" : "in_proj");
  g.mla_down = cutter.stage(layer, Stage::mixer_down, "mla_down");
  g.mla_up_q = cutter.stage(layer, Stage::mixer_up_q, "mla_up_q");
  g.mla_up_kv = cutter.stage(layer, Stage::mixer_up_kv, "mla_up_kv");
  g.index_in = cutter.stage(layer, Stage::index_in, "index_proj");
  g.mixer_out = cutter.stage(layer, Stage::mixer_out, "out");
  g.router = cutter.stage(layer, Stage::router, "router");
  g.expert_in = cutter.up_stage(layer, Stage::expert_in, "expert_gate_up", "expert_up");
  g.expert_out = cutter.stage(layer, Stage::expert_out, "expert_down");
  g.shared_in = cutter.up_stage(layer, Stage::shared_in, "shared_gate_up", "shared_up");
  g.shared_out = cutter.stage(layer, Stage::shared_out, "shared_down");
  g.ffn_in = cutter.up_stage(layer, Stage::ffn_in, "gate_up", "up");
  g.ffn_out = cutter.stage(layer, Stage::ffn_out, "down");
  g.routing = {double(layer.experts), double(layer.top_k), cutter.plan.expert_skew};
  if (attends) {
    cut_attention(g, m, cutter.plan, rank);
  } else if (m.kind != MixerKind::none) {
    cut_scan(g, m, cutter.plan, rank);
  }
  return g;
}

void check_plan(const Model& model, const Plan& plan) {
  const auto degree = [](int value, const char* name) {
    if (value < 1 || value > 100000)
      throw Error("{} must be from 1 to 100000, not {}", name, value);
  };
  degree(plan.tp, "tp");
  degree(plan.pp, "pp");
  degree(plan.dp, "dp");
  degree(plan.ep, "ep");
  if (plan.pp > model.layers()) {
    throw Error("pp {} is more than the {} layers of {}", plan.pp, model.layers(), model.name);
  }
  int heads = 0, experts = 0;
  for (const LayerGroup& g : model.groups) {
    heads = std::max({heads, g.layer.mixer.heads, g.layer.mixer.value_heads});
    experts = std::max(experts, g.layer.experts);
  }
  if (heads > 0 && plan.tp > heads) {
    throw Error("tp {} is more than the {} attention heads of {}", plan.tp, heads, model.name);
  }
  if (plan.ep > 1 && experts == 0) throw Error("ep {}: {} has no experts", plan.ep, model.name);
  if (plan.ep > std::max(1, experts)) {
    throw Error("ep {} is more than the {} experts of {}", plan.ep, experts, model.name);
  }
  if (int64_t(plan.tp) * plan.dp % plan.ep != 0) {
    throw Error("ep {} must divide tp x dp = {}", plan.ep, int64_t(plan.tp) * plan.dp);
  }
}

// llama.cpp quantizes the ends too: the embedding as the layers, the head to q6_k or wider.
bool is_gguf(const Format& format) {
  return format.name.starts_with('q') || format.name.starts_with("iq");
}

Format embed_format(const Model& model, const Plan& plan) {
  return plan.weights && is_gguf(*plan.weights) ? *plan.weights : model.embed_format;
}

Format head_format(const Model& model, const Plan& plan) {
  if (plan.weights && plan.quantizes_head) return *plan.weights;
  if (!plan.weights || !is_gguf(*plan.weights)) return model.head.format;
  const Format least = format_from_name("q6_k");
  return plan.weights->bits > least.bits ? *plan.weights : least;
}

// Embedding and head: cut over the vocabulary; with pipeline stages they sit on different ranks.
// With tied embeddings a head is a part of the embedding, whether that is cut or not.
double ends_bytes(const Model& model, const Plan& plan) {
  const double embed_parts = plan.cut_embedding ? plan.tp : 1;
  const double embed = model.embed_parameters() * embed_format(model, plan).bytes() / embed_parts;
  const double head = model.head.parameters() * head_format(model, plan).bytes() / plan.tp;
  if (model.tied_embeddings && plan.pp == 1) return std::max(embed, head);
  return plan.pp > 1 ? std::max(embed, head) : embed + head;
}

}  // namespace

Rank make_rank(const Model& model, const Plan& plan) {
  check_plan(model, plan);
  Rank rank;
  rank.model = &model;
  rank.plan = plan;
  rank.hidden = model.hidden;
  rank.vocab = double(model.vocab);
  rank.kv_bytes = (plan.kv ? *plan.kv : model.kv_format).bytes();
  rank.embed_bits = embed_format(model, plan).bits;
  if (plan.activations == DType::fp32) rank.act_bytes = 4;
  rank.sum_bytes = plan.sums ? dtype_bits(*plan.sums) / 8.0 : rank.act_bytes;
  rank.layer_share = std::ceil(double(model.layers()) / plan.pp) / model.layers();

  const Cutter cutter{plan, double(plan.tp) * plan.dp / plan.ep / (plan.ep > 1 ? 1 : plan.dp)};
  double most = 0, layer_bytes = 0;
  for (const LayerGroup& source : model.groups) {
    rank.groups.push_back(cut_group(source, cutter, rank));
    for (const Linear& l : source.layer.linears) {
      layer_bytes += source.count * cutter.rank_bytes(l);
      const double size = source.count * double(l.copies) * double(l.in) * double(l.out);
      if (is_quantizable(l.stage) && size > most) {
        most = size;
        rank.math = math_of(format_of(l, plan), plan);
      }
    }
    // Norms and the like stay as they are, whatever the plan does to matrices.
    layer_bytes += source.count * source.layer.other_parameters * model.format_of_other().bytes();
  }
  rank.head.name = "lm_head";
  rank.head.in = model.hidden;
  rank.head.out = cut(double(model.vocab), plan.tp);
  const Format head = head_format(model, plan);
  rank.head.weight_bits = head.bits;
  rank.head.matrices = 1;
  rank.head.math = math_of(head, plan);
  rank.head.format = cpu_format(head);

  rank.weight_bytes = layer_bytes * rank.layer_share + ends_bytes(model, plan);
  for (const Extra& extra : model.extras) {
    if (extra.counted) rank.weight_bytes += extra.parameters * extra.format.bytes();
  }
  rank.weight_bytes += model.other_parameters * model.format_of_other().bytes();
  return rank;
}

double sequence_bytes(const Rank& rank, double context) {
  const Plan& plan = rank.plan;
  const double reserve = plan.reserve > 0 ? plan.reserve : double(rank.model->max_context);
  const double page = plan.page_tokens;
  double bytes = 0;
  for (const RankGroup& g : rank.groups) {
    double tokens = plan.paging ? context : std::max(context, reserve);
    if (g.window > 0) tokens = std::min(tokens, g.window);
    if (plan.paging) tokens = std::ceil(tokens / page) * page;
    bytes += g.count * (tokens * g.cache_per_token + g.state_bytes);
  }
  return bytes * rank.layer_share;
}

double score_bytes(const Rank& rank, double prompt_pairs, double decode_pairs) {
  if (rank.plan.flash) return 0;
  double most = 0;
  for (const RankGroup& g : rank.groups) {
    // Decoding over MLA's compressed cache is never materialised.
    const double pairs = prompt_pairs + (g.kind == MixerKind::mla ? 0 : decode_pairs);
    most = std::max(most, 2 * g.attention.heads * pairs * rank.act_bytes);
  }
  return most;
}

double activation_bytes(const Rank& rank, double tokens, double sequences) {
  double widest = 0;
  for (const RankGroup& g : rank.groups) {
    for (const Projection* p : {&g.mixer_in, &g.mla_up_q, &g.ffn_in, &g.shared_in}) {
      widest = std::max(widest, p->out + p->inner);
    }
    // Routed tokens are gathered once per chosen expert.
    widest = std::max(widest, g.routing.top_k * (g.expert_in.in + g.expert_in.out));
  }
  // The residual stream, its normed copy, one projection's result; fp32 logits.
  return tokens * (2 * rank.hidden + widest) * rank.act_bytes + sequences * rank.head.out * 4;
}

}  // namespace ridge
