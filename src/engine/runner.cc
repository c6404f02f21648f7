#include "engine/runner.h"

#include <algorithm>

#include "engine/logits.h"

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

std::span<const Best> Runner::best(std::span<const Ask> asks) {
  const auto vocab = static_cast<size_t>(weights().architecture.vocab);
  const std::span<const float> rows = logits();
  best_.resize(asks.size());
  for (size_t row = 0; row < asks.size(); ++row) {
    find_best(rows.subspan(row * vocab, vocab), asks[row], best_[row]);
  }
  return best_;
}

}  // namespace ridge
