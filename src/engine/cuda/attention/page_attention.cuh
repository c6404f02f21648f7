// Attention of up to 8 query columns over one page of the KV cache in shared memory, by one warp.
// The decode kernel and decode_attention.cuh use it.
//
//   S[16 tokens x 8] = K[16 x head_dim] Q[head_dim x 8]       mma.m16n8k16, f32 sums
//   online softmax over the tokens: P = 2^(S - max)
//   O[head_dim x 8] += V^T[head_dim x 16] P[16 x 8]
//
// Columns are query heads that share the KV head. Lane l = 4 g + t holds rows g and g + 8 and
// columns 2 t and 2 t + 1 of S and of each 16 x 8 tile of O. kD is head_dim / 16.
//
// bf16 pages: Q and P are bf16. Other formats: K and V are converted to f16 in registers, exactly,
// and Q and P are f16 too, Q scaled by pack_query() and P by 2^14 so that neither leaves the range
// of f16. In pages of bytes a key's scale multiplies its scores; a value's scale multiplies P, in
// units of the largest value scale so far.
#pragma once

#include "base/ptx/mma.cuh"
#include "engine/cuda/attention/softmax.cuh"
#include "engine/cuda/device/pipeline.cuh"
#include "engine/cuda/layout/head_vector.cuh"
#include "engine/cuda/layout/kv_page.cuh"

namespace ridge::cuda {

// The online softmax of 8 columns in one warp.
template <int kD>
struct SoftmaxState {
  float max[2] = {kMaskedScore, kMaskedScore}, sum[2] = {0, 0};  // sum: of this lane's tokens
  float unit = 1e-30f;                                           // pages of bytes: of `out`
  float out[kD][4] = {};
};

// Dequantizes 16 x 32 bytes (16 per lane) into two A operands and passes each to a function.
template <KvFormat kFormat, typename First, typename Second>
__device__ inline void multiply_bytes(const uint8_t* lanes, const First& first,
                                      const Second& second) {
  uint4 words = *reinterpret_cast<const uint4*>(lanes);
  if constexpr (kFormat == KvFormat::int8) {
    words = {words.x ^ 0x80808080u, words.y ^ 0x80808080u, words.z ^ 0x80808080u,
             words.w ^ 0x80808080u};
  }
  first({dequantize_pair<kFormat, 0>(words.x), dequantize_pair<kFormat, 1>(words.x),
         dequantize_pair<kFormat, 0>(words.y), dequantize_pair<kFormat, 1>(words.y)});
  second({dequantize_pair<kFormat, 0>(words.z), dequantize_pair<kFormat, 1>(words.z),
          dequantize_pair<kFormat, 0>(words.w), dequantize_pair<kFormat, 1>(words.w)});
}

template <KvFormat kFormat>
__device__ inline void multiply_halves(float (&d)[4], const uint4& a, uint2 b) {
  if constexpr (kFormat == KvFormat::bf16) {
    ptx::mma_bf16(d, {a.x, a.y, a.z, a.w}, b.x, b.y);
  } else {
    ptx::mma_f16(d, {a.x, a.y, a.z, a.w}, b.x, b.y);
  }
}

// One lane's view of a page in shared memory.
template <int kD, KvFormat kFormat>
struct PageView {
  static constexpr int kHeadDim = 16 * kD;
  static constexpr int kHalf = 256 * kD;  // bytes from 8 tokens to the next 8; 16-bit formats
  using Operand = const uint32_t (&)[4];
  const uint8_t* page;
  const int lane;

  // The row that this lane addresses for ldmatrix, whose four 8 x 8 matrices are in the order (rows
  // 0-7, k 0-7), (rows 8-15, k 0-7), (rows 0-7, k 8-15), (rows 8-15, k 8-15). Rows are tokens of K
  // and dimensions of V.
  __device__ __forceinline__ uint32_t key_row() const {
    return ptx::shared_address(page) + lane % 8 * 16 + lane / 8 % 2 * kHalf + lane / 16 * 128;
  }
  __device__ __forceinline__ uint32_t value_row() const {
    return ptx::shared_address(page) + lane % 8 * 16 + 2 * kHalf + lane / 16 * kHalf +
           lane / 8 % 2 * 128;
  }

