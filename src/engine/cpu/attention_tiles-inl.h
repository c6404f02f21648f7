// Register tiles of attention, for the Highway target being compiled.
#if defined(RIDGE_CPU_ATTENTION_TILES) == defined(HWY_TARGET_TOGGLE)
#ifdef RIDGE_CPU_ATTENTION_TILES
#undef RIDGE_CPU_ATTENTION_TILES
#else
#define RIDGE_CPU_ATTENTION_TILES
#endif

#include <hwy/contrib/math/math-inl.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace ridge::cpu {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using Floats = hn::CappedTag<float, kSumLanes>;
using V = hn::Vec<Floats>;
inline constexpr int kLanes = int(hn::MaxLanes(Floats()));

// An initial maximum below every score. It is finite, so that -inf (masked) - max is not NaN.
inline constexpr float kNothing = -FLT_MAX;

inline constexpr int kGroupVectors = kKeyGroup / kLanes;
// Accumulators in a register tile; the operands need about a quarter of the registers. On two FMA
// pipes of latency 4, eight or more accumulators also hide the latency. One group of keys must fit.
inline constexpr int kSums = HWY_MAX(HWY_MAX_BYTES == 64 || HWY_ARCH_ARM ? 24 : 12, kGroupVectors);
// 6 rows by 4 vectors load 10 operands for 24 FMAs; on AVX2, 6 rows by 2 vectors load 8 operands
// for 12 FMAs.
inline constexpr int kRowTile = HWY_MIN(kSums / kGroupVectors, 6);

// Conversions from the cache's element type to f32. All are exact.
struct FromF32 {
  using T = float;
  static constexpr bool kStreams = false;  // the data is in scratch, or the cache is f32
  static HWY_INLINE V load(const T* from) { return hn::LoadU(Floats(), from); }
};
struct FromF16 {
  using T = hwy::float16_t;
  static constexpr bool kStreams = true;
  static HWY_INLINE V load(const T* from) {
    return hn::PromoteTo(Floats(), hn::LoadU(hn::Rebind<T, Floats>(), from));
  }
};
struct FromBf16 {
  using T = hwy::bfloat16_t;
  static constexpr bool kStreams = true;
  static HWY_INLINE V load(const T* from) {
    return hn::PromoteTo(Floats(), hn::LoadU(hn::Rebind<T, Floats>(), from));
  }
};
struct FromInt8 {
  using T = int8_t;
  static constexpr bool kStreams = true;
  static HWY_INLINE V load(const T* from) {
    const hn::Rebind<int32_t, Floats> words;
    return hn::ConvertTo(Floats(), hn::PromoteTo(words, hn::LoadU(hn::Rebind<T, Floats>(), from)));
  }
};

template <class From>
void widen(const typename From::T* HWY_RESTRICT from, int count, float* HWY_RESTRICT to) {
  const Floats d;
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) hn::StoreU(From::load(from + i), d, to + i);
  if (i < count) {  // 8 elements on 16 lanes
    typename From::T rest[kSumLanes] = {};
    std::memcpy(rest, from + i, size_t(count - i) * sizeof(*from));
    hn::StoreU(From::load(rest), d, to + i);
  }
}

