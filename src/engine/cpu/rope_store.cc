// RMSNorm, RoPE and the cache writes, one head at a time. Compiled once per Highway target.
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "engine/cpu/attention.h"

#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_SSE4 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "engine/cpu/rope_store.cc"  // this file, once per target
#include <hwy/foreach_target.h>                        // must come before highway.h
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ridge::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
// Head sizes are short and multiples of 8: with eight lanes there is no remainder.
using Floats = hn::CappedTag<float, 8>;
using Words = hn::Rebind<uint32_t, Floats>;
using Ints = hn::Rebind<int32_t, Floats>;
using V = hn::Vec<Floats>;
inline constexpr int kLanes = int(hn::MaxLanes(Floats()));

// x / rms(x), times the weights where there are any.
void normalize(float* x, int dim, const float* weight, float eps) {
  const Floats d;
  V squares = hn::Zero(d);
  for (int i = 0; i < dim; i += kLanes) {
    const V v = hn::LoadU(d, x + i);
    squares = hn::MulAdd(v, v, squares);
  }
  const float mean = hn::GetLane(hn::SumOfLanes(d, squares)) / float(dim);
  const V factor = hn::Set(d, 1 / std::sqrt(mean + eps));
  for (int i = 0; i < dim; i += kLanes) {
    const V v = hn::Mul(hn::LoadU(d, x + i), factor);
    hn::StoreU(weight ? hn::Mul(v, hn::LoadU(d, weight + i)) : v, d, x + i);
  }
}

// Rotates element pairs (i, i + half) by the angles whose cosines and sines are given.
void rotate(float* x, int half, const float* cosines, const float* sines) {
  const Floats d;
  int i = 0;
  for (; i + kLanes <= half; i += kLanes) {
    const V a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + half + i);
    const V c = hn::LoadU(d, cosines + i), s = hn::LoadU(d, sines + i);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), d, x + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), d, x + half + i);
  }
  for (; i < half; ++i) {  // heads of 8 (mod 16): the same operations on one lane
    const hn::CappedTag<float, 1> one;
    const auto a = hn::LoadU(one, x + i), b = hn::LoadU(one, x + half + i);
    const auto c = hn::LoadU(one, cosines + i), s = hn::LoadU(one, sines + i);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), one, x + i);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), one, x + half + i);
  }
}

// Converts to f16, nearest even. Overflow gives the largest finite number, not infinity; NaN stays
// NaN. Normal numbers are rebiased and rounded as integers. Below 2^-14, adding 1/2 aligns the bits
// of a subnormal and rounds them (Giesen, "float->half variants").
HWY_INLINE hn::Vec<Words> f16_bits(V x) {
  const Floats d;
  const Words words;
  const auto bits = hn::BitCast(words, x);
  const auto sign = hn::And(bits, hn::Set(words, 0x80000000u));
  const V size = hn::Abs(x);
  const V capped = hn::Min(size, hn::Set(d, 65504.0f));
  const auto capped_bits = hn::BitCast(words, capped);
  const auto odd = hn::And(hn::ShiftRight<13>(capped_bits), hn::Set(words, 1u));
  constexpr uint32_t kRebias = (127u - 15u) << 23;
  const auto normal = hn::ShiftRight<13>(
      hn::Add(hn::Add(hn::Sub(capped_bits, hn::Set(words, kRebias)), hn::Set(words, 0xfffu)), odd));
  const V half = hn::Set(d, 0.5f);
  const auto small = hn::Sub(hn::BitCast(words, hn::Add(capped, half)), hn::BitCast(words, half));
  const auto is_small = hn::RebindMask(words, hn::Lt(capped, hn::Set(d, 0x1p-14f)));
  const auto is_number = hn::RebindMask(words, hn::Eq(x, x));
  const auto value =
      hn::IfThenElse(is_number, hn::IfThenElse(is_small, small, normal), hn::Set(words, 0x7e00u));
  return hn::Or(value, hn::ShiftRight<16>(sign));
}

// Converts to bf16, nearest even; NaN stays NaN.
HWY_INLINE hn::Vec<Words> bf16_bits(V x) {
  const Words words;
  const auto bits = hn::BitCast(words, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(words, 1u));
  const auto rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(words, 0x7fffu)), odd));
  const auto quiet = hn::Or(hn::ShiftRight<16>(bits), hn::Set(words, 0x40u));
  return hn::IfThenElse(hn::RebindMask(words, hn::Eq(x, x)), rounded, quiet);
}