  // K Q in two chains, which halves the wait of each MMA for the previous one.
  __device__ __forceinline__ void multiply_keys(float (&even)[4], float (&odd)[4],
                                                const HeadFragment<kD>& q) const {
    if constexpr (kv_bytes(kFormat)) {
#pragma unroll
      for (int j = 0; j < kD; j += 2) {
        multiply_bytes<kFormat>(
            page + j * 256 + lane * 16, [&](Operand k) { ptx::mma_f16(even, k, q[j][0], q[j][1]); },
            [&](Operand k) { ptx::mma_f16(odd, k, q[j + 1][0], q[j + 1][1]); });
      }
    } else {
      const uint32_t keys = key_row();
#pragma unroll
      for (int j = 0; j < kD; ++j) {
        const uint4 k = ptx::ldmatrix_x4(keys + j * 256);
        multiply_halves<kFormat>(j % 2 ? odd : even, k, uint2{q[j][0], q[j][1]});
      }
    }
  }

  // out = out * rescale + V^T P.
  __device__ __forceinline__ void multiply_values(float (&out)[kD][4], const float (&rescale)[2],
                                                  const uint2& p) const {
    const auto scale = [&](float(&o)[4]) {
      o[0] *= rescale[0], o[1] *= rescale[1], o[2] *= rescale[0], o[3] *= rescale[1];
    };
    if constexpr (kv_bytes(kFormat)) {
#pragma unroll
      for (int j = 0; j < kD; j += 2) {
        scale(out[j]);
        scale(out[j + 1]);
        multiply_bytes<kFormat>(
            page + kPageTokens * kHeadDim + j * 256 + lane * 16,
            [&](Operand v) { ptx::mma_f16(out[j], v, p.x, p.y); },
            [&](Operand v) { ptx::mma_f16(out[j + 1], v, p.x, p.y); });
      }
    } else {
      const uint32_t values = value_row();
#pragma unroll
      for (int j = 0; j < kD; ++j) {
        const uint4 v = ptx::ldmatrix_x4(values + j * 256);
        scale(out[j]);
        multiply_halves<kFormat>(out[j], v, p);
      }
    }
  }

  __device__ __forceinline__ float key_scale(int token) const {
    return *reinterpret_cast<const float*>(page + key_scale_byte(token, kHeadDim));
  }
  __device__ __forceinline__ float value_scale(int token) const {
    return *reinterpret_cast<const float*>(page + value_scale_byte(token, kHeadDim));
  }
};

// Scores become weights p; `rescale`: what earlier weights and outputs are multiplied with.
template <int kD, KvFormat kFormat>
__device__ __forceinline__ void update_softmax(SoftmaxState<kD>& state, const float (&s)[4],
                                               float (&p)[4], float (&rescale)[2]) {
  constexpr float kExponent = kFormat == KvFormat::bf16 ? 0 : kF16Exponent;
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    float max = fmaxf(s[c], s[c + 2]);
#pragma unroll
    for (int offset = 4; offset <= 16; offset *= 2) {
      max = fmaxf(max, __shfl_xor_sync(0xffffffffu, max, offset));
    }
    max = fmaxf(max, state.max[c]);
    rescale[c] = fast_exp2(state.max[c] - max);
    state.max[c] = max;
    max -= kExponent;
    p[c] = s[c] > kMaskedScore ? fast_exp2(s[c] - max) : 0.0f;
    p[c + 2] = s[c + 2] > kMaskedScore ? fast_exp2(s[c + 2] - max) : 0.0f;
    state.sum[c] = state.sum[c] * rescale[c] + p[c] + p[c + 2];
  }
}