// to[token][i] = keys[i][token], for a group of kKeyGroup tokens and the first `dim` (a multiple of
// 8) elements, in squares of 4 x 4.
inline void transpose_keys(const float* HWY_RESTRICT keys, int dim, float* HWY_RESTRICT to,
                           int stride) {
#if HWY_TARGET == HWY_SCALAR
  for (int token = 0; token < kKeyGroup; ++token) {
    for (int i = 0; i < dim; ++i) to[token * stride + i] = keys[i * kKeyGroup + token];
  }
#else
  const hn::FixedTag<float, 4> d;
  for (int i = 0; i < dim; i += 4) {
    for (int token = 0; token < kKeyGroup; token += 4) {
      const float* const from = keys + i * kKeyGroup + token;
      const auto a = hn::LoadU(d, from), b = hn::LoadU(d, from + kKeyGroup);
      const auto c = hn::LoadU(d, from + 2 * kKeyGroup), e = hn::LoadU(d, from + 3 * kKeyGroup);
      const auto low_ac = hn::InterleaveLower(d, a, c), low_be = hn::InterleaveLower(d, b, e);
      const auto high_ac = hn::InterleaveUpper(d, a, c), high_be = hn::InterleaveUpper(d, b, e);
      float* const first = to + token * stride + i;
      hn::StoreU(hn::InterleaveLower(d, low_ac, low_be), d, first);
      hn::StoreU(hn::InterleaveUpper(d, low_ac, low_be), d, first + stride);
      hn::StoreU(hn::InterleaveLower(d, high_ac, high_be), d, first + 2 * stride);
      hn::StoreU(hn::InterleaveUpper(d, high_ac, high_be), d, first + 3 * stride);
    }
  }
#endif
}

// Keys or values of the current tile and of the next one. The next tile is prefetched into L2, line
// by line, between the arithmetic. Without the prefetch, the core alternates between computing and
// waiting (19 instead of 24 GB/s on a core that reads 35). A prefetch into L1, or half a tile
// ahead, gained nothing.
template <typename T>
struct Streams {
  const T* const* now;    // one pointer per group of 16 tokens
  const T* const* ahead;  // the next tile; null: no prefetch
  int stride;             // distance between the values of consecutive tokens
};

template <typename T>
HWY_INLINE void fetch(const T* from, int elements) {
  constexpr int kLine = 64 / int(sizeof(T));
  HWY_UNROLL(8) for (int i = 0; i < elements; i += kLine) __builtin_prefetch(from + i, 0, 2);
}

// s[r][key] = sum over i of q[r][i] k[i][key], in increasing i. Each score is a single sum, so the
// shape of the tile does not change its bits.
template <class From, int kRows, int kVectors>
void score_tile(const float* HWY_RESTRICT q, int q_stride, Streams<typename From::T> keys, int dim,
                float* HWY_RESTRICT s) {
  const Floats d;
  // Steps between two prefetches, so that each one fetches whole lines; heads are multiples of 8.
  constexpr int kSteps = From::kStreams ? 4 : 1;
  constexpr int kGroups = kVectors / kGroupVectors;
  V sums[kRows][kVectors];
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) sums[r][v] = hn::Zero(d);
  }
  int ahead_group = 0, ahead_at = 0;
  for (int start = 0; start < dim; start += kSteps) {
    if (From::kStreams && keys.ahead) {
      HWY_UNROLL(4) for (int g = 0; g < kGroups; ++g) {
        fetch(keys.ahead[ahead_group] + ahead_at, kSteps * kKeyGroup);
        ahead_at += kSteps * kKeyGroup;
        if (ahead_at == dim * kKeyGroup) ahead_at = 0, ++ahead_group;
      }
    }
    HWY_UNROLL(4) for (int i = start; i < start + kSteps; ++i) {
      V k[kVectors];
      HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) {
        k[v] = From::load(keys.now[v / kGroupVectors] + i * kKeyGroup + v % kGroupVectors * kLanes);
      }
      HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
        const V x = hn::Set(d, q[r * q_stride + i]);
        HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) {
          sums[r][v] = hn::MulAdd(x, k[v], sums[r][v]);
        }
      }
    }
  }
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(16) for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, s + r * kTile + v * kLanes);
    }
  }
}

// Vectors in the widest tile of keys whose accumulators fit in registers.
constexpr int key_vectors(int rows) {
  int vectors = kTile / kLanes;
  while (vectors > kGroupVectors && rows * vectors > kSums) vectors /= 2;
  return vectors;
}

