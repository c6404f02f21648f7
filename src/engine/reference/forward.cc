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
    if (rope.frequency[i] == 0) continue;
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

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// The indices of the `count` largest, the lower index first among equals.
std::vector<size_t> largest(const Doubles& values, int count) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return values[a] > values[b]; });
  order.resize(size_t(count));
  return order;
}

struct Cache {
  std::vector<Doubles> k, v;  // one entry per token
};

class Pass {
 public:
  Pass(const Weights& weights, int context)
      : weights_(weights), shape_(weights.architecture), caches_(weights.layers.size()) {
    choose_long_ropes(shape_, context);
  }

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
    Doubles q = shape_.latent ? latent_heads(l, x, position) : heads(l, x, position);
    const Cache& cache = caches_[l];
    const size_t keys = cache.k.size(), first = first_key(shape_.layers[l], keys);
    const size_t kv_heads = shape_.latent ? size_t(shape_.heads) : size_t(shape_.kv_heads);
    const size_t count = size_t(shape_.heads), group = count / kv_heads;
    const size_t dim = q.size() / count, value_dim = cache.v[0].size() / kv_heads;
    Doubles out(count * value_dim, 0.0);
    for (size_t h = 0; h < count; ++h) {
      const double* const mine = &q[h * dim];
      Doubles score;
      for (size_t t = first; t < keys; ++t) {
        const double dot = std::inner_product(mine, mine + dim, &cache.k[t][h / group * dim], 0.0);
        score.push_back(capped(dot * double(shape_.query_scale), shape_.attention_softcap));
      }
      if (shape_.sinks) score.push_back(double(w.sinks[h]));
      softmax(score);
      for (size_t t = first; t < keys; ++t) {
        const double* const value = &cache.v[t][h / group * value_dim];
        for (size_t d = 0; d < value_dim; ++d)
          out[h * value_dim + d] += score[t - first] * value[d];
      }
    }
    return times(w.out, out, w.out_bias);
  }

  // The first of `keys` keys that the last of them, as a query, sees.
  static size_t first_key(const LayerShape& layer, size_t keys) {
    const auto window = size_t(layer.window);
    if (window == 0) return 0;
    return layer.chunked ? (keys - 1) / window * window : keys > window ? keys - window : 0;
  }

  // The queries, after their norms and RoPE; the token's keys and values join the cache.
  Doubles heads(size_t l, const Doubles& x, int position) {
    const LayerWeights& w = weights_.layers[l];
    const Rope& rope = shape_.ropes[size_t(shape_.layers[l].rope)];
    const auto dim = size_t(shape_.head_dim);
    const bool rotates = !rope.frequency.empty();
    Doubles q = times(w.q, x, w.q_bias), k = times(w.k, x, w.k_bias);
    const auto prepare = [&](Doubles& all, const Vector& head_norm) {
      for (size_t at = 0; at < all.size(); at += dim) {
        const std::span<double> head(&all[at], dim);
        if (!head_norm.empty()) norm(head, head_norm, shape_.norm_eps);
        rotate(head, rope, position);
        if (shape_.unit_qk && rotates) norm(head, Vector(dim, 1.0f), shape_.norm_eps);
      }
    };
    prepare(q, w.q_norm);
    prepare(k, w.k_norm);
    if (!rotates) {
      const double floors = std::floor((position + 1) / double(shape_.temperature_floor));
      for (double& each : q) each *= 1 + double(shape_.temperature_scale) * std::log1p(floors);
    }
    caches_[l].k.push_back(std::move(k));
    caches_[l].v.push_back(times(w.v, x, w.v_bias));
    return q;
  }

  // Latent attention with the keys and values of every head made from the latent: not absorbed.
  Doubles latent_heads(size_t l, const Doubles& x, int position) {
    const LayerWeights& w = weights_.layers[l];
    const LatentAttention& latent = shape_.latent;
    const Rope& rope = shape_.ropes[size_t(shape_.layers[l].rope)];
    const auto nope = size_t(latent.nope), rotated = size_t(latent.rope);
    const auto dim = size_t(latent.q_head()), value_dim = size_t(latent.value);
    Doubles q = latent.q_rank > 0 ? times(w.q, normed(times(w.q_a, x), w.q_a_norm, latent.norm_eps))
                                  : times(w.q, x);
    for (size_t at = nope; at < q.size(); at += dim) rotate({&q[at], rotated}, rope, position);
    Doubles compressed = times(w.kv_a, x);
    Doubles rope_key(compressed.begin() + latent.kv_rank, compressed.end());
    rotate(rope_key, rope, position);
    compressed.resize(size_t(latent.kv_rank));
    const Doubles both = times(w.kv_b, normed(compressed, w.kv_a_norm, latent.norm_eps));
    Doubles k, v;
    for (size_t at = 0; at < both.size(); at += nope + value_dim) {
      const auto head = both.begin() + std::ptrdiff_t(at), values = head + latent.nope;
      k.insert(k.end(), head, values);
      k.insert(k.end(), rope_key.begin(), rope_key.end());
      v.insert(v.end(), values, values + latent.value);
    }
    caches_[l].k.push_back(std::move(k));
    caches_[l].v.push_back(std::move(v));
    return q;
  }

  Doubles mlp(const Matrix& gate, const Matrix& up, const Matrix& down, const Doubles& x,
              const ExpertBias& bias = {}) const {
    Doubles inner = times(gate, x, bias.gate);
    const Doubles other = times(up, x, bias.up);
    for (size_t i = 0; i < inner.size(); ++i) {
      inner[i] = gate_times_up(shape_.activation, inner[i], other[i]);
    }
    return times(down, inner, bias.down);
  }

  Doubles experts(const LayerWeights& w, const Doubles& x) {
    const RouterRules& routing = shape_.routing;
    const Doubles logits = times(w.router, x, w.router_bias);
    const std::vector<size_t> chosen = choose(logits, w.router_correction);
    Doubles weight = logits;
    if (routing.sigmoid) {
      for (double& each : weight) each = sigmoid(each);
    } else {
      softmax(weight);
    }
    double sum = 0;
    for (size_t e : chosen) sum += weight[e];
    if (!shape_.normalize_top_k) sum = 1;
    Doubles out = shape_.shared_ffn > 0 ? mlp(w.shared_gate, w.shared_up, w.shared_down, x)
                                        : Doubles(x.size(), 0.0);
    for (size_t e : chosen) {
      const double factor = weight[e] / sum * double(routing.scale);
      Doubles in = x;
      if (routing.scales_input) {
        for (double& each : in) each *= factor;
      }
      const Doubles one = mlp(w.expert_gate[e], w.expert_up[e], w.expert_down[e], in,
                              shape_.expert_bias ? w.expert_bias[e] : ExpertBias());
      for (size_t i = 0; i < out.size(); ++i)
        out[i] += routing.scales_input ? one[i] : factor * one[i];
    }
    return out;
  }

  std::vector<size_t> choose(const Doubles& logits, const Vector& correction) {
    const RouterRules& routing = shape_.routing;
    const double squares = std::inner_product(logits.begin(), logits.end(), logits.begin(), 0.0);
    double size = std::sqrt(squares / double(logits.size()));
    Doubles scores = logits;
    if (routing.correction) {
      size /= 4;  // the sigmoid's slope: how far an error of the logits moves the scores
      for (size_t e = 0; e < scores.size(); ++e) scores[e] = sigmoid(scores[e]) + correction[e];
    }
    if (routing.top_groups < routing.groups) {
      const size_t each = scores.size() / size_t(routing.groups);
      Doubles groups;
      for (size_t at = 0; at < scores.size(); at += each) {
        const auto first = scores.begin() + std::ptrdiff_t(at);
        Doubles members(first, first + std::ptrdiff_t(each));
        std::sort(members.begin(), members.end(), std::greater<>());
        groups.push_back(members[0] + (routing.correction && each > 1 ? members[1] : 0));
      }
      const std::vector<size_t> best = largest(groups, routing.top_groups);
      note_router_gap(groups, routing.top_groups, size);
      for (size_t e = 0; e < scores.size(); ++e) {
        if (std::find(best.begin(), best.end(), e / each) == best.end()) {
          scores[e] = -std::numeric_limits<double>::infinity();
        }
      }
    }
    note_router_gap(scores, shape_.top_k, size);
    return largest(scores, shape_.top_k);
  }

  void note_router_gap(Doubles scores, int count, double size) {
    const auto chosen = size_t(count);
    if (chosen >= scores.size()) return;
    std::sort(scores.begin(), scores.end(), std::greater<>());
    router_gap_ = std::min(router_gap_, (scores[chosen - 1] - scores[chosen]) / size);
  }

  const Weights& weights_;
  Architecture shape_;
  std::vector<Cache> caches_;
  double router_gap_ = 0;
};

}  // namespace

std::vector<double> forward(const Weights& weights, std::span<const Token> tokens,
                            std::vector<double>* router_gaps) {
  Pass pass(weights, static_cast<int>(tokens.size()));
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