// Pages of bytes: multiplies p with the scales of the values, in units of the largest so far.
template <int kD, KvFormat kFormat>
__device__ __forceinline__ void apply_value_scales(SoftmaxState<kD>& state,
                                                   const PageView<kD, kFormat>& view,
                                                   const float (&s)[4], float (&p)[4],
                                                   float (&rescale)[2]) {
  // Scales of unmasked tokens only: the others may hold anything.
  float scale[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    scale[r] = s[r * 2] > kMaskedScore || s[r * 2 + 1] > kMaskedScore
                   ? view.value_scale(view.lane / 4 + r * 8)
                   : 0.0f;
  }
  const float max =
      __uint_as_float(__reduce_max_sync(0xffffffffu, __float_as_uint(fmaxf(scale[0], scale[1]))));
  const float unit = fmaxf(state.unit, max), inverse = __fdividef(1.0f, unit);
  rescale[0] *= state.unit * inverse, rescale[1] *= state.unit * inverse;
  state.unit = unit;
#pragma unroll
  for (int v = 0; v < 4; ++v) p[v] *= scale[v / 2] * inverse;
}

// P as the B operand. D has tokens as rows and B wants them as k: an 8 x 8 transposition in
// registers.
template <KvFormat kFormat>
__device__ __forceinline__ uint2 pack_weights(const float (&p)[4]) {
  uint2 weights;
  if constexpr (kFormat == KvFormat::bf16) {
    weights = {pack_bf16(p[0], p[1]), pack_bf16(p[2], p[3])};
  } else {
    weights = {pack_f16(p[0], p[1]), pack_f16(p[2], p[3])};
  }
  ptx::movmatrix_trans(weights.x);
  ptx::movmatrix_trans(weights.y);
  return weights;
}

// Adds the 16 tokens of a page; its first token has position `begin`. sees(position, c): whether
// the lane's column c (0 or 1) attends to that token; others are masked. `scale`: of the scores in
// the lane's columns. `softcap`: c tanh(s / c); 0: none.
template <int kD, KvFormat kFormat, typename Sees>
__device__ inline void attend_page(SoftmaxState<kD>& state, const HeadFragment<kD>& q,
                                   const float (&scale)[2], float softcap, int begin,
                                   const Sees& sees, int lane, const uint8_t* page) {
  const PageView<kD, kFormat> view{page, lane};
  float even[4] = {}, odd[4] = {};
  view.multiply_keys(even, odd, q);
  float s[4];
#pragma unroll
  for (int v = 0; v < 4; ++v) {
    float score = (even[v] + odd[v]) * scale[v % 2];
    const int token = lane / 4 + v / 2 * 8;  // of the page
    if constexpr (kv_bytes(kFormat)) score *= view.key_scale(token);
    if (softcap > 0) score = softcap * tanhf(score / softcap);
    s[v] = sees(begin + token, v % 2) ? score * kLog2e : kMaskedScore;
  }
  float p[4], rescale[2];
  update_softmax<kD, kFormat>(state, s, p, rescale);
  if constexpr (kv_bytes(kFormat)) apply_value_scales(state, view, s, p, rescale);
  view.multiply_values(state.out, rescale, pack_weights<kFormat>(p));
}

// After the last page: adds the sums of all lanes and brings the outputs to unit 1.
template <int kD, KvFormat kFormat>
__device__ inline void finish_softmax(SoftmaxState<kD>& state) {
#pragma unroll
  for (int offset = 4; offset <= 16; offset *= 2) {
    state.sum[0] += __shfl_xor_sync(0xffffffffu, state.sum[0], offset);
    state.sum[1] += __shfl_xor_sync(0xffffffffu, state.sum[1], offset);
  }
  if constexpr (kv_bytes(kFormat)) {
#pragma unroll
    for (int j = 0; j < kD; ++j) {
#pragma unroll
      for (int v = 0; v < 4; ++v) state.out[j][v] *= state.unit;
    }
  }
}

}  // namespace ridge::cuda
