// What single tokens' attention is made of, in the decode kernel and in attention_single.cuh: a
// vector's norm and rotation, its place in a page of the cache, 16 tokens of a page for 8 columns.
//
// Columns are query heads that share a KV head (at most 8): scores = K (tokens x d) q, output =
// V^T (d x tokens) p, by mma.m16n8k16 with sums of f32. kD is head_dim / 16.
//
// bf16 pages meet q and p as bf16. The others are made into f16 in registers, exactly, and so are q
// and p: q times a power of two that brings its largest element to [2^14, 2^15), p times 2^14, so
// that neither leaves f16's range and what is lost below is 2^-28 of the largest. A byte's scales
// multiply the scores, and p, there in units of the largest scale so far.
#pragma once

#include "base/ptx/mma.cuh"
#include "engine/cuda/attention/softmax.cuh"
#include "engine/cuda/layout/dequantize.cuh"
#include "engine/cuda/ptx/pipeline.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

constexpr int kF16Exponent = 14;  // q's largest and p are below twice this power of two

// The state of 8 columns in one warp; lane 4 g + t has columns 2t, 2t + 1.
template <int kD>
struct SoftmaxState {
  float max[2] = {kMaskedScore, kMaskedScore}, sum[2] = {0, 0};  // sum: of this lane's tokens
  float unit = 1e-30f;                                           // of the outputs; pages of bytes
  float out[kD][4] = {};
};

// Pairs of a vector of 16 kD elements: 16 j + 2 t + {0, 1} at [j][0], 8 further at [j][1].
template <int kD>
using HeadFragment = uint32_t[kD][2];

// A vector's floats, as the four lanes of a quad hold them: pair [j][h] is 16 j + 8 h + 2 t.
template <int kD>
using HeadVector = float2[kD][2];

// Zeros where it is not `there`.
template <int kD>
__device__ inline void load_head(HeadVector<kD>& to, const float* from, bool there, int t) {
#pragma unroll
  for (int j = 0; j < kD; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      to[j][h] = there ? __ldcg(reinterpret_cast<const float2*>(from + j * 16 + h * 8 + t * 2))
                       : float2{0, 0};
    }
  }
}

// Norms and turns it by its position.
template <int kD>
__device__ inline void norm_and_rope(HeadVector<kD>& v, const float* norm, float eps,
                                     const float2* rotation, int t) {
  if (norm) {
    float squares = 0;
#pragma unroll
    for (int j = 0; j < kD; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) squares += v[j][h].x * v[j][h].x + v[j][h].y * v[j][h].y;
    }
    squares += __shfl_xor_sync(0xffffffffu, squares, 1);
    squares += __shfl_xor_sync(0xffffffffu, squares, 2);
    const float scale = rsqrtf(squares / (16.0f * kD) + eps);
#pragma unroll
    for (int j = 0; j < kD; ++j) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float2 w = *reinterpret_cast<const float2*>(norm + j * 16 + h * 8 + t * 2);
        v[j][h] = {v[j][h].x * scale * w.x, v[j][h].y * scale * w.y};
      }
    }
  }
  // Element i turns with i + 8 kD, which the same lane has: unit u of 8 with unit u + kD.
#pragma unroll
  for (int u = 0; u < kD; ++u) {
    const float2 a = rotation[u * 8 + t * 2], b = rotation[u * 8 + t * 2 + 1];
    float2& low = v[u / 2][u % 2];
    float2& high = v[(u + kD) / 2][(u + kD) % 2];
    const float2 x = low, y = high;
    low = {x.x * a.x - y.x * a.y, x.y * b.x - y.y * b.y};
    high = {y.x * a.x + x.x * a.y, y.y * b.x + x.y * b.y};
  }
}

template <int kD>
__device__ inline float largest(const HeadVector<kD>& v) {  // of a quad's vector, in magnitude
  float most = 0;
#pragma unroll
  for (int j = 0; j < kD; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) most = fmaxf(most, fmaxf(fabsf(v[j][h].x), fabsf(v[j][h].y)));
  }
  most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
  return fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
}

