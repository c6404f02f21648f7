#include "engine/runner.h"

#include <algorithm>

namespace ridge {

std::span<const Token> Runner::step_greedy(std::span<const Slice> batch) {
  return likeliest_of(step(batch));
}

std::span<const Token> Runner::likeliest_of(std::span<const float> logits) {
  const auto vocab = static_cast<size_t>(weights().architecture.vocab);
  chosen_.clear();
  for (size_t at = 0; at < logits.size(); at += vocab) {
    const std::span<const float> row = logits.subspan(at, vocab);
    chosen_.push_back(static_cast<Token>(std::max_element(row.begin(), row.end()) - row.begin()));
  }
  return chosen_;
}

}  // namespace ridge
