#include "engine/cuda/host/load_model.h"

#include <algorithm>

#include "engine/ranks/cut_weights.h"
#include "ranks/rank_grid.h"

namespace ridge {
namespace {

using cuda::DeviceModel;
using cuda::FillRows;
using cuda::MatrixKind;
using cuda::rows_of;
using cuda::VectorKind;
using cuda::WideHeads;

// Of the tokens that this rank embeds.
Matrix embedding_of_part(const Weights& weights, const RankLinks* links) {
  Matrix part = weights.embed;
  if (links == nullptr) return part;
  const RankGrid& grid = links->grid;
  const RankPart tokens =
      vocabulary_part(weights.architecture.vocab, grid.part_of(links->rank()), grid.tp);
  part.data = weights.embed.row(tokens.first);
  part.rows = tokens.end - tokens.first;
  return part;
}

// The transpose of a matrix.
FillRows columns_of(const Matrix& m) {
  return [&m](int64_t first, int64_t count, uint16_t* to) {
    std::vector<float> row(static_cast<size_t>(m.columns));
    for (int64_t r = 0; r < m.rows; ++r) {
      dequantize(m.storage, m.row(r), m.columns, row.data());
      for (int64_t c = 0; c < count; ++c) {
        to[c * m.rows + r] = f32_to_bf16(row[size_t(first + c)]);
      }
    }
  };
}

class Loader {
 public:
  Loader(const Weights& weights, const WideHeads& heads, DeviceModel& to)
      : weights_(weights), a_(weights.architecture), heads_(heads), to_(to) {}

  void attention(int layer) {
    const LayerWeights& w = weights_.layers[size_t(layer)];
    to_.load(VectorKind::attn_norm, layer, w.attn_norm);
    if (a_.latent) return latents(layer);
    to_.load(MatrixKind::q, layer, heads_.rows(w.q));
    to_.load(MatrixKind::k, layer, heads_.rows(w.k));
    to_.load(MatrixKind::v, layer, heads_.rows(w.v));
    to_.load(MatrixKind::out, layer, heads_.columns(w.out));
    if (a_.post_norms) to_.load(VectorKind::post_attn_norm, layer, w.post_attn_norm);
    if (a_.qk_norm) {
      to_.load(VectorKind::q_norm, layer, heads_.norm(w.q_norm));
      to_.load(VectorKind::k_norm, layer, heads_.norm(w.k_norm));
    }
    if (a_.unit_qk) {
      const Vector ones(size_t(a_.head_dim), 1.0f);
      to_.load(VectorKind::q_norm, layer, heads_.norm(ones));
      to_.load(VectorKind::k_norm, layer, heads_.norm(ones));
    }
    if (a_.qkv_bias) to_.load(VectorKind::qkv_bias, layer, qkv_bias(w));
    if (a_.out_bias) to_.load(VectorKind::out_bias, layer, w.out_bias);
    if (a_.sinks) to_.load(VectorKind::sinks, layer, w.sinks);
  }

  void mlp(int layer) {
    const LayerWeights& w = weights_.layers[size_t(layer)];
    to_.load(VectorKind::mlp_norm, layer, w.mlp_norm);
    if (a_.post_norms) to_.load(VectorKind::post_mlp_norm, layer, w.post_mlp_norm);
    if (!a_.layers[size_t(layer)].moe) {
      to_.load(MatrixKind::gate_up, layer, rows_of(w.gate), rows_of(w.up));
      to_.load(MatrixKind::down, layer, rows_of(w.down));
      return;
    }
    to_.load(MatrixKind::router, layer, rows_of(w.router));
    for (int e = 0; e < int(w.expert_down.size()); ++e) {
      const size_t i = size_t(e);
      if (!w.expert_down[i]) continue;  // on another rank
      to_.load(MatrixKind::expert_gate_up, layer, rows_of(w.expert_gate[i]),
               rows_of(w.expert_up[i]), e);
      to_.load(MatrixKind::expert_down, layer, rows_of(w.expert_down[i]), {}, e);
    }
    if (a_.shared_ffn > 0) {
      to_.load(MatrixKind::shared_gate_up, layer, rows_of(w.shared_gate), rows_of(w.shared_up));
      to_.load(MatrixKind::shared_down, layer, rows_of(w.shared_down));
    }
    if (a_.routing.correction) {
      to_.load(VectorKind::router_correction, layer, w.router_correction);
    }
    if (a_.expert_bias) expert_biases(layer);
  }

