// Draws from a softmax without a sum over it: the token with the largest
//   scale * logit + gumbel(key, token)
// has probability softmax(scale * logits) (Gumbel 1954; the "Gumbel-max trick"). The number of a
// token is a function of (seed, position, token) alone. A draw therefore depends neither on how
// many draws came before nor on how the row was searched, and restricting the candidates (top-k,
// top-p, min-p) restricts the same draw.
//
// Host and device give the same bits: only additions and multiplications that round once each are
// used, never a fused one and never a library's logarithm. C++17: CUDA sources include this.
#pragma once

#include <cstdint>
#include <cstring>

#include "base/random.h"

#define RIDGE_GUMBEL_INLINE RIDGE_HOST_DEVICE inline

namespace ridge {

namespace gumbel_detail {

RIDGE_GUMBEL_INLINE float mul(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}
RIDGE_GUMBEL_INLINE float add(float a, float b) {
#ifdef __CUDA_ARCH__
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}
RIDGE_GUMBEL_INLINE uint32_t bits_of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof(bits));
  return bits;
}
RIDGE_GUMBEL_INLINE float float_of(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof(x));
  return x;
}

// log(1 + x) + exponent * log 2 for 1 + x in [sqrt(1/2), sqrt(2)]: the polynomial of Cephes' logf.
RIDGE_GUMBEL_INLINE float log_near_one(float x, float exponent) {
  float y = 7.0376836292e-2f;
  y = add(mul(y, x), -1.1514610310e-1f);
  y = add(mul(y, x), 1.1676998740e-1f);
  y = add(mul(y, x), -1.2420140846e-1f);
  y = add(mul(y, x), 1.4249322787e-1f);
  y = add(mul(y, x), -1.6668057665e-1f);
  y = add(mul(y, x), 2.0000714765e-1f);
  y = add(mul(y, x), -2.4999993993e-1f);
  y = add(mul(y, x), 3.3333331174e-1f);
  const float square = mul(x, x);
  y = mul(mul(y, x), square);
  y = add(y, mul(exponent, -2.12194440e-4f));
  y = add(y, mul(-0.5f, square));
  y = add(x, y);
  return add(y, mul(exponent, 0.693359375f));
}

// Natural logarithm of a positive normal number.
RIDGE_GUMBEL_INLINE float log_positive(float x) {
  const uint32_t bits = bits_of(x);
  int exponent = static_cast<int>(bits >> 23) - 126;
  float mantissa = float_of((bits & 0x007fffffu) | 0x3f000000u);  // [0.5, 1)
  if (mantissa < 0.707106781f) {
    exponent -= 1;
    mantissa = add(mantissa, mantissa);
  }
  return log_near_one(add(mantissa, -1.0f), static_cast<float>(exponent));
}

}  // namespace gumbel_detail

// The start of the sequence that the numbers of all tokens at one position are words of:
// gumbel_bits(gumbel_key(seed, position), token) is hash64(seed, position, token).
RIDGE_GUMBEL_INLINE uint64_t gumbel_key(uint64_t seed, int64_t position) {
  return splitmix64(splitmix64(seed) + static_cast<uint64_t>(position) * kWeyl);
}
RIDGE_GUMBEL_INLINE uint64_t gumbel_bits(uint64_t key, int32_t token) {
  return splitmix64(key + static_cast<uint64_t>(token) * kWeyl) | 1;
}

// -log(-log(1 - v)) with v = bits / 2^64 in (0, 1): between -2.9 and 44.4. v keeps 24 significant
// bits down to 2^-64, so that even tokens of probability 1e-15 are drawn as often as they should.
RIDGE_GUMBEL_INLINE float gumbel_of_bits(uint64_t bits) {
  using namespace gumbel_detail;
  float v = mul(static_cast<float>(bits), 5.42101086e-20f);  // 2^-64, exactly
  if (v > 0.99999994f) v = 0.99999994f;                      // 1 - 2^-24
  // Small v directly, so that 1 - v loses none of its bits.
  const float exponential = -(v < 0.29f ? log_near_one(-v, 0.0f) : log_positive(add(1.0f, -v)));
  return -log_positive(exponential);
}

RIDGE_GUMBEL_INLINE float gumbel(uint64_t key, int32_t token) {
  return gumbel_of_bits(gumbel_bits(key, token));
}

RIDGE_GUMBEL_INLINE float gumbel_score(float logit, float scale, uint64_t key, int32_t token) {
  return gumbel_detail::add(gumbel_detail::mul(logit, scale), gumbel(key, token));
}

}  // namespace ridge
