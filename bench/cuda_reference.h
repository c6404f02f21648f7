// The forward pass in double precision on the host, with the weights that a DeviceModel holds. The
// CUDA kernels are checked against it.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <thread>
#include <vector>

#include "engine/cuda/host/device_model.h"

namespace ridge::cuda {

class Reference {
 public:
  Reference(DeviceModel& model, const ModelShape& shape) : s_(shape) {
    embed_ = model.unpacked(MatrixKind::embed, 0);
    head_ = model.unpacked(MatrixKind::head, 0);
    final_ = model.vector(VectorKind::final_norm, 0);
    for (int l = 0; l < s_.layers; ++l) {
      Layer layer;
      layer.qkv = model.unpacked(MatrixKind::q, l);
      layer.out = model.unpacked(MatrixKind::out, l);
      if (s_.is_moe(l)) {  // then every layer is
        layer.router = model.unpacked(MatrixKind::router, l);
        for (int e = 0; e < s_.experts; ++e) {
          layer.expert_gate_up.push_back(
              model.unpacked(MatrixKind::expert_gate_up, l * s_.experts + e));
          layer.expert_down.push_back(model.unpacked(MatrixKind::expert_down, l * s_.experts + e));
        }
      } else {
        layer.gate_up = model.unpacked(MatrixKind::gate_up, l);
        layer.down = model.unpacked(MatrixKind::down, l);
      }
      layer.attn_norm = model.vector(VectorKind::attn_norm, l);
      layer.mlp_norm = model.vector(VectorKind::mlp_norm, l);
      if (s_.post_norms) {
        layer.post_attn_norm = model.vector(VectorKind::post_attn_norm, l);
        layer.post_mlp_norm = model.vector(VectorKind::post_mlp_norm, l);
      }
      if (s_.qk_norm) {
        layer.q_norm = model.vector(VectorKind::q_norm, l);
        layer.k_norm = model.vector(VectorKind::k_norm, l);
      }
      if (s_.qkv_bias) layer.bias = model.vector(VectorKind::qkv_bias, l);
      layers_.push_back(std::move(layer));
    }
  }

  // The KV cache of one sequence: keys and values of each layer, token after token.
  struct Past {
    std::vector<std::vector<double>> keys, values;
    int length = 0;
    // By token: the least over the layers of (last chosen - first unchosen router logit) / root
    // mean square of the router logits.
    std::vector<double> router_gaps;
  };

  // May replace a token's keys and values of a layer before they are cached, e.g. by the rounded
  // ones that the device has.
  using Replace = std::function<void(int layer, double* keys, double* values)>;