__device__ inline uint32_t pack_f16(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// A query as the MMA's B; what its scores are to be multiplied with is returned.
template <int kD, KvFormat kFormat>
__device__ inline float pack_query(HeadFragment<kD>& to, const HeadVector<kD>& v) {
  if constexpr (kFormat == KvFormat::bf16) {
#pragma unroll
    for (int j = 0; j < kD; ++j) {
      to[j][0] = pack_bf16(v[j][0].x, v[j][0].y);
      to[j][1] = pack_bf16(v[j][1].x, v[j][1].y);
    }
    return 1;
  } else {
    // Exponents as floats have them. Below 2^-107 it stays smaller than it might be.
    const int exponent = max(20, int(__float_as_uint(largest<kD>(v)) >> 23));
    const float factor = __uint_as_float((254u + kF16Exponent - exponent) << 23);
#pragma unroll
    for (int j = 0; j < kD; ++j) {
      to[j][0] = pack_f16(v[j][0].x * factor, v[j][0].y * factor);
      to[j][1] = pack_f16(v[j][1].x * factor, v[j][1].y * factor);
    }
    return __uint_as_float((exponent - kF16Exponent) << 23);
  }
}

// Of the lane's columns, from what pack_query returned in the quad of each.
template <KvFormat kFormat>
__device__ inline void score_scale(float (&scale)[2], float query_scale, float factor, int t) {
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    scale[c] = query_scale;
    if constexpr (kFormat != KvFormat::bf16) {
      scale[c] *= __shfl_sync(0xffffffffu, factor, (t * 2 + c) * 4);
    }
  }
}

// Two elements of a page's bytes as f16.
template <KvFormat kFormat, int kHalf>
__device__ inline uint32_t byte_pair(uint32_t word) {
  if constexpr (kFormat == KvFormat::fp8) {
    return fp8_pair<kHalf>(word);  // moving the bits instead was slower
  } else {
    // `word` has 128 added to each: 0x6400 is 1024, whose last mantissa bit is 1.
    const uint32_t pair = __byte_perm(word, 0x64646464u, kHalf ? 0x4342 : 0x4140);
    const uint32_t offset = 0x64806480u;  // 1024 + 128
    const __half2 value = __hsub2(*reinterpret_cast<const __half2*>(&pair),
                                  *reinterpret_cast<const __half2*>(&offset));
    return *reinterpret_cast<const uint32_t*>(&value);
  }
}

// The products of 16 x 32 bytes (a lane's 16 of them) with two steps of B.
template <KvFormat kFormat, typename First, typename Second>
__device__ inline void multiply_bytes(const uint8_t* lanes, const First& first,
                                      const Second& second) {
  uint4 words = *reinterpret_cast<const uint4*>(lanes);
  if constexpr (kFormat == KvFormat::int8) {
    words = {words.x ^ 0x80808080u, words.y ^ 0x80808080u, words.z ^ 0x80808080u,
             words.w ^ 0x80808080u};
  }
  first({byte_pair<kFormat, 0>(words.x), byte_pair<kFormat, 1>(words.x),
         byte_pair<kFormat, 0>(words.y), byte_pair<kFormat, 1>(words.y)});
  second({byte_pair<kFormat, 0>(words.z), byte_pair<kFormat, 1>(words.z),
          byte_pair<kFormat, 0>(words.w), byte_pair<kFormat, 1>(words.w)});
}

template <KvFormat kFormat>
__device__ inline void multiply_halves(float (&d)[4], const uint4& a, uint2 b) {
  if constexpr (kFormat == KvFormat::bf16) {
    ptx::mma_bf16(d, {a.x, a.y, a.z, a.w}, b.x, b.y);
  } else {
    ptx::mma_f16(d, {a.x, a.y, a.z, a.w}, b.x, b.y);
  }
}