void to_halves(KvStorage storage, const float* x, int dim, uint16_t* to) {
  const Floats d;
  const hn::Rebind<uint16_t, Floats> halves;
  const Ints ints;
  for (int i = 0; i < dim; i += kLanes) {
    const V v = hn::LoadU(d, x + i);
    const auto bits = storage == KvStorage::f16 ? f16_bits(v) : bf16_bits(v);
    hn::StoreU(hn::DemoteTo(halves, hn::BitCast(ints, bits)), halves, to + i);
  }
}

// q = x / scale, nearest even; the largest magnitude becomes 127. Returns the scale.
float to_int8(const float* x, int dim, int8_t* to) {
  const Floats d;
  const hn::Rebind<int8_t, Floats> bytes;
  V most = hn::Zero(d);
  for (int i = 0; i < dim; i += kLanes) most = hn::Max(most, hn::Abs(hn::LoadU(d, x + i)));
  const float largest = hn::GetLane(hn::MaxOfLanes(d, most));
  constexpr float kLeast = 1e-35f;  // 127 / largest must be finite
  const float scale = largest > kLeast ? largest / 127 : 0;
  const V factor = hn::Set(d, largest > kLeast ? 127 / largest : 0);
  for (int i = 0; i < dim; i += kLanes) {
    const auto q = hn::NearestInt(hn::Mul(hn::LoadU(d, x + i), factor));
    hn::StoreU(hn::DemoteTo(bytes, q), bytes, to + i);
  }
  return scale;
}

// `to` is the address of the vector's first element, `step` the distance to the next; `scale` is
// for int8 only.
void store(KvStorage storage, const float* x, int dim, int step, std::byte* to, float* scale) {
  if (storage == KvStorage::int8) {
    int8_t q[kMaxHeadDim];
    *scale = to_int8(x, dim, q);
    for (int i = 0; i < dim; ++i) to[i * step] = std::byte(q[i]);
    return;
  }
  if (storage == KvStorage::f32) {
    for (int i = 0; i < dim; ++i) std::memcpy(to + 4 * i * step, x + i, 4);
    return;
  }
  uint16_t halves[kMaxHeadDim];
  to_halves(storage, x, dim, halves);
  for (int i = 0; i < dim; ++i) std::memcpy(to + 2 * i * step, halves + i, 2);
}

float temperature_at(const RopeStore& what, int position) {
  if (what.temperature_scale == 0) return 1;
  const double floors = std::floor((position + 1) / double(what.temperature_floor));
  return float(1 + double(what.temperature_scale) * std::log1p(floors));
}

// Processes the query heads of one KV head, its key and its value, for one token. `turns` holds the
// cosines, then the sines.
void rope_store_token(const RopeStore& what, const LayerCache& cache, const AttentionSlice& slice,
                      int token, int kv_head, const float* turns) {
  const int dim = cache.head_dim, half = int(what.rope->frequency.size());
  const int group = what.heads / cache.kv_heads;
  const int64_t row = slice.first + token;
  const int position = slice.past + token, rotated = cache.latent_dim;  // the first rotated element
  const float temperature = temperature_at(what, position);
  float* q = what.q + row * what.q_stride + int64_t(kv_head) * group * dim;
  for (int head = 0; head < group; ++head, q += dim) {
    if (what.q_norm) normalize(q, dim, what.q_norm, what.norm_eps);
    rotate(q + rotated, half, turns, turns + half);
    if (what.unit) normalize(q, dim, nullptr, what.norm_eps);
    for (int i = 0; temperature != 1 && i < dim; ++i) q[i] *= temperature;
  }
  float* k = what.k + row * what.kv_stride + int64_t(kv_head) * dim;
  if (what.k_norm) normalize(k, rotated > 0 ? rotated : dim, what.k_norm, what.norm_eps);
  rotate(k + rotated, half, turns, turns + half);
  if (what.unit) normalize(k, dim, nullptr, what.norm_eps);

  const auto page = size_t(slice.pages[size_t(position / cache.page_tokens)]);
  const auto in_page = size_t(position % cache.page_tokens), group_of_keys = size_t(kKeyGroup);
  const size_t head_start =
      (page * size_t(cache.kv_heads) + size_t(kv_head)) * size_t(cache.page_tokens);
  const size_t bytes = cache.vector_bytes(), element = bytes / size_t(dim);
  const size_t at = head_start + in_page;
  const bool scaled = cache.storage == KvStorage::int8;
  store(cache.storage, k, dim, kKeyGroup,
        cache.k + (head_start + in_page / group_of_keys * group_of_keys) * bytes +
            in_page % group_of_keys * element,
        scaled ? cache.k_scale + at : nullptr);
  if (rotated > 0) return;
  store(cache.storage, what.v + row * what.kv_stride + int64_t(kv_head) * dim, dim, 1,
        cache.v + at * bytes, scaled ? cache.v_scale + at : nullptr);
}

}  // namespace HWY_NAMESPACE
}  // namespace ridge::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace ridge::cpu {
namespace {

HWY_EXPORT(rope_store_token);

// Cosines and sines of a step's positions, shared by all layers with the same RoPE. Angles and
// their sines are computed in double: in f32, position x frequency alone would have an error of
// 2^-24 of the position. Each calling thread keeps the last two tables (Gemma alternates between
// two).
class Turns {
 public:
  // [token][cosines, sines][half]
  const float* of(ThreadTeam& team, const Rope& rope, std::span<const AttentionSlice> slices) {
    for (Table& table : tables_) {
      if (table.is(rope, slices)) return table.values.data();
    }
    std::swap(tables_[0], tables_[1]);
    tables_[0].make(team, rope, slices);
    return tables_[0].values.data();
  }

