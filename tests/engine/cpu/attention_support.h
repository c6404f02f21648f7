// A cache, its pages and the random tokens of a few sequences, for tests of attention.
#pragma once

#include <gtest/gtest.h>

#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL)  // as the kernels
#include <hwy/highway.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "base/highway_targets.h"
#include "engine/cpu/attention.h"
#include "engine/reference/attention.h"
#include "engine/weights/storage.h"

namespace ridge::cpu::testing {

// Runs `body` once for every instruction set this CPU has.
template <typename Body>
void on_every_target(const Body& body) {
  for_each_target(HWY_TARGETS, HWY_STATIC_TARGET, [&](int64_t target) {
    SCOPED_TRACE(hwy::TargetName(target));
    body();
  });
}

inline std::vector<float> normals(size_t count, uint32_t seed, float deviation = 1) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// What the cache makes of a vector, after the definition of each storage.
inline void round_as(KvStorage storage, float* x, int dim) {
  float largest = 0;
  for (int i = 0; i < dim; ++i) largest = std::max(largest, std::fabs(x[i]));
  for (int i = 0; i < dim; ++i) {
    switch (storage) {
      case KvStorage::fp8:  // not on the CPU
      case KvStorage::f32:
        break;
      case KvStorage::f16:
        x[i] = f16_to_f32(f32_to_f16(std::clamp(x[i], -65504.0f, 65504.0f)));
        break;
      case KvStorage::bf16:
        x[i] = bf16_to_f32(f32_to_bf16(x[i]));
        break;
      case KvStorage::int8:
        x[i] = largest / 127 * std::nearbyint(x[i] * (127 / largest));
        break;
    }
  }
}

struct Setting {
  KvStorage storage = KvStorage::f16;
  int heads = 4, kv_heads = 2, head_dim = 64, page_tokens = 16;
  int window = 0;
  float softcap = 0;
  const float* sinks = nullptr;  // [heads]
  bool chunked = false;
  int latent_dim = 0;  // 0: values of their own
  bool tiles = false;  // may run in tiles

  int value_dim() const { return latent_dim > 0 ? latent_dim : head_dim; }
};

// A cache for sequences of given lengths. Pages lie in random order; what was never written is NaN.
class Cache {
 public:
  Cache(const Setting& setting, const std::vector<int>& lengths) : setting_(setting) {
    const int page_tokens = setting.page_tokens;
    int total = 0;
    for (const int length : lengths) total += (length + page_tokens - 1) / page_tokens;
    std::vector<int> order(static_cast<size_t>(total));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int>(i);
    std::shuffle(order.begin(), order.end(), std::mt19937(7));
    for (const int length : lengths) {
      const auto count = (length + page_tokens - 1) / page_tokens;
      pages_.emplace_back(order.end() - count, order.end());
      order.resize(order.size() - static_cast<size_t>(count));
    }
    layer_.storage = setting.storage;
    layer_.kv_heads = setting.kv_heads;
    layer_.head_dim = setting.head_dim;
    layer_.page_tokens = page_tokens;
    layer_.latent_dim = setting.latent_dim;
    const auto bytes = static_cast<size_t>(total) * layer_.page_bytes();
    k_.assign(bytes, std::byte{0xff});
    v_.assign(bytes, std::byte{0xff});
    const auto scales = static_cast<size_t>(total * setting.kv_heads * page_tokens);
    k_scale_.assign(scales, std::nanf(""));
    v_scale_.assign(scales, std::nanf(""));
    layer_.k = k_.data();
    layer_.v = v_.data();
    layer_.k_scale = k_scale_.data();
    layer_.v_scale = setting.latent_dim > 0 ? k_scale_.data() : v_scale_.data();
  }
  const LayerCache& layer() const { return layer_; }
  std::span<const int> pages(size_t sequence) const { return pages_[sequence]; }

 private:
  Setting setting_;
  LayerCache layer_;
  std::vector<std::vector<int>> pages_;
  std::vector<std::byte> k_, v_;
  std::vector<float> k_scale_, v_scale_;
};

struct Sequence {  // all its tokens; a test feeds them in parts
  int length = 0;
  std::vector<float> q, k, v;  // [length][heads][dim], [length][kv heads][dim] twice