  std::vector<double> step(Past& past, int token, const Replace& replace = {}) const {
    past.keys.resize(s_.layers);
    past.values.resize(s_.layers);
    const int d = s_.head_dim, q_columns = s_.heads * d, kv_columns = s_.kv_heads * d;
    past.router_gaps.push_back(INFINITY);
    std::vector<double> h(s_.hidden);
    for (int i = 0; i < s_.hidden; ++i) {
      h[i] = double(embed_[size_t(token) * s_.hidden + i]) * s_.embed_scale;
    }
    for (int l = 0; l < s_.layers; ++l) {
      const Layer& layer = layers_[l];
      std::vector<double> qkv =
          multiply(layer.qkv, normed(h, layer.attn_norm), q_columns + 2 * kv_columns);
      for (size_t i = 0; i < layer.bias.size(); ++i) qkv[i] += layer.bias[i];
      for (int head = 0; head < s_.heads + s_.kv_heads; ++head) {
        rope(&qkv[size_t(head) * d], head < s_.heads ? layer.q_norm : layer.k_norm, past.length, l);
      }
      std::vector<double>&keys = past.keys[l], &values = past.values[l];
      keys.insert(keys.end(), qkv.begin() + q_columns, qkv.begin() + q_columns + kv_columns);
      values.insert(values.end(), qkv.begin() + q_columns + kv_columns, qkv.end());
      if (replace) replace(l, &keys[keys.size() - kv_columns], &values[values.size() - kv_columns]);
      const std::vector<double> attended = attend(qkv, keys, values, past.length + 1, l);
      add(h, block_output(multiply(layer.out, attended, s_.hidden), layer.post_attn_norm));
      const std::vector<double> x = normed(h, layer.mlp_norm);
      if (!s_.is_moe(l)) {
        add(h, block_output(mlp(layer.gate_up, layer.down, x, s_.ffn), layer.post_mlp_norm));
        continue;
      }
      std::vector<double> p = multiply(layer.router, x, s_.experts);
      std::vector<int> order(p.size());
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return p[a] > p[b]; });
      if (s_.top_k < s_.experts) {
        const double squares = std::inner_product(p.begin(), p.end(), p.begin(), 0.0);
        const double gap = p[order[s_.top_k - 1]] - p[order[s_.top_k]];
        past.router_gaps.back() =
            std::min(past.router_gaps.back(), gap / std::sqrt(squares / s_.experts));
      }
      double total = 0;
      for (double& v : p) v = std::exp(v);
      for (int i = 0; i < (s_.normalize_top_k ? s_.top_k : s_.experts); ++i) total += p[order[i]];
      for (int i = 0; i < s_.top_k; ++i) {
        const int e = order[i];
        std::vector<double> y =
            mlp(layer.expert_gate_up[e], layer.expert_down[e], x, s_.expert_ffn);
        for (double& v : y) v *= p[e] / total;
        add(h, y);
      }
    }
    ++past.length;
    std::vector<double> logits = multiply(head_, normed(h, final_), s_.vocab);
    for (double& logit : logits) logit = capped(logit, s_.logit_softcap);
    return logits;
  }

 private:
  struct Layer {
    std::vector<float> qkv, out, gate_up, down, router;
    std::vector<std::vector<float>> expert_gate_up, expert_down;
    std::vector<float> attn_norm, mlp_norm, post_attn_norm, post_mlp_norm, q_norm, k_norm, bias;
  };

  static double capped(double value, double cap) {
    return cap > 0 ? cap * std::tanh(value / cap) : value;
  }
  double activate(double v) const {
    if (!s_.gelu) return v / (1 + std::exp(-v));
    return v / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  }
  // What a block adds to the residual.
  std::vector<double> block_output(std::vector<double> y, const std::vector<float>& norm) const {
    return norm.empty() ? y : normed(y, norm);
  }

  std::vector<double> mlp(const std::vector<float>& gate_up, const std::vector<float>& down,
                          const std::vector<double>& x, int ffn) const {
    const std::vector<double> both = multiply(gate_up, x, 2 * ffn);
    std::vector<double> activated(ffn);
    for (int i = 0; i < ffn; ++i) {
      const double gate = both[i / 8 * 16 + i % 8], up = both[i / 8 * 16 + i % 8 + 8];
      activated[i] = activate(gate) * up;
    }
    return multiply(down, activated, s_.hidden);
  }

  static void add(std::vector<double>& to, const std::vector<double>& what) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += what[i];
  }

  std::vector<double> normed(const std::vector<double>& x, const std::vector<float>& w) const {
    double squares = 0;
    for (const double v : x) squares += v * v;
    const double scale = 1 / std::sqrt(squares / double(x.size()) + s_.norm_eps);
    std::vector<double> y(x.size());
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * w[i];
    return y;
  }

  // `w` is [blocks * 16][padded columns].
  static std::vector<double> multiply(const std::vector<float>& w, const std::vector<double>& x,
                                      int rows) {
    const size_t columns = w.size() / (size_t(rows + 15) / 16 * 16);
    std::vector<double> y(rows);
    const int threads = rows * columns > 1 << 22 ? 16 : 1;
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        for (int r = t; r < rows; r += threads) {
          double sum = 0;
          for (size_t c = 0; c < x.size(); ++c) sum += double(w[r * columns + c]) * x[c];
          y[r] = sum;
        }
      });
    }
    for (std::thread& thread : workers) thread.join();
    return y;
  }

  void rope(double* v, const std::vector<float>& norm, int position, int layer) const {
    const auto& table = s_.ropes[s_.rope.empty() ? 0 : s_.rope[layer]];
    const int half = s_.head_dim / 2;
    if (!norm.empty()) {
      double squares = 0;
      for (int i = 0; i < 2 * half; ++i) squares += v[i] * v[i];
      const double scale = 1 / std::sqrt(squares / s_.head_dim + s_.norm_eps);
      for (int i = 0; i < 2 * half; ++i) v[i] *= scale * norm[i];
    }
    for (int i = 0; i < half; ++i) {
      const double angle = double(position) * table.frequency[i];
      const double c = std::cos(angle), n = std::sin(angle), x = v[i], y = v[i + half];
      v[i] = x * c - y * n;
      v[i + half] = y * c + x * n;
    }
  }

  std::vector<double> attend(const std::vector<double>& q, const std::vector<double>& keys,
                             const std::vector<double>& values, int length, int layer) const {
    const int d = s_.head_dim, kv_columns = s_.kv_heads * d, group = s_.heads / s_.kv_heads;
    const int window = s_.window.empty() ? 0 : s_.window[layer];
    const int low = window ? std::max(0, length - window) : 0;
    std::vector<double> out(size_t(s_.heads) * d);
    for (int head = 0; head < s_.heads; ++head) {
      std::vector<double> p(length);
      double maximum = -1e300, total = 0;
      for (int t = low; t < length; ++t) {
        double score = 0;
        for (int i = 0; i < d; ++i) {
          score += q[size_t(head) * d + i] * keys[size_t(t) * kv_columns + head / group * d + i];
        }
        p[t] = capped(score * s_.query_scale, s_.attention_softcap);
        maximum = std::max(maximum, p[t]);
      }
      for (int t = low; t < length; ++t) total += p[t] = std::exp(p[t] - maximum);
      for (int t = low; t < length; ++t) {
        for (int i = 0; i < d; ++i) {
          out[size_t(head) * d + i] +=
              p[t] / total * values[size_t(t) * kv_columns + head / group * d + i];
        }
      }
    }
    return out;
  }

  ModelShape s_;
  std::vector<float> embed_, head_, final_;
  std::vector<Layer> layers_;
};

}  // namespace ridge::cuda
