#include "engine/runner.h"

#include <algorithm>

#include "engine/sampling/logits.h"

namespace ridge {

std::span<const Token> Runner::likeliest() {
  const auto vocab = static_cast<size_t>(weights().architecture.vocab);
  const std::span<const float> rows = logits();
  likeliest_.clear();
  for (size_t at = 0; at < rows.size(); at += vocab) {
    const auto row = rows.subspan(at, vocab);
    likeliest_.push_back(Token(std::max_element(row.begin(), row.end()) - row.begin()));
  }
  return likeliest_;
}

std::span<const TopLogits> Runner::top_logits(std::span<const TopLogitsRequest> requests) {
  const auto vocab = static_cast<size_t>(weights().architecture.vocab);
  const std::span<const float> rows = logits();
  top_logits_.resize(requests.size());
  for (size_t row = 0; row < requests.size(); ++row) {
    find_top_logits(rows.subspan(row * vocab, vocab), requests[row], top_logits_[row]);
  }
  return top_logits_;
}

}  // namespace ridge
