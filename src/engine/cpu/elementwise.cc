// Compiled once per Highway target; the best target is chosen at run time.
#include "engine/cpu/elementwise.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <vector>

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/elementwise.cc"  // this file, once per target
// clang-format off
#include <hwy/foreach_target.h>  // must come before highway.h
#include <hwy/highway.h>
#include <hwy/contrib/math/math-inl.h>
// clang-format on

HWY_BEFORE_NAMESPACE();
namespace ridge::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::ScalableTag<float>;
using V = hn::Vec<Floats>;

// Sums chunks of 256 in f32 lanes, and the chunks in double: an error of a few ulp at any length.
double sum_of_squares(const float* HWY_RESTRICT x, size_t count) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  constexpr size_t kChunk = 256;
  double total = 0;
  size_t i = 0;
  while (i + 4 * lanes <= count) {
    const size_t end = std::min(i + kChunk, count);
    V a = hn::Zero(d), b = a, c = a, e = a;
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      const V w = hn::LoadU(d, x + i), y = hn::LoadU(d, x + i + lanes);
      const V z = hn::LoadU(d, x + i + 2 * lanes), u = hn::LoadU(d, x + i + 3 * lanes);
      a = hn::MulAdd(w, w, a);
      b = hn::MulAdd(y, y, b);
      c = hn::MulAdd(z, z, c);
      e = hn::MulAdd(u, u, e);
    }
    total += double(hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e)))));
  }
  for (; i < count; ++i) total += double(x[i]) * double(x[i]);
  return total;
}

// y = x factor w, or y += x factor w with kAdd.
template <bool kAdd>
void scale_row(const float* x, float factor, const float* HWY_RESTRICT w, size_t count, float* y) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  const V f = hn::Set(d, factor);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const V scaled = hn::Mul(hn::LoadU(d, x + i), f), weight = hn::LoadU(d, w + i);
    const V to = kAdd ? hn::MulAdd(scaled, weight, hn::LoadU(d, y + i)) : hn::Mul(scaled, weight);
    hn::StoreU(to, d, y + i);
  }
  for (; i < count; ++i) y[i] = x[i] * factor * w[i] + (kAdd ? y[i] : 0);
}

void norm_row(const float* x, const float* w, int columns, float eps, bool add, float* y) {
  const double mean = sum_of_squares(x, size_t(columns)) / columns;
  const auto factor = float(1 / std::sqrt(mean + double(eps)));
  (add ? scale_row<true> : scale_row<false>)(x, factor, w, size_t(columns), y);
}

void cap_row(float* x, size_t count, float cap) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  const V c = hn::Set(d, cap);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    hn::StoreU(hn::Mul(c, hn::Tanh(d, hn::Div(hn::LoadU(d, x + i), c))), d, x + i);
  }
  const hn::CappedTag<float, 1> one;
  const auto c1 = hn::Set(one, cap);
  for (; i < count; ++i) {
    hn::StoreU(hn::Mul(c1, hn::Tanh(one, hn::Div(hn::LoadU(one, x + i), c1))), one, x + i);
  }
}

void multiply_row(float* x, size_t count, float factor) {
  const Floats d;
  const size_t lanes = hn::Lanes(d);
  const V f = hn::Set(d, factor);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(hn::Mul(hn::LoadU(d, x + i), f), d, x + i);
  for (; i < count; ++i) x[i] *= factor;
}

}  // namespace HWY_NAMESPACE
}  // namespace ridge::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridge::cpu {
namespace {

HWY_EXPORT(norm_row);
HWY_EXPORT(cap_row);
HWY_EXPORT(multiply_row);

// Below this many elements a row's work takes less time than waking the threads.
constexpr int64_t kWorthSharing = 16384;

// Runs body(begin, end) over [0, count), divided among the threads in equal ranges.
template <typename Body>
void share(ThreadTeam& team, int64_t count, int64_t elements, const Body& body) {
  if (elements < kWorthSharing || team.size() == 1 || count == 1) return body(int64_t{0}, count);
  const int64_t threads = team.size();
  team.run([&](int index) { body(count * index / threads, count * (index + 1) / threads); });
}

void norm(ThreadTeam& team, const float* x, int64_t x_stride, int tokens, int columns,
          const float* w, float eps, bool add, float* y, int64_t y_stride) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(norm_row);
  share(team, tokens, int64_t{tokens} * columns, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      kernel(x + t * x_stride, w, columns, eps, add, y + t * y_stride);
    }
  });
}

double sigmoid(float x) { return 1 / (1 + std::exp(-double(x))); }