 private:
  struct Table {
    std::vector<float> frequency, values;
    float magnitude = 0;
    std::vector<int> positions;

    bool is(const Rope& rope, std::span<const AttentionSlice> slices) const {
      if (frequency != rope.frequency || magnitude != rope.magnitude) return false;
      size_t token = 0;
      for (const AttentionSlice& slice : slices) {
        for (int i = 0; i < slice.fresh; ++i, ++token) {
          if (token >= positions.size() || positions[token] != slice.past + i) return false;
        }
      }
      return token == positions.size();
    }

    void make(ThreadTeam& team, const Rope& rope, std::span<const AttentionSlice> slices) {
      frequency = rope.frequency;
      magnitude = rope.magnitude;
      positions.clear();
      for (const AttentionSlice& slice : slices) {
        for (int i = 0; i < slice.fresh; ++i) positions.push_back(slice.past + i);
      }
      const size_t half = frequency.size(), tokens = positions.size();
      values.resize(tokens * 2 * half);
      const auto fill = [&](size_t begin, size_t end) {
        for (size_t token = begin; token < end; ++token) {
          float* turns = values.data() + token * 2 * half;
          for (size_t i = 0; i < half; ++i) {
            const double angle = double(positions[token]) * double(frequency[i]);
            const double size = frequency[i] == 0 ? 1 : double(magnitude);
            turns[i] = float(std::cos(angle) * size);
            turns[half + i] = float(std::sin(angle) * size);
          }
        }
      };
      if (tokens == 1) return fill(0, 1);
      const auto threads = size_t(team.size());
      team.run([&](int index) {
        fill(tokens * size_t(index) / threads, tokens * size_t(index + 1) / threads);
      });
    }
  };
  Table tables_[2];
};

}  // namespace

void rope_and_store(ThreadTeam& team, const RopeStore& what, const LayerCache& cache,
                    std::span<const AttentionSlice> slices) {
  if (cache.page_tokens % kKeyGroup != 0) {  // a user's option can reach this check
    throw Error("a page of the KV cache holds a multiple of {} tokens, not {}", +kKeyGroup,
                cache.page_tokens);
  }
  assert(cache.head_dim % 8 == 0 && cache.head_dim <= kMaxHeadDim);
  assert(what.rope->dims() + cache.latent_dim <= cache.head_dim);
  thread_local Turns all_turns;
  const float* turns = all_turns.of(team, *what.rope, slices);
  const size_t turns_stride = 2 * what.rope->frequency.size();
  size_t tokens = 0;
  for (const AttentionSlice& slice : slices) tokens += size_t(slice.fresh);
  const auto kernel = HWY_DYNAMIC_DISPATCH(rope_store_token);
  // The token index runs fastest, so that threads share few groups of keys.
  const auto some = [&](size_t begin, size_t end) {
    for (size_t item = begin; item < end;) {
      const int head = int(item / tokens);
      size_t token = item % tokens;  // index within the step
      size_t first = 0;              // first token of the slice
      for (const AttentionSlice& slice : slices) {
        for (; token < first + size_t(slice.fresh) && item < end; ++token, ++item) {
          kernel(what, cache, slice, int(token - first), head, turns + token * turns_stride);
        }
        first += size_t(slice.fresh);
      }
    }
  };
  const size_t items = tokens * size_t(cache.kv_heads), threads = size_t(team.size());
  // An item takes a microsecond or less, about as long as waking the threads.
  constexpr size_t kWorthSharing = 8;
  if (items < kWorthSharing) return some(0, items);
  team.run([&](int index) {
    some(items * size_t(index) / threads, items * size_t(index + 1) / threads);
  });
}

}  // namespace ridge::cpu
#endif