 private:
  void latents(int layer) {
    const LayerWeights& w = weights_.layers[size_t(layer)];
    const LatentAttention& latent = a_.latent;
    if (w.q_a) {
      to_.load(MatrixKind::q_a, layer, rows_of(w.q_a));
      to_.load(VectorKind::q_a_norm, layer, w.q_a_norm);
    }
    to_.load(MatrixKind::q, layer, rows_of(w.q));
    to_.load(MatrixKind::kv_a, layer, rows_of(w.kv_a));
    to_.load(VectorKind::kv_a_norm, layer, w.kv_a_norm);
    to_.load(MatrixKind::out, layer, rows_of(w.out));
    for (int h = 0; h < a_.heads; ++h) {
      Matrix keys = w.kv_b, values = w.kv_b;
      const int64_t first = int64_t{h} * (latent.nope + latent.value);
      keys.data = w.kv_b.row(first), keys.rows = latent.nope;
      values.data = w.kv_b.row(first + latent.nope), values.rows = latent.value;
      to_.load(MatrixKind::absorb, layer, columns_of(keys), {}, h);
      to_.load(MatrixKind::expand, layer, rows_of(values), {}, h);
    }
  }

  // As the kernels read them: the rows of gate and up alternate by eight (layout/pack.cuh), and the
  // experts that are here come first (those of other ranks have no biases).
  void expert_biases(int layer) {
    const LayerWeights& w = weights_.layers[size_t(layer)];
    Vector router = w.router_bias, gate_up, down;
    router.resize((router.size() + 15) / 16 * 16);
    for (const ExpertBias& bias : w.expert_bias) {
      for (size_t i = 0; i < bias.gate.size(); i += 8) {
        gate_up.insert(gate_up.end(), &bias.gate[i], &bias.gate[i] + 8);
        gate_up.insert(gate_up.end(), &bias.up[i], &bias.up[i] + 8);
      }
      down.insert(down.end(), bias.down.begin(), bias.down.end());
    }
    gate_up.resize(size_t(a_.experts) * 2 * size_t(a_.expert_ffn));
    down.resize(size_t(a_.experts) * size_t(a_.hidden));
    to_.load(VectorKind::router_bias, layer, router);
    to_.load(VectorKind::expert_gate_up_bias, layer, gate_up);
    to_.load(VectorKind::expert_down_bias, layer, down);
  }

  Vector qkv_bias(const LayerWeights& w) const {
    Vector bias;
    const auto add = [&](const Vector& narrow, int heads) {
      const Vector part = heads_.vector(narrow);
      const int columns = heads * heads_.wide();
      bias.resize(bias.size() + size_t(columns));  // absent: zero
      std::copy(part.begin(), part.end(), bias.end() - columns);
    };
    add(w.q_bias, a_.heads);
    add(w.k_bias, a_.kv_heads);
    add(w.v_bias, a_.kv_heads);
    return bias;
  }

  const Weights& weights_;
  const Architecture& a_;
  const WideHeads& heads_;
  DeviceModel& to_;
};

}  // namespace

void load_model(const Weights& weights, const WideHeads& heads, const RankLinks* links,
                DeviceModel& to) {
  if (links == nullptr || links->is_first_stage()) {
    const Matrix embedding = embedding_of_part(weights, links);
    to.load(MatrixKind::embed, 0, rows_of(embedding));
  }
  if (weights.head) to.load(MatrixKind::head, 0, rows_of(weights.head));
  to.load(VectorKind::final_norm, 0, weights.final_norm);
  Loader loader(weights, heads, to);
  for (int layer = 0; layer < int(weights.layers.size()); ++layer) {
    loader.attention(layer);
    loader.mlp(layer);
  }
  to.finish_loading();
}

}  // namespace ridge
