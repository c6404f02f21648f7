#include "serving/prefix_index.h"

#include <functional>

#include "base/random.h"

namespace ridge {

std::vector<uint64_t> hash_prefixes(std::string_view salt, std::span<const Token> tokens,
                                    int page_tokens) {
  const auto page = static_cast<size_t>(page_tokens);
  std::vector<uint64_t> hashes;
  hashes.reserve(tokens.size() / page);
  uint64_t hash = splitmix64(std::hash<std::string_view>{}(salt));
  for (size_t i = 0; i + page <= tokens.size(); i += page) {
    for (const Token token : tokens.subspan(i, page)) {
      hash = splitmix64(hash ^ static_cast<uint32_t>(token));
    }
    hashes.push_back(hash);
  }
  return hashes;
}

int PrefixIndex::match(std::span<const uint64_t> prefixes) const {
  int found = 0;
  for (const uint64_t prefix : prefixes) {
    if (!known_.contains(prefix)) break;
    ++found;
  }
  return found;
}

void PrefixIndex::add(std::span<const uint64_t> prefixes) {
  // The longest first, so that a prefix is forgotten before those that it begins with.
  for (size_t i = prefixes.size(); i-- > 0;) {
    if (const auto found = known_.find(prefixes[i]); found != known_.end()) {
      by_use_.splice(by_use_.begin(), by_use_, found->second);
      continue;
    }
    by_use_.push_front(prefixes[i]);
    known_.emplace(prefixes[i], by_use_.begin());
  }
  while (known_.size() > most_) {
    known_.erase(by_use_.back());
    by_use_.pop_back();
  }
}

}  // namespace ridge
