#include "engine/reference/forward.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>

#include "engine/reference/activation.h"

namespace ridge::reference {
namespace {

using Doubles = std::vector<double>;

Doubles row_of(const Matrix& matrix, int64_t r) {
  std::vector<float> row(size_t(matrix.columns));
  dequantize(matrix.storage, matrix.row(r), matrix.columns, row.data());
  return {row.begin(), row.end()};
}

Doubles times(const Matrix& matrix, const Doubles& x, const Vector& bias = {}) {
  Doubles y(size_t(matrix.rows));
  for (int64_t r = 0; r < matrix.rows; ++r) {
    const Doubles row = row_of(matrix, r);
    y[size_t(r)] = std::inner_product(row.begin(), row.end(), x.begin(),
                                      bias.empty() ? 0.0 : double(bias[size_t(r)]));
  }
  return y;
}

// x = x / rms(x) * w, in place.
void norm(std::span<double> x, const Vector& w, double eps) {
  const double squares = std::inner_product(x.begin(), x.end(), x.begin(), 0.0);
  const double scale = 1 / std::sqrt(squares / double(x.size()) + eps);
  for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * double(w[i]);
}

Doubles normed(Doubles x, const Vector& w, double eps) {
  norm(x, w, eps);
  return x;
}

// Rotates the pairs of elements (i, i + half).
void rotate(std::span<double> head, const Rope& rope, int position) {
  const size_t half = rope.frequency.size();
  for (size_t i = 0; i < half; ++i) {
    const double angle = double(position) * double(rope.frequency[i]);
    const double c = std::cos(angle) * double(rope.magnitude);
    const double s = std::sin(angle) * double(rope.magnitude);
    const double a = head[i], b = head[i + half];
    head[i] = a * c - b * s;
    head[i + half] = b * c + a * s;
  }
}

void softmax(Doubles& x) {
  const double top = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& each : x) sum += each = std::exp(each - top);
  for (double& each : x) each /= sum;
}

struct Cache {
  std::vector<Doubles> k, v;  // one entry per token
};

class Pass {
 public:
  explicit Pass(const Weights& weights)
      : weights_(weights), shape_(weights.architecture), caches_(weights.layers.size()) {}

  double router_gap() const { return router_gap_; }  // of the last token

  Doubles logits(Token token, int position) {
    router_gap_ = std::numeric_limits<double>::infinity();
    Doubles x = row_of(weights_.embed, token);
    for (double& each : x) each *= double(shape_.embed_scale);
    for (size_t l = 0; l < weights_.layers.size(); ++l) {
      const LayerWeights& w = weights_.layers[l];
      add(x, attend(l, normed(x, w.attn_norm, shape_.norm_eps), position), w.post_attn_norm);
      const Doubles in = normed(x, w.mlp_norm, shape_.norm_eps);
      add(x, shape_.layers[l].moe ? experts(w, in) : mlp(w.gate, w.up, w.down, in),
          w.post_mlp_norm);
    }
    Doubles out = times(weights_.head, normed(x, weights_.final_norm, shape_.norm_eps));
    if (shape_.logit_softcap > 0) {
      for (double& each : out) each = capped(each, shape_.logit_softcap);
    }
    return out;
  }

 private:
  static double capped(double x, double cap) { return cap > 0 ? cap * std::tanh(x / cap) : x; }

  void add(Doubles& x, Doubles block, const Vector& post_norm) const {
    if (!post_norm.empty()) norm(block, post_norm, shape_.norm_eps);
    for (size_t i = 0; i < x.size(); ++i) x[i] += block[i];
  }

  Doubles attend(size_t l, const Doubles& x, int position) {
    const LayerWeights& w = weights_.layers[l];
    const LayerShape& layer = shape_.layers[l];
    const auto dim = size_t(shape_.head_dim);
    Doubles q = times(w.q, x, w.q_bias), k = times(w.k, x, w.k_bias);
    const auto prepare = [&](Doubles& heads, const Vector& head_norm) {
      for (size_t at = 0; at < heads.size(); at += dim) {
        const std::span<double> head(&heads[at], dim);
        if (!head_norm.empty()) norm(head, head_norm, shape_.norm_eps);
        rotate(head, shape_.ropes[size_t(layer.rope)], position);
      }
    };
    prepare(q, w.q_norm);
    prepare(k, w.k_norm);
    Cache& cache = caches_[l];
    cache.k.push_back(std::move(k));
    cache.v.push_back(times(w.v, x, w.v_bias));

    const size_t keys = cache.k.size();
    const size_t first =
        layer.window > 0 && keys > size_t(layer.window) ? keys - size_t(layer.window) : 0;
    Doubles out(q.size(), 0.0);
    for (int h = 0; h < shape_.heads; ++h) {
      const size_t mine = size_t(h) * dim;
      const size_t theirs = size_t(h / (shape_.heads / shape_.kv_heads)) * dim;
      Doubles score;
      for (size_t t = first; t < keys; ++t) {
        const double dot = std::inner_product(&q[mine], &q[mine] + dim, &cache.k[t][theirs], 0.0);
        score.push_back(capped(dot * double(shape_.query_scale), shape_.attention_softcap));
      }
      softmax(score);
      for (size_t t = first; t < keys; ++t) {
        for (size_t d = 0; d < dim; ++d) out[mine + d] += score[t - first] * cache.v[t][theirs + d];
      }
    }
    return times(w.out, out);
  }

  Doubles mlp(const Matrix& gate, const Matrix& up, const Matrix& down, const Doubles& x) const {
    Doubles inner = times(gate, x);
    const Doubles other = times(up, x);
    for (size_t i = 0; i < inner.size(); ++i) {
      inner[i] = activate(shape_.activation, inner[i]) * other[i];
    }
    return times(down, inner);
  }

  Doubles experts(const LayerWeights& w, const Doubles& x) {
    Doubles probability = times(w.router, x);
    note_router_gap(probability);
    softmax(probability);
    std::vector<size_t> order(probability.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return probability[a] > probability[b]; });
    order.resize(size_t(shape_.top_k));
    double sum = 0;
    for (size_t e : order) sum += probability[e];
    if (!shape_.normalize_top_k) sum = 1;
    Doubles out(x.size(), 0.0);
    for (size_t e : order) {
      const Doubles one = mlp(w.expert_gate[e], w.expert_up[e], w.expert_down[e], x);
      for (size_t i = 0; i < out.size(); ++i) out[i] += probability[e] / sum * one[i];
    }
    return out;
  }

  void note_router_gap(Doubles router) {
    const auto chosen = size_t(shape_.top_k);
    if (chosen >= router.size()) return;
    const double squares = std::inner_product(router.begin(), router.end(), router.begin(), 0.0);
    const double size = std::sqrt(squares / double(router.size()));
    std::sort(router.begin(), router.end(), std::greater<>());
    router_gap_ = std::min(router_gap_, (router[chosen - 1] - router[chosen]) / size);
  }

  const Weights& weights_;
  const Architecture& shape_;
  std::vector<Cache> caches_;
  double router_gap_ = 0;
};

}  // namespace

std::vector<double> forward(const Weights& weights, std::span<const Token> tokens,
                            std::vector<double>* router_gaps) {
  Pass pass(weights);
  if (router_gaps) router_gaps->clear();
  std::vector<double> all;
  for (size_t t = 0; t < tokens.size(); ++t) {
    const Doubles logits = pass.logits(tokens[t], static_cast<int>(t));
    all.insert(all.end(), logits.begin(), logits.end());
    if (router_gaps) router_gaps->push_back(pass.router_gap());
  }
  return all;
}

}  // namespace ridge::reference