  Sequence(const Setting& s, int tokens, uint32_t seed) : length(tokens) {
    const auto n = static_cast<size_t>(tokens), dim = static_cast<size_t>(s.head_dim);
    q = normals(n * static_cast<size_t>(s.heads) * dim, seed);
    k = normals(n * static_cast<size_t>(s.kv_heads) * dim, seed + 1);
    v = normals(n * static_cast<size_t>(s.kv_heads) * dim, seed + 2);
  }
};

inline AttentionRules rules_of(const Setting& s) {
  return {.heads = s.heads,
          .scale = 1 / std::sqrt(static_cast<float>(s.head_dim)),
          .softcap = s.softcap,
          .window = s.window,
          .chunked = s.chunked,
          .sinks = s.sinks,
          .tiles = s.tiles};
}

// One part of a step: tokens [past, past + fresh) of sequence `of`.
struct Part {
  size_t of;
  int past, fresh;
};

// Stores the parts' keys and values and attends, rows in the order of the parts, in buffers with
// room between rows. Results go to `results[sequence]` ([length][heads][value dim]). A rope of no
// turns.
inline void step(ThreadTeam& team, const Setting& s, const Cache& cache,
                 const std::vector<Sequence>& sequences, const std::vector<Part>& parts,
                 std::vector<std::vector<float>>& results) {
  constexpr int kGap = 5;  // also makes rows unaligned
  constexpr float kSentinel = 12345;
  const int q_columns = s.heads * s.head_dim, kv_columns = s.kv_heads * s.head_dim;
  const int q_stride = q_columns + kGap, kv_stride = kv_columns + kGap;
  const int out_columns = s.heads * s.value_dim();
  int rows = 0;
  std::vector<AttentionSlice> slices;
  for (const Part& part : parts) {
    slices.push_back({rows, part.fresh, part.past, cache.pages(part.of)});
    rows += part.fresh;
  }
  const auto n = static_cast<size_t>(rows);
  std::vector<float> q(n * static_cast<size_t>(q_stride)), k(n * static_cast<size_t>(kv_stride)),
      v(k);
  std::vector<float> out(q.size() + kGap, kSentinel);
  const auto each_row = [&](const auto& body) {
    for (size_t p = 0; p < parts.size(); ++p) {
      for (int t = 0; t < parts[p].fresh; ++t) {
        body(parts[p].of, parts[p].past + t, slices[p].first + t);
      }
    }
  };
  each_row([&](size_t of, int token, int row) {
    const Sequence& from = sequences[of];
    std::copy_n(from.q.begin() + token * q_columns, q_columns, q.begin() + row * q_stride);
    std::copy_n(from.k.begin() + token * kv_columns, kv_columns, k.begin() + row * kv_stride);
    std::copy_n(from.v.begin() + token * kv_columns, kv_columns, v.begin() + row * kv_stride);
  });
  Rope still;
  still.frequency.assign(static_cast<size_t>((s.head_dim - s.latent_dim) / 2), 0);
  RopeStore store;
  store.q = q.data();
  store.k = k.data();
  store.v = v.data();
  store.q_stride = q_stride;
  store.kv_stride = kv_stride;
  store.heads = s.heads;
  store.rope = &still;
  rope_and_store(team, store, cache.layer(), slices);
  attention(team, rules_of(s), cache.layer(), slices, q.data(), q_stride, out.data() + kGap,
            q_stride);
  for (int i = 0; i < kGap; ++i) EXPECT_EQ(out[static_cast<size_t>(i)], kSentinel);
  each_row([&](size_t of, int token, int row) {
    const float* from = out.data() + kGap + row * q_stride;
    std::copy_n(from, out_columns, results[of].begin() + token * out_columns);
    for (int i = 0; i < kGap; ++i) EXPECT_EQ(from[out_columns + i], kSentinel);
  });
}

inline std::vector<std::vector<float>> room_for(const std::vector<Sequence>& sequences) {
  std::vector<std::vector<float>> results;
  for (const Sequence& sequence : sequences) {
    results.emplace_back(sequence.q.size(), std::nanf(""));  // of latents more than enough
  }
  return results;
}

// All tokens of one sequence in chunks of `chunk`.
inline std::vector<float> whole(ThreadTeam& team, const Setting& s, const Sequence& sequence,
                                int chunk) {
  const std::vector<Sequence> sequences{sequence};
  const Cache cache(s, {sequence.length});
  auto results = room_for(sequences);
  for (int past = 0; past < sequence.length; past += chunk) {
    step(team, s, cache, sequences, {{0, past, std::min(chunk, sequence.length - past)}}, results);
  }
  return results[0];
}

// Against the definition, on keys and values as the cache rounds them. Bound: with u = 2^-24, a
// score of d products is off by at most (d + 4) u sum |q k|; weights and their quotient double it;
// a sum of n weighted values, in spans of 1024, adds 2 min(n, 1024) u, exp and merges a few dozen.
// Tiles round q, keys and values to bf16, each by b = 2^-8 at most: a score is off by 2 b sum |q k|
// more, which weights and their quotient double, a value by b, and a weight by b. So large an error
// of a score e makes exp's e^(2 e) - 1 instead of 2 e; their exp adds 2^-16.
inline void expect_as_defined(const Setting& s, const Sequence& sequence,
                              const std::vector<float>& result) {
  Sequence rounded = sequence;
  for (size_t i = 0; i < rounded.k.size(); i += static_cast<size_t>(s.head_dim)) {
    round_as(s.storage, rounded.k.data() + i, s.head_dim);
    round_as(s.storage, rounded.v.data() + i, s.head_dim);
  }
  if (s.latent_dim > 0) rounded.v = rounded.k;
  const AttentionRules rules = rules_of(s);
  std::vector<float> expected(result.size());
  reference::attention({.heads = s.heads,
                        .kv_heads = s.kv_heads,
                        .head_dim = s.head_dim,
                        .scale = rules.scale,
                        .softcap = s.softcap,
                        .window = s.window,
                        .chunked = s.chunked,
                        .sinks = s.sinks},
                       0, sequence.length, rounded.q.data(), rounded.k.data(), rounded.v.data(),
                       expected.data());
  double largest_v = 0, longest_q = 0, longest_k = 0;
  for (const float v : rounded.v) largest_v = std::max(largest_v, std::fabs(double(v)));
  const auto longest = [&](const std::vector<float>& all) {
    double most = 0;
    for (size_t i = 0; i < all.size(); i += static_cast<size_t>(s.head_dim)) {
      double squares = 0;
      for (int d = 0; d < s.head_dim; ++d) squares += std::pow(double(all[i + size_t(d)]), 2);
      most = std::max(most, std::sqrt(squares));
    }
    return most;
  };
  longest_q = longest(rounded.q);
  longest_k = longest(rounded.k);
  const double u = 0x1p-24, products = double(rules.scale) * longest_q * longest_k;
  double bound = largest_v * u *
                 (2 * (s.head_dim + 4) * products + 2 * std::min(sequence.length, 1024) + 64 +
                  sequence.length / 100.0);
  if (s.tiles) {
    const double b = 0x1p-8;
    bound += largest_v * (std::expm1(2 * (2 * b + b * b) * products) + 2 * b + b * b + 0x1p-16);
  }
  double worst = 0, squares = 0, v_squares = 0;
  for (const float v : rounded.v) v_squares += std::pow(double(v), 2);
  const auto rows = size_t(sequence.length) * size_t(s.heads), columns = size_t(s.value_dim());
  for (size_t i = 0; i < rows * columns; ++i) {
    const size_t of = i / columns * size_t(s.head_dim) + i % columns;
    const double error = std::fabs(double(result[i]) - double(expected[of]));
    if (!(error <= worst)) worst = error;  // NaN too
    squares += error * error;
  }
  EXPECT_LE(worst, bound);
  if (!s.tiles) return;
  // Roundings are independent and 2^-9 on average: those of a score's products, of its weight and
  // of the value together stay below 2^-8 of a value, as long as scores deviate by 1.
  const double deviation = std::max(1.0, products / std::sqrt(double(s.head_dim)));
  EXPECT_LE(std::sqrt(squares / double(rows * columns)),
            0x1p-8 * deviation * std::sqrt(v_squares / double(rounded.v.size())));
}

}  // namespace ridge::cpu::testing
