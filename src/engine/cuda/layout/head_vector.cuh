// One head of a token (a query, key or value) in registers: head_dim = 16 kD elements, spread over
// the four lanes of a quad as mma.m16n8k16 wants its operands. Lane l = 4 g + t has part t of the
// vector of quad g.
#pragma once

#include <cuda_fp16.h>

#include "base/weight_format.h"
#include "engine/cuda/device/scalar.cuh"

namespace ridge::cuda {

// f16 operands: q's largest element, and the softmax weights, are below twice this power of two.
constexpr int kF16Exponent = 14;

// The vector as the B operand of mma.m16n8k16: elements 16 j + 2 t + {0, 1} at [j][0], those 8
// further at [j][1].
template <int kD>
using HeadFragment = uint32_t[kD][2];

// The vector in f32: [j][h] are elements 16 j + 8 h + 2 t + {0, 1}.
template <int kD>
using HeadVector = float2[kD][2];

// Zeros where the quad has no vector (`valid`).
template <int kD>
__device__ inline void load_head(HeadVector<kD>& to, const float* from, bool valid, int t) {
#pragma unroll
  for (int j = 0; j < kD; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      to[j][h] = valid ? __ldcg(reinterpret_cast<const float2*>(from + j * 16 + h * 8 + t * 2))
                       : float2{0, 0};
    }
  }
}

// RMSNorm (`norm` not null), then RoPE. `rotation` holds (cosine, sine) by pair of elements.
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
  // Element i is rotated with i + 8 kD, which the same lane holds: unit u of 8 elements with unit
  // u + kD.
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

// The largest magnitude of the quad's vector.
template <int kD>
__device__ inline float max_magnitude(const HeadVector<kD>& v) {
  float maximum = 0;
#pragma unroll
  for (int j = 0; j < kD; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) maximum = fmaxf(maximum, fmaxf(fabsf(v[j][h].x), fabsf(v[j][h].y)));
  }
  maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 1));
  return fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, 2));
}

__device__ inline uint32_t pack_f16(float low, float high) {
  const __half2 pair = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

// The query as B operand. Returns the factor that its scores must be multiplied with. bf16 pages
// take q as it is. All others take it in f16, times the power of two that brings its largest
// element to [2^14, 2^15): what is lost below is 2^-28 of the largest.
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
    // Biased exponents. The bound keeps the factor finite: queries below 2^-107 come out smaller.
    const int exponent = max(20, int(__float_as_uint(max_magnitude<kD>(v)) >> 23));
    const float factor = __uint_as_float((254u + kF16Exponent - exponent) << 23);
#pragma unroll
    for (int j = 0; j < kD; ++j) {
      to[j][0] = pack_f16(v[j][0].x * factor, v[j][0].y * factor);
      to[j][1] = pack_f16(v[j][1].x * factor, v[j][1].y * factor);
    }
    return __uint_as_float((exponent - kF16Exponent) << 23);
  }
}

// Scale of the scores in the lane's two columns; `factor`: what pack_query returned in this quad.
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

}  // namespace ridge::cuda
