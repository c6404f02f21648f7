// Loops over a row of logits on the host.
#pragma once

#include <bit>
#include <cstdint>
#include <span>

#include "engine/sampling/top_logits.h"

namespace ridge {

// exp(x) for x <= 0 to 2 ulp, without a call or a branch, so that the loops over the vocabulary
// become vectors: 2^n times the polynomial of Cephes' expf on |r| <= ln 2 / 2.
inline float exp_negative(float x) {
  constexpr float kMagic = 12582912;  // 1.5 x 2^23: adding it rounds to an integer
  const uint32_t mask = 0u - static_cast<uint32_t>(x >= -87.0f);  // below: 0
  const float kept = std::bit_cast<float>(std::bit_cast<uint32_t>(x) & mask);
  const float n = (kept * 1.44269504f + kMagic) - kMagic;
  const float r = (kept - n * 0.693359375f) + n * 2.12194440e-4f;
  float y = 1.9875691500e-4f;
  y = y * r + 1.3981999507e-3f;
  y = y * r + 8.3334519073e-3f;
  y = y * r + 4.1665795894e-2f;
  y = y * r + 1.6666665459e-1f;
  y = y * r + 5.0000001201e-1f;
  y = y * r * r + r + 1;
  const float power = std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(y * power) & mask);
}

// Weights exp(scale (x - max)) into `weights` (where given) and their sum.
double weigh(std::span<const float> logits, float max, float scale, float* weights);

float largest(std::span<const float> values);

// NaN and +inf cannot be drawn from; -inf is a token that cannot be.
bool is_broken(std::span<const float> logits);

void find_top_logits(std::span<const float> logits, const TopLogitsRequest& ask, TopLogits& to);

}  // namespace ridge