template <class From, int kRows>
void score_rows(const float* q, int q_stride, Streams<typename From::T> keys, int dim, int begin,
                int end, float* s) {
  constexpr int kVectors = key_vectors(kRows);
  constexpr int kKeys = kVectors * kLanes;
  for (int key = begin / kKeys * kKeys; key < end; key += kKeys) {
    const int group = key / kKeyGroup;
    score_tile<From, kRows, kVectors>(
        q, q_stride, {keys.now + group, keys.ahead ? keys.ahead + group : nullptr, 0}, dim,
        s + key);
  }
}

// Scores of keys [begin, end) of the tile, and of the other keys in the same register tiles.
template <class From>
void scores(int rows, const float* q, int q_stride, Streams<typename From::T> keys, int dim,
            int begin, int end, float* s) {
  switch (rows) {
    case 1:
      return score_rows<From, 1>(q, q_stride, keys, dim, begin, end, s);
    case 2:
      return score_rows<From, HWY_MIN(2, kRowTile)>(q, q_stride, keys, dim, begin, end, s);
    case 3:
      return score_rows<From, HWY_MIN(3, kRowTile)>(q, q_stride, keys, dim, begin, end, s);
    case 4:
      return score_rows<From, HWY_MIN(4, kRowTile)>(q, q_stride, keys, dim, begin, end, s);
    case 5:
      return score_rows<From, HWY_MIN(5, kRowTile)>(q, q_stride, keys, dim, begin, end, s);
    default:
      return score_rows<From, HWY_MIN(6, kRowTile)>(q, q_stride, keys, dim, begin, end, s);
  }
}

// exp(x) for x <= 0 with a relative error below 1.5e-7; 0 below -87.3, where f32's normal numbers
// end. Computed as 2^n exp(r) with |r| <= ln 2 / 2 and the polynomial of Cephes' expf. exp(0) is
// exactly 1.
HWY_INLINE V exp_negative(V x) {
  const Floats d;
  const hn::Rebind<int32_t, Floats> words;
  const auto n = hn::NearestInt(hn::Mul(x, hn::Set(d, 1.44269504f)));
  const V wide = hn::ConvertTo(d, n);
  V r = hn::NegMulAdd(wide, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(wide, hn::Set(d, -2.12194440e-4f), r);
  V y = hn::Set(d, 1.9875691500e-4f);
  y = hn::MulAdd(y, r, hn::Set(d, 1.3981999507e-3f));
  y = hn::MulAdd(y, r, hn::Set(d, 8.3334519073e-3f));
  y = hn::MulAdd(y, r, hn::Set(d, 4.1665795894e-2f));
  y = hn::MulAdd(y, r, hn::Set(d, 1.6666665459e-1f));
  y = hn::MulAdd(y, r, hn::Set(d, 5.0000001201e-1f));
  y = hn::MulAdd(hn::Mul(y, r), r, hn::Add(r, hn::Set(d, 1.0f)));
  const V power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(words, 127))));
  return hn::IfThenZeroElse(hn::Lt(x, hn::Set(d, -87.3f)), hn::Mul(y, power));
}
HWY_INLINE float exp_negative(float x) { return hn::GetLane(exp_negative(hn::Set(Floats(), x))); }

struct Softening {
  float softcap;             // 0: none
  const float* key_scale;    // [tile]; null: none
  const float* value_scale;  // [tile]
};

// Scales, caps and masks a row's scores: keys outside [begin, end) become -inf. Returns the maximum
// of these scores and `max`.
HWY_INLINE float prepare(const Softening& how, float* HWY_RESTRICT s, int begin, int end,
                         float max) {
  const Floats d;
  const hn::Rebind<int32_t, Floats> words;
  const bool whole = begin <= 0 && end >= kTile;
  V most = hn::Set(d, max);
  HWY_UNROLL(4) for (int key = 0; key < kTile; key += kLanes) {
    V x = hn::Load(d, s + key);
    if (how.key_scale) x = hn::Mul(x, hn::Load(d, how.key_scale + key));
    if (how.softcap > 0) {
      const V cap = hn::Set(d, how.softcap);
      x = hn::Mul(cap, hn::Tanh(d, hn::Div(x, cap)));
    }
    if (!whole) {
      const auto index = hn::Iota(words, key);
      const auto seen =
          hn::And(hn::Gt(index, hn::Set(words, begin - 1)), hn::Lt(index, hn::Set(words, end)));
      x = hn::IfThenElse(hn::RebindMask(d, seen), x,
                         hn::Set(d, -std::numeric_limits<float>::infinity()));
    }
    hn::Store(x, d, s + key);
    most = hn::Max(x, most);
  }
  return hn::GetLane(hn::MaxOfLanes(d, most));
}

