#include "engine/sampling/merge_top_logits.h"

#include <algorithm>
#include <cmath>

#include "engine/sampling/gumbel.h"
#include "engine/sampling/logits.h"

namespace ridge {
namespace {

// Whether `a` is chosen before `b`, whose token is higher.
bool is_before(const Candidate& a, const Candidate& b, const TopLogitsRequest& request) {
  if (!request.draw) return a < b;
  const auto score = [&](const Candidate& c) {
    return gumbel_score(c.logit, request.scale, request.key, c.token);
  };
  // A part without a token that can be drawn has no score.
  if (b.logit == kBanned) return true;
  return a.logit > kBanned && !(score(b) > score(a));
}

}  // namespace

TopLogits merge_top_logits(std::span<const TopLogits> parts, const TopLogitsRequest& request) {
  TopLogits whole;
  whole.broken =
      std::any_of(parts.begin(), parts.end(), [](const TopLogits& part) { return part.broken; });
  if (whole.broken) return whole;

  whole.chosen = parts.front().chosen;
  whole.requested.assign(request.tokens.size(), kBanned);
  for (const TopLogits& part : parts) {
    if (!is_before(whole.chosen, part.chosen, request)) whole.chosen = part.chosen;
    for (size_t i = 0; i < whole.requested.size(); ++i) {
      whole.requested[i] = std::max(whole.requested[i], part.requested[i]);
    }
    whole.candidates.insert(whole.candidates.end(), part.candidates.begin(), part.candidates.end());
  }
  if (request.count == 0) return whole;
  std::sort(whole.candidates.begin(), whole.candidates.end());
  whole.candidates.resize(std::min(whole.candidates.size(), static_cast<size_t>(request.count)));

  // Each part's sums are relative to its own largest logit.
  const float max = whole.candidates.front().logit;
  double sum = 0;
  for (const TopLogits& part : parts) {
    const float part_max = part.candidates.front().logit;
    if (!(part_max > kBanned)) continue;
    sum += std::exp(part.log_sum - double{max});
    whole.scaled_sum += part.scaled_sum * std::exp(double{request.scale} * double{part_max - max});
  }
  whole.log_sum = double{max} + std::log(sum);
  return whole;
}

}  // namespace ridge