// 16 tokens of a page in shared memory, of which the first is `begin` in the sequence. Those that
// the lane's column c does not see (sees(token, c)) do not count. scale: of the lane's columns.
template <int kD, KvFormat kFormat, typename Sees>
__device__ inline void attend_page(SoftmaxState<kD>& state, const HeadFragment<kD>& q,
                                   const float (&scale)[2], float cap, int begin, const Sees& sees,
                                   int lane, const uint8_t* page) {
  using Operand = const uint32_t(&)[4];
  // Of 16 x 16: the first row halves, then the second k halves; tokens' halves lie kHalf apart.
  constexpr int kHalf = 256 * kD, kHeadDim = 16 * kD;
  const uint32_t row = ptx::shared_address(page) + lane % 8 * 16, a = lane / 8 % 2, b = lane / 16;
  const uint32_t keys = row + a * kHalf + b * 128, values = row + 2 * kHalf + b * kHalf + a * 128;
  float even[4] = {}, odd[4] = {};  // two chains: an MMA waits for the one before it
  if constexpr (kv_bytes(kFormat)) {
#pragma unroll
    for (int j = 0; j < kD; j += 2) {
      multiply_bytes<kFormat>(
          page + j * 256 + lane * 16, [&](Operand k) { ptx::mma_f16(even, k, q[j][0], q[j][1]); },
          [&](Operand k) { ptx::mma_f16(odd, k, q[j + 1][0], q[j + 1][1]); });
    }
  } else {
#pragma unroll
    for (int j = 0; j < kD; ++j) {
      const uint4 k = ptx::ldmatrix_x4(keys + j * 256);
      multiply_halves<kFormat>(j % 2 ? odd : even, k, uint2{q[j][0], q[j][1]});
    }
  }
  float s[4];
#pragma unroll
  for (int v = 0; v < 4; ++v) {
    float score = (even[v] + odd[v]) * scale[v % 2];
    const int in_page = lane / 4 + v / 2 * 8, token = begin + in_page;
    if constexpr (kv_bytes(kFormat)) {
      score *= *reinterpret_cast<const float*>(page + key_scale_byte(in_page, kHeadDim));
    }
    if (cap > 0) score = cap * tanhf(score / cap);
    s[v] = sees(token, v % 2) ? score * kLog2e : kMaskedScore;
  }
  constexpr float kMore = kFormat == KvFormat::bf16 ? 0 : kF16Exponent;
  float shrink[2], p[4];
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    float most = fmaxf(s[c], s[c + 2]);
#pragma unroll
    for (int across = 4; across <= 16; across *= 2) {
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, across));
    }
    most = fmaxf(most, state.max[c]);
    shrink[c] = exp2f(state.max[c] - most);
    state.max[c] = most;
    most -= kMore;
    p[c] = s[c] > kMaskedScore ? exp2f(s[c] - most) : 0.0f;
    p[c + 2] = s[c + 2] > kMaskedScore ? exp2f(s[c + 2] - most) : 0.0f;
    state.sum[c] = state.sum[c] * shrink[c] + p[c] + p[c + 2];
  }
  if constexpr (kv_bytes(kFormat)) {
    // Only scales of tokens that are seen: others' may be anything.
    float its[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      its[r] =
          s[r * 2] > kMaskedScore || s[r * 2 + 1] > kMaskedScore
              ? *reinterpret_cast<const float*>(page + value_scale_byte(lane / 4 + r * 8, kHeadDim))
              : 0.0f;
    }
    const float most =
        __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(fmaxf(its[0], its[1]))));
    const float unit = fmaxf(state.unit, most), part = __fdividef(1.0f, unit);
    shrink[0] *= state.unit * part, shrink[1] *= state.unit * part;
    state.unit = unit;
#pragma unroll
    for (int v = 0; v < 4; ++v) p[v] *= its[v / 2] * part;
  }
  // D has tokens as rows, B wants them as k: an 8 x 8 transposition in registers.
  uint2 weights;
  if constexpr (kFormat == KvFormat::bf16) {
    weights = {pack_bf16(p[0], p[1]), pack_bf16(p[2], p[3])};
  } else {
    weights = {pack_f16(p[0], p[1]), pack_f16(p[2], p[3])};
  }
  ptx::movmatrix_trans(weights.x);
  ptx::movmatrix_trans(weights.y);
  const auto less = [&](float(&out)[4]) {
    out[0] *= shrink[0], out[1] *= shrink[1], out[2] *= shrink[0], out[3] *= shrink[1];
  };
  if constexpr (kv_bytes(kFormat)) {
#pragma unroll
    for (int j = 0; j < kD; j += 2) {
      less(state.out[j]);
      less(state.out[j + 1]);
      multiply_bytes<kFormat>(
          page + kPageTokens * kHeadDim + j * 256 + lane * 16,
          [&](Operand v) { ptx::mma_f16(state.out[j], v, weights.x, weights.y); },
          [&](Operand v) { ptx::mma_f16(state.out[j + 1], v, weights.x, weights.y); });
    }
  } else {
#pragma unroll
    for (int j = 0; j < kD; ++j) {
      const uint4 v = ptx::ldmatrix_x4(values + j * 256);
      less(state.out[j]);
      multiply_halves<kFormat>(state.out[j], v, weights);
    }
  }
}

