#include "engine/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace ridge::reference {

void attention(const AttentionRules& rules, int past, int fresh, const float* q, const float* k,
               const float* v, float* out) {
  const auto dim = static_cast<size_t>(rules.head_dim);
  const int group = rules.heads / rules.kv_heads;
  std::vector<double> weight(static_cast<size_t>(past + fresh));
  for (int t = 0; t < fresh; ++t) {
    const int position = past + t;
    int first = rules.window > 0 ? std::max(0, position - rules.window + 1) : 0;
    if (rules.chunked && rules.window > 0) first = position / rules.window * rules.window;
    for (int head = 0; head < rules.heads; ++head) {
      const size_t row = (size_t(t) * size_t(rules.heads) + size_t(head)) * dim;
      const auto key_at = [&](int key) {
        return (size_t(key) * size_t(rules.kv_heads) + size_t(head / group)) * dim;
      };
      double max = -INFINITY;
      for (int key = first; key <= position; ++key) {
        double s = 0;
        for (size_t i = 0; i < dim; ++i) s += double(q[row + i]) * double(k[key_at(key) + i]);
        s *= double(rules.scale);
        if (rules.softcap > 0) s = double(rules.softcap) * std::tanh(s / double(rules.softcap));
        weight[size_t(key)] = s;
        max = std::max(max, s);
      }
      if (rules.sinks) max = std::max(max, double(rules.sinks[head]));
      double sum = rules.sinks ? std::exp(double(rules.sinks[head]) - max) : 0;
      for (int key = first; key <= position; ++key) {
        double& w = weight[size_t(key)];
        w = std::exp(w - max);
        sum += w;
      }
      for (size_t i = 0; i < dim; ++i) {
        double mixed = 0;
        for (int key = first; key <= position; ++key) {
          mixed += weight[size_t(key)] * double(v[key_at(key) + i]);
        }
        out[row + i] = static_cast<float>(mixed / sum);
      }
    }
  }
}

}  // namespace ridge::reference