// Replaces scores by weights exp(s - max). Rescales the row's sum and adds the weights to it.
HWY_INLINE void weigh(const Softening& how, float* HWY_RESTRICT s, float max, float rescale,
                      float* HWY_RESTRICT sum) {
  const Floats d;
  const V most = hn::Set(d, max);
  V total = hn::Mul(hn::Load(d, sum), hn::Set(d, rescale));
  HWY_UNROLL(4) for (int key = 0; key < kTile; key += kLanes) {
    V p = exp_negative(hn::Sub(hn::Load(d, s + key), most));
    total = hn::Add(total, p);
    if (how.value_scale) p = hn::Mul(p, hn::Load(d, how.value_scale + key));
    hn::Store(p, d, s + key);
  }
  hn::Store(total, d, sum);
}

// Computes the factors exp(old - fresh) that rescale the rows' sums so far, and stores fresh as the
// new maximum.
HWY_INLINE void raise(int rows, const float* HWY_RESTRICT fresh, float* HWY_RESTRICT old,
                      float* HWY_RESTRICT rescale) {
  const Floats d;
  for (int r = 0; r < kRowTile; r += kLanes) {  // `fresh` and `rescale` are padded to whole vectors
    HWY_ALIGN float before[kLanes] = {};
    for (int i = 0; i < kLanes && r + i < rows; ++i) before[i] = old[r + i];
    hn::StoreU(exp_negative(hn::Sub(hn::Load(d, before), hn::LoadU(d, fresh + r))), d, rescale + r);
  }
  for (int r = 0; r < rows; ++r) old[r] = fresh[r];
}

// out[r][i] = rescale[r] out[r][i] + sum over keys of p[r][key] v[key][i], in increasing key.
template <class From, int kRows, int kVectors>
void mix_tile(const float* HWY_RESTRICT p, Streams<typename From::T> values, int begin, int end,
              const float* rescale, int offset, float* HWY_RESTRICT out, int stride) {
  const Floats d;
  V sums[kRows][kVectors];
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    const V factor = hn::Set(d, rescale[r]);
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = hn::Mul(factor, hn::Load(d, out + r * stride + v * kLanes));
    }
  }
  for (unsigned key = unsigned(begin); key < unsigned(end); ++key) {
    const unsigned at = key % kKeyGroup * unsigned(values.stride) + unsigned(offset);
    const auto* value = values.now[key / kKeyGroup] + at;
    if (From::kStreams && values.ahead) {
      fetch(values.ahead[key / kKeyGroup] + at, kVectors * kLanes);
    }
    V x[kVectors];
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) x[v] = From::load(value + v * kLanes);
    HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
      const V weight = hn::Set(d, p[unsigned(r * kTile) + key]);
      HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(weight, x[v], sums[r][v]);
      }
    }
  }
  HWY_UNROLL(8) for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(8) for (int v = 0; v < kVectors; ++v) {
      hn::Store(sums[r][v], d, out + r * stride + v * kLanes);
    }
  }
}