// Experts outside the best groups get scores below all others.
void keep_best_groups(const RouterRules& routing, std::vector<double>& scores) {
  constexpr double kLeast = -std::numeric_limits<double>::infinity();
  const size_t each = scores.size() / size_t(routing.groups);
  thread_local std::vector<double> groups;
  groups.clear();
  for (size_t at = 0; at < scores.size(); at += each) {
    double best = kLeast, second = kLeast;
    for (size_t e = at; e < at + each; ++e) {
      second = std::max(second, std::min(best, scores[e]));
      best = std::max(best, scores[e]);
    }
    groups.push_back(best + (routing.correction && each > 1 ? second : 0));
  }
  for (int left = routing.groups - routing.top_groups; left > 0; --left) {
    // The worst, the later among equals.
    size_t worst = groups.size();
    for (size_t g = 0; g < groups.size(); ++g) {
      if (!std::isnan(groups[g]) && (worst == groups.size() || groups[g] <= groups[worst]))
        worst = g;
    }
    if (worst == groups.size()) return;
    groups[worst] = std::numeric_limits<double>::quiet_NaN();
    std::fill_n(scores.begin() + std::ptrdiff_t(worst * each), each, kLeast);
  }
}

}  // namespace

void rms_norm(ThreadTeam& team, const float* x, int64_t stride, int tokens, int columns,
              const float* w, float eps, float* y, int64_t y_stride) {
  norm(team, x, stride, tokens, columns, w, eps, false, y, y_stride);
}

void rms_norm_row(const float* x, const float* w, int columns, float eps, float* y) {
  HWY_DYNAMIC_DISPATCH(norm_row)(x, w, columns, eps, false, y);
}

void rms_norm_add(ThreadTeam& team, const float* y, int64_t y_stride, int tokens, int columns,
                  const float* w, float eps, float* x, int64_t stride) {
  norm(team, y, y_stride, tokens, columns, w, eps, true, x, stride);
}

void add_rows(ThreadTeam& team, const float* y, int64_t y_stride, int tokens, int columns, float* x,
              int64_t stride) {
  share(team, tokens, int64_t{tokens} * columns, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t c = 0; c < columns; ++c) x[t * stride + c] += y[t * y_stride + c];
    }
  });
}

void embed(ThreadTeam& team, const Matrix& table, const int32_t* tokens, int count, float scale,
           float* x, int64_t stride) {
  const auto kernel = HWY_DYNAMIC_DISPATCH(multiply_row);
  share(team, count, count * table.columns, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      assert(tokens[t] >= 0 && tokens[t] < table.rows);
      dequantize(table.storage, table.row(tokens[t]), table.columns, x + t * stride);
      if (scale != 1) kernel(x + t * stride, size_t(table.columns), scale);
    }
  });
}

void soft_cap(ThreadTeam& team, float* x, int64_t count, float cap) {
  // A multiple of every vector length, so that the thread count changes no bit.
  constexpr int64_t kRun = 1024;
  const auto kernel = HWY_DYNAMIC_DISPATCH(cap_row);
  share(team, (count + kRun - 1) / kRun, count, [&](int64_t begin, int64_t end) {
    const int64_t first = begin * kRun, past = std::min(end * kRun, count);
    kernel(x + first, size_t(past - first), cap);
  });
}

void choose_experts(const float* logits, int experts, int top_k, bool normalize, int32_t* chosen,
                    float* weight, const RouterRules& routing, const float* correction) {
  assert(top_k > 0 && top_k <= experts);
  thread_local std::vector<double> scores;  // it grows to the largest router and is kept
  scores.assign(logits, logits + experts);
  for (int e = 0; correction && e < experts; ++e) {
    scores[size_t(e)] = sigmoid(logits[e]) + double(correction[e]);
  }
  if (routing.top_groups < routing.groups) keep_best_groups(routing, scores);
  for (int i = 0; i < top_k; ++i) {
    int best = -1;
    for (int e = 0; e < experts; ++e) {
      if (std::find(chosen, chosen + i, e) != chosen + i) continue;
      if (best < 0 || scores[size_t(e)] > scores[size_t(best)]) best = e;
    }
    chosen[i] = best;
  }
  const float max = *std::max_element(logits, logits + experts);
  double total = 0, kept = 0;
  for (int e = 0; !routing.sigmoid && e < experts; ++e) total += std::exp(double(logits[e] - max));
  for (int i = 0; i < top_k; ++i) {
    const float logit = logits[chosen[i]];
    const double share = routing.sigmoid ? sigmoid(logit) : std::exp(double(logit - max)) / total;
    weight[i] = float(share);
    kept += share;
  }
  for (int i = 0; i < top_k; ++i) {
    weight[i] = float(double(weight[i]) / (normalize ? kept : 1) * double(routing.scale));
  }
}

}  // namespace ridge::cpu
#endif
