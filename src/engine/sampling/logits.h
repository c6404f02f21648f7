// Loops over a row of logits on the host.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "engine/sampling/top_logits.h"

namespace ridge {

// The logit of a token that cannot be drawn.
inline constexpr float kBanned = -std::numeric_limits<float>::infinity();

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

// The sum of exp(scale (x - max)) over the row, to kSumError.
double sum_exponentials(std::span<const float> logits, float max, float scale);

float largest(std::span<const float> values);

// Whether a logit is NaN or +inf. -inf is allowed: a token that cannot be drawn.
bool is_broken(std::span<const float> logits);

// The first candidate in order, and the token of the largest gumbel_score (gumbel.h), the lowest id
// among equals. {-inf, 0} where every logit is -inf.
Candidate find_largest(std::span<const float> logits);
// The first logit is that of token `first`.
Candidate draw_token(std::span<const float> logits, float scale, uint64_t key, int32_t first = 0);

// The `count` first candidates of the row, in order; all of them where the row is shorter.
void find_candidates(std::span<const float> logits, int count, std::vector<Candidate>& to);

// What a device gives for the same request, computed on the host. Allocates nothing once `to` has
// room for 2 kMaxCandidates candidates and the requested tokens. `logits` may be part of a row,
// from token `first` on: requested tokens of other parts are kBanned (merge_top_logits.h).
void find_top_logits(std::span<const float> logits, const TopLogitsRequest& request, TopLogits& to,
                     int32_t first = 0);

}  // namespace ridge