// Processes the head from `offset` on, kVectors at a time, and the rest with half as many.
template <class From, int kRows, int kVectors>
void mix_rows(const float* p, Streams<typename From::T> values, int begin, int end,
              const float* rescale, int dim, int offset, float* out, int stride) {
  for (; offset + (kVectors - 1) * kLanes < dim; offset += kVectors * kLanes) {
    mix_tile<From, kRows, kVectors>(p, values, begin, end, rescale, offset, out + offset, stride);
  }
  if constexpr (kVectors > 1) {
    if (offset < dim) {
      mix_rows<From, kRows, kVectors / 2>(p, values, begin, end, rescale, dim, offset, out, stride);
    }
  }
}

constexpr int head_vectors(int rows) {
  int vectors = 8;
  while (rows * vectors > kSums) vectors /= 2;
  return vectors;
}

template <class From, int kRows>
void mix_all(const float* p, Streams<typename From::T> values, int begin, int end,
             const float* rescale, int dim, float* out, int stride) {
  mix_rows<From, kRows, head_vectors(kRows)>(p, values, begin, end, rescale, dim, 0, out, stride);
}

template <class From>
void mix(int rows, const float* p, Streams<typename From::T> values, int begin, int end,
         const float* rescale, int dim, float* out, int stride) {
  switch (rows) {
    case 1:
      return mix_all<From, 1>(p, values, begin, end, rescale, dim, out, stride);
    case 2:
      return mix_all<From, HWY_MIN(2, kRowTile)>(p, values, begin, end, rescale, dim, out, stride);
    case 3:
      return mix_all<From, HWY_MIN(3, kRowTile)>(p, values, begin, end, rescale, dim, out, stride);
    case 4:
      return mix_all<From, HWY_MIN(4, kRowTile)>(p, values, begin, end, rescale, dim, out, stride);
    case 5:
      return mix_all<From, HWY_MIN(5, kRowTile)>(p, values, begin, end, rescale, dim, out, stride);
    default:
      return mix_all<From, HWY_MIN(6, kRowTile)>(p, values, begin, end, rescale, dim, out, stride);
  }
}

// Merges a later span's row into the total. A row without keys changes nothing.
void merge(const RowState& span, int row, const RowState& total, int total_row, int stride) {
  const Floats d;
  const float* from = span.out + row * stride;
  const float* from_sum = span.sum + row * kSumLanes;
  float* out = total.out + total_row * stride;
  float* sum = total.sum + total_row * kSumLanes;
  float& max = total.max[total_row];
  if (span.max[row] == kNothing) return;
  const float most = HWY_MAX(max, span.max[row]);
  const bool empty = max == kNothing;
  const V old_factor = hn::Set(d, empty ? 0.0f : exp_negative(max - most));
  const V new_factor = hn::Set(d, exp_negative(span.max[row] - most));
  for (int i = 0; i < stride; i += kLanes) {
    const V fresh = hn::Mul(new_factor, hn::Load(d, from + i));
    hn::Store(hn::MulAdd(old_factor, hn::Load(d, out + i), fresh), d, out + i);
  }
  for (int i = 0; i < kLanes; i += kLanes) {
    const V fresh = hn::Mul(new_factor, hn::Load(d, from_sum + i));
    hn::Store(hn::MulAdd(old_factor, hn::Load(d, sum + i), fresh), d, sum + i);
  }
  max = most;
}

HWY_INLINE float lanes_sum(const float* sum) {
  const Floats d;
  return hn::GetLane(hn::SumOfLanes(d, hn::Load(d, sum)));
}

// Adding zero makes zeros positive: a skipped tile could have changed their sign.
void divide(const float* HWY_RESTRICT from, int count, float by, float* HWY_RESTRICT to) {
  const Floats d;
  const V factor = hn::Set(d, 1 / by);
  int i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    hn::StoreU(hn::MulAdd(factor, hn::Load(d, from + i), hn::Zero(d)), d, to + i);
  }
  for (; i < count; ++i) to[i] = from[i] * (1 / by) + 0.0f;
}

}  // namespace HWY_NAMESPACE
}  // namespace ridge::cpu
HWY_AFTER_NAMESPACE();
#endif
