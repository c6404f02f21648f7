#include "engine/sampling/logits.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace ridge {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Sums that do not wait for each other; also what compilers vectorise.
constexpr int kLanes = 8;

}  // namespace

double weigh(std::span<const float> logits, float max, float scale, float* weights) {
  constexpr size_t kChunk = 1024;  // a chunk's sums stay in f32, chunks are added in double
  std::array<float, kChunk> chunk;
  double total = 0;
  for (size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const size_t count = std::min(kChunk, logits.size() - begin);
    float* to = weights ? weights + begin : chunk.data();
    for (size_t i = 0; i < count; ++i) to[i] = exp_negative((logits[begin + i] - max) * scale);
    std::array<float, kLanes> sums{};
    size_t i = 0;
    for (; i + kLanes <= count; i += kLanes) {
      for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += to[i + lane];
    }
    for (; i < count; ++i) sums[0] += to[i];
    for (const float sum : sums) total += static_cast<double>(sum);
  }
  return total;
}

float largest(std::span<const float> values) {
  std::array<float, kLanes> most;
  most.fill(-kInfinity);
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

// Those that may be among the best are kept, and thinned out when they are twice as many.
void find_top_logits(std::span<const float> logits, const TopLogitsRequest& ask, TopLogits& to) {
  to.candidates.clear();
  to.requested.clear();
  to.broken = is_broken(logits);
  if (to.broken) return;
  const float max = largest(logits);
  const bool any = max > -kInfinity;
  const double sum = any ? weigh(logits, max, 1, nullptr) : 0;
  to.log_sum = double{max} + std::log(sum);
  to.scaled = any && ask.scale != 1 ? weigh(logits, max, ask.scale, nullptr) : sum;
  const size_t count = std::min(logits.size(), static_cast<size_t>(ask.count));
  const auto thin_out = [&] {
    std::nth_element(to.candidates.begin(),
                     to.candidates.begin() + static_cast<ptrdiff_t>(count) - 1,
                     to.candidates.end());
    to.candidates.resize(count);
  };
  float least = -kInfinity;  // of `count` known ones: equals that come later lie behind them
  bool full = false;
  for (size_t token = 0; token < logits.size(); ++token) {
    if (full && !(logits[token] > least)) continue;
    to.candidates.push_back({logits[token], static_cast<int32_t>(token)});
    if (to.candidates.size() < 2 * count) continue;
    thin_out();
    least = to.candidates[count - 1].logit;
    full = true;
  }
  thin_out();
  std::sort(to.candidates.begin(), to.candidates.end());
  for (const int32_t token : ask.tokens) to.requested.push_back(logits[static_cast<size_t>(token)]);
}

}  // namespace ridge