// When all pages are done: sums of all lanes' tokens, outputs in units of one.
template <int kD, KvFormat kFormat>
__device__ inline void finish_softmax(SoftmaxState<kD>& state) {
#pragma unroll
  for (int across = 4; across <= 16; across *= 2) {
    state.sum[0] += __shfl_xor_sync(0xffffffffu, state.sum[0], across);
    state.sum[1] += __shfl_xor_sync(0xffffffffu, state.sum[1], across);
  }
  if constexpr (kv_bytes(kFormat)) {
#pragma unroll
    for (int j = 0; j < kD; ++j) {
#pragma unroll
      for (int v = 0; v < 4; ++v) state.out[j][v] *= state.unit;
    }
  }
}

// A vector's scale in a page of bytes, and what it is multiplied with to become them, from its
// largest magnitude. 1e-35: the factor must be finite.
template <KvFormat kFormat>
__device__ inline float2 byte_scale(float largest) {
  constexpr float kMost = kFormat == KvFormat::fp8 ? 448 : 127;
  return largest > 1e-35f ? float2{largest / kMost, kMost / largest} : float2{0, 0};
}

// Two elements as the cache has them, in the low 16 or 32 bits; bytes: scaled.
template <KvFormat kFormat>
__device__ inline uint32_t cached_pair(float low, float high) {
  if constexpr (kFormat == KvFormat::bf16) {
    return pack_bf16(low, high);
  } else if constexpr (kFormat == KvFormat::f16) {
    return pack_f16(fmaxf(-65504.0f, fminf(low, 65504.0f)),
                    fmaxf(-65504.0f, fminf(high, 65504.0f)));
  } else if constexpr (kFormat == KvFormat::fp8) {
    uint16_t pair;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(high), "f"(low));
    return pair;
  } else {
    return (__float2int_rn(low) & 0xff) | (__float2int_rn(high) & 0xff) << 8;
  }
}

// Writes a quad's key into its slot of a page in shared memory and, if it is not null, of one in
// the cache. All lanes call it; `there`: whether this quad has one.
template <int kD, KvFormat kFormat>
__device__ inline void write_key(const HeadVector<kD>& key, bool there, int slot, int t,
                                 uint8_t* page, uint8_t* cached) {
  constexpr int kHeadDim = 16 * kD;
  float2 scale = {1, 1};
  if constexpr (kv_bytes(kFormat)) scale = byte_scale<kFormat>(largest<kD>(key));
  if (!there) return;
  const auto put = [&](auto value, int at) {
    *reinterpret_cast<decltype(value)*>(page + at) = value;
    if (cached) *reinterpret_cast<decltype(value)*>(cached + at) = value;
  };
#pragma unroll
  for (int j = 0; j < kD; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const float2 v = key[j][h];
      if constexpr (kv_bytes(kFormat)) {
        put(static_cast<uint16_t>(cached_pair<kFormat>(v.x * scale.y, v.y * scale.y)),
            key_byte(slot, t * 2) + key_byte(0, j * 16 + h * 8));
      } else {
        put(cached_pair<kFormat>(v.x, v.y),
            2 * (key_at(slot, t * 2, kHeadDim) + key_at(0, j * 16 + h * 8, kHeadDim)));
      }
    }
  }
  if (kv_bytes(kFormat) && t == 0) put(scale.x, key_scale_byte(slot, kHeadDim));
}

// The same with a value, of which lane l has elements l + 32 i.
template <int kD, KvFormat kFormat>
__device__ inline void write_value(const float (&value)[kD / 2], int slot, int lane, uint8_t* page,
                                   uint8_t* cached) {
  constexpr int kHeadDim = 16 * kD;
  float2 scale = {1, 1};
  if constexpr (kv_bytes(kFormat)) {
    float most = 0;
#pragma unroll
    for (int i = 0; i < kD / 2; ++i) most = fmaxf(most, fabsf(value[i]));
    most = __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(most)));
    scale = byte_scale<kFormat>(most);
  }
  const auto put = [&](auto bits, int at) {
    *reinterpret_cast<decltype(bits)*>(page + at) = bits;
    if (cached) *reinterpret_cast<decltype(bits)*>(cached + at) = bits;
  };
#pragma unroll
  for (int i = 0; i < kD / 2; ++i) {
    if constexpr (kv_bytes(kFormat)) {
      put(static_cast<uint8_t>(cached_pair<kFormat>(value[i] * scale.y, 0)),
          value_byte(slot, lane, kHeadDim) + i * 512);
    } else {
      put(static_cast<uint16_t>(cached_pair<kFormat>(value[i], 0)),
          2 * (value_at(slot, lane, kHeadDim) + i * 256));
    }
  }
  if (kv_bytes(kFormat) && lane == 0) put(scale.x, value_scale_byte(slot, kHeadDim));
}

}  // namespace ridge::cuda
#endif
