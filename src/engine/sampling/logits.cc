#include "engine/sampling/logits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/sampling/gumbel.h"

namespace ridge {
namespace {

// Sums that do not wait for each other; also what compilers vectorise.
constexpr int kLanes = 8;

}  // namespace

double sum_exponentials(std::span<const float> logits, float max, float scale) {
  constexpr size_t kChunk = 1024;  // a chunk is summed in f32, the chunks in double
  std::array<float, kChunk> weights;
  double total = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const size_t count = std::min(kChunk, logits.size() - begin);
    for (size_t i = 0; i < count; ++i) weights[i] = exp_negative((logits[begin + i] - max) * scale);
    std::array<float, kLanes> sums{};
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += weights[i + lane];
    }
    for (; i < count; ++i) sums[0] += weights[i];
    for (const float sum : sums) total += static_cast<double>(sum);
  }
  return total;
}

float largest(std::span<const float> values) {
  std::array<float, kLanes> most;
  most.fill(kBanned);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      most[lane] = values[i + lane] > most[lane] ? values[i + lane] : most[lane];
    }
  }
  for (; i < values.size(); ++i) most[0] = std::max(most[0], values[i]);
  return *std::max_element(most.begin(), most.end());
}

bool is_broken(std::span<const float> logits) {
  std::array<uint32_t, kLanes> bad{};
  constexpr uint32_t kPositiveInfinity = 0x7f800000u, kSign = 0x80000000u;
  const auto is_bad = [](float x) {  // bits beyond infinity are NaN; +inf is one of the two
    const auto bits = std::bit_cast<uint32_t>(x);
    return uint32_t{(bits & ~kSign) > kPositiveInfinity} | uint32_t{bits == kPositiveInfinity};
  };
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) bad[lane] |= is_bad(logits[i + lane]);
  }
  for (; i < logits.size(); ++i) bad[0] |= is_bad(logits[i]);
  return std::any_of(bad.begin(), bad.end(), [](uint32_t b) { return b != 0; });
}

Candidate find_largest(std::span<const float> logits) {
  const float max = largest(logits);
  const auto first = std::find(logits.begin(), logits.end(), max);
  return {max, static_cast<int32_t>(first - logits.begin())};
}

// The logarithms of most tokens are not needed: with v = bits / 2^64 >= 2^-(z + 1), where z is the
// number of leading zeros, -log(-log(1 - v)) <= -log(v) <= (z + 1) log 2. Rounding is monotonic, so
// a token whose score with this bound falls short of the best one so far cannot win.
Candidate draw_token(std::span<const float> logits, float scale, uint64_t key, int32_t first) {
  constexpr float kLog2 = 0.693148f;     // rounded up
  constexpr float kGumbelError = 1e-5f;  // gumbel() itself errs by less than 2e-6
  Candidate best{kBanned, first};
  float best_score = kBanned;
  for (size_t i = 0; i < logits.size(); ++i) {
    const int32_t token = first + static_cast<int32_t>(i);
    const uint64_t bits = gumbel_bits(key, token);
    const float bound = static_cast<float>(std::countl_zero(bits) + 1) * kLog2 + kGumbelError;
    const float scaled = logits[i] * scale;
    if (!(scaled + bound > best_score)) continue;
    const float score = gumbel_score(logits[i], scale, key, token);
    if (!(score > best_score)) continue;
    best_score = score;
    best = {logits[i], token};
  }
  return best;
}

// Candidates that may be among the first `count` are collected, and thinned out when they are
// twice as many.
void find_candidates(std::span<const float> logits, int count, std::vector<Candidate>& to) {
  const size_t wanted = std::min(logits.size(), static_cast<size_t>(count));
  to.clear();
  if (wanted == 0) return;
  const auto thin_out = [&] {
    std::nth_element(to.begin(), to.begin() + static_cast<ptrdiff_t>(wanted) - 1, to.end());
    to.resize(wanted);
  };
  float least = kBanned;  // of `wanted` known ones: equals that come later lie behind them
  bool full = false;
  for (size_t token = 0; token < logits.size(); ++token) {
    if (full && !(logits[token] > least)) continue;
    to.push_back({logits[token], static_cast<int32_t>(token)});
    if (to.size() < 2 * wanted) continue;
    thin_out();
    least = to[wanted - 1].logit;
    full = true;
  }
  thin_out();
  std::sort(to.begin(), to.end());
}

void find_top_logits(std::span<const float> logits, const TopLogitsRequest& request, TopLogits& to,
                     int32_t first) {
  to.candidates.clear();
  to.requested.clear();
  to.log_sum = to.scaled_sum = 0;
  to.chosen = {0, 0};
  to.broken = is_broken(logits);
  if (to.broken) return;
  for (const int32_t token : request.tokens) {
    const auto at = static_cast<size_t>(token - first);  // before the part: far behind its end
    to.requested.push_back(at < logits.size() ? logits[at] : kBanned);
  }
  if (request.count > 0) {
    find_candidates(logits, request.count, to.candidates);
    const float max = to.candidates.front().logit;
    const bool any = max > kBanned;
    const double sum = any ? sum_exponentials(logits, max, 1) : 0;
    to.log_sum = double{max} + std::log(sum);
    to.scaled_sum = any && request.scale != 1 ? sum_exponentials(logits, max, request.scale) : sum;
  }
  if (request.draw) {
    to.chosen = draw_token(logits, request.scale, request.key, first);
  } else {
    to.chosen = request.count > 0 ? to.candidates.front() : find_largest(logits);
    to.chosen.token += first;
  }
  for (Candidate& candidate : to.candidates) candidate.token += first;
}

}  // namespace ridge
