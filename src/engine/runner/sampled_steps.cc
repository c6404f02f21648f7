#include "engine/runner/sampled_steps.h"

#include "base/error.h"

namespace ridge {

SampledSteps::SampledSteps(int most_rows) {
  for (Step& step : steps_) {
    step.rows.resize(static_cast<size_t>(most_rows));
    for (TopLogits& row : step.rows) {
      row.candidates.reserve(2 * size_t{kMaxCandidates});
      row.requested.reserve(size_t{kMaxRequestedTokens});
    }
  }
}

std::span<TopLogits> SampledSteps::sample(size_t requests, int rows) {
  if (requests != static_cast<size_t>(rows)) {
    throw Error("{} requests for {} rows of logits", requests, rows);
  }
  if (samples_ - fetches_ >= uint64_t{Runner::kMaxStepsInFlight}) {
    throw Error("{} steps were sampled and not fetched", Runner::kMaxStepsInFlight);
  }
  Step& to = steps_[samples_++ % steps_.size()];
  to.count = rows;
  sampled_ = true;
  return std::span(to.rows).first(requests);
}

std::span<const TopLogits> SampledSteps::fetch() {
  if (fetches_ == samples_) throw Error("no step was sampled that could be fetched");
  const Step& from = steps_[fetches_++ % steps_.size()];
  return std::span(from.rows).first(static_cast<size_t>(from.count));
}

Token SampledSteps::token_id(Token token) const {
  if (token >= 0) return token;
  const int row = sampled_row(token);
  const Step& last = steps_[(samples_ + steps_.size() - 1) % steps_.size()];
  if (!sampled_ || row >= last.count) {
    throw Error("a step takes the token of row {}, which the step before did not sample", row);
  }
  return last.rows[static_cast<size_t>(row)].chosen.token;
}

}  // namespace ridge
