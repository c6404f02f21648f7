#include "serving/ngram_drafter.h"

#include <algorithm>

#include "base/random.h"

namespace ridge {
namespace {

constexpr int kSizes[] = {4, 2};  // the longer n-gram is tried first

uint64_t hash_ngram(std::span<const Token> tokens) {
  uint64_t hash = tokens.size();
  for (const Token token : tokens) hash = splitmix64(hash ^ static_cast<uint32_t>(token));
  return hash;
}

// The n tokens before `end`.
std::span<const Token> ngram_before(std::span<const Token> tokens, int end, int n) {
  return tokens.subspan(static_cast<size_t>(end - n), static_cast<size_t>(n));
}

}  // namespace

void NgramDrafter::look_up(Index& index, const DraftRequest& request) const {
  const std::span<const Token> tokens = request.tokens;
  const int size = static_cast<int>(tokens.size());
  // The last n-gram itself is added with the next token, so that it is not found as its own match.
  for (int end = std::max(index.indexed, 1); end < size; ++end) {
    for (const int n : kSizes) {
      if (end >= n) index.after[hash_ngram(ngram_before(tokens, end, n))] = end;
    }
  }
  index.indexed = std::max(index.indexed, size);
  for (const int n : kSizes) {
    if (size < n) continue;
    const std::span<const Token> last = ngram_before(tokens, size, n);
    const auto found = index.after.find(hash_ngram(last));
    if (found == index.after.end()) continue;
    const int start = found->second;
    const std::span<const Token> there = ngram_before(tokens, start, n);
    if (!std::equal(last.begin(), last.end(), there.begin())) continue;
    for (int i = 0; i < request.most; ++i) {
      // A match that runs into the end goes on with the drafts themselves: the text is periodic.
      const int at = start + i;
      request.drafts->push_back(at < size ? tokens[size_t(at)]
                                          : (*request.drafts)[size_t(at - size)]);
    }
    return;
  }
}

void NgramDrafter::propose(std::span<const DraftRequest> requests) {
  std::vector<int> available;
  for (const DraftRequest& request : requests) {
    look_up(indices_[request.id], request);
    available.push_back(static_cast<int>(request.drafts->size()));
  }
  const int chosen = policy_->choose(requests, available);
  for (const DraftRequest& request : requests) {
    if (int(request.drafts->size()) > chosen) request.drafts->resize(size_t(chosen));
  }
}

void NgramDrafter::remove(RequestId id) {
  indices_.erase(id);
  policy_->remove(id);
}

}  // namespace ridge
