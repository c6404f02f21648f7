// Which beginnings of prompts a replica's prefix cache should hold, as its router knows them.
//
// The cache itself belongs to the replica's engine and changes with every step. The router
// remembers instead what it sent there: hashes of the prompts' beginnings, one a page, as many as
// the replica has pages, the least recently used forgotten first. Where it errs (two equal hashes,
// pages that answers have taken), a prompt is computed again, and its answer is the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace ridge {

// Hash i is of `salt` and the first (i + 1) * page_tokens tokens. The rest that fills no page
// counts for nothing.
std::vector<uint64_t> hash_prefixes(std::string_view salt, std::span<const Token> tokens,
                                    int page_tokens);

class PrefixIndex {
 public:
  explicit PrefixIndex(int pages) : most_(static_cast<size_t>(pages)) {}

  // How many of a prompt's prefixes, shortest first, are known.
  int match(std::span<const uint64_t> prefixes) const;
  // They are cached now, or will be soon.
  void add(std::span<const uint64_t> prefixes);
  size_t size() const { return known_.size(); }

 private:
  size_t most_;
  std::list<uint64_t> by_use_;  // the last used first
  std::unordered_map<uint64_t, std::list<uint64_t>::iterator> known_;
};

}  // namespace ridge
