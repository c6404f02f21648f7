#include "text/tokenizer/added_tokens.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/error.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/utf8.h"

namespace ridge {
namespace {

bool is_one(const Regex& kind, std::string_view character) {
  std::vector<Match> found;
  WorkLimit one_character("added tokens", 1 << 20);
  kind.matches(character, false, found, one_character);
  return !found.empty();
}

bool is_word(std::string_view character) {
  static const Regex kWord = Regex::pattern("\\w", "added tokens");
  return is_one(kWord, character);
}

size_t before(std::string_view text, size_t at) {  // the character's start
  size_t start = at - 1;
  while (start > 0 && at - start < 4 && (text[start] & 0xC0) == 0x80) --start;
  return start + utf8_step(text, start) == at ? start : at - 1;
}

bool word_before(std::string_view text, size_t at) {
  return at > 0 && is_word(text.substr(before(text, at), at - before(text, at)));
}

bool word_after(std::string_view text, size_t at) {
  return at < text.size() && is_word(text.substr(at, utf8_step(text, at)));
}

bool is_space(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (first < 0x80) return first == ' ' || (first >= '\t' && first <= '\r');
  static const Regex kSpace = Regex::pattern("\\s", "added tokens");
  return is_one(kSpace, character);
}

// The bytes in which two texts agree, of which they agree in the first `known`.
size_t shared_bytes(std::string_view a, std::string_view b, size_t known) {
  const size_t most = std::min(a.size(), b.size());
  size_t at = known;
  for (; at + sizeof(uint64_t) <= most; at += sizeof(uint64_t)) {
    if (std::memcmp(a.data() + at, b.data() + at, sizeof(uint64_t)) != 0) break;
  }
  while (at < most && a[at] == b[at]) ++at;
  return at;
}

}  // namespace

void AddedTokens::add(AddedToken token) {
  if (token.text.size() > kMaxAddedToken) {
    throw Error("the added token '{}...' has {} bytes, at most {} are read",
                token.text.substr(0, 40), token.text.size(), kMaxAddedToken);
  }
  if (!token.text.empty()) tokens_.push_back(std::move(token));
}

void AddedTokens::index() {
  std::stable_sort(tokens_.begin(), tokens_.end(),
                   [](const AddedToken& a, const AddedToken& b) { return a.text < b.text; });
  starts_.assign(tokens_.empty() ? 0 : 1 << 16, false);
  for (const AddedToken& token : tokens_) {
    const size_t first = static_cast<unsigned char>(token.text[0]) * size_t{256};
    if (token.text.size() > 1) {
      starts_[first + static_cast<unsigned char>(token.text[1])] = true;
    } else {
      std::fill_n(starts_.begin() + static_cast<std::ptrdiff_t>(first), 256, true);
    }
  }
}

const AddedToken* AddedTokens::longest(std::string_view text, size_t at,
                                       std::span<const Range> special, WorkLimit& work) const {
  const AddedToken* best = nullptr;
  const std::string_view rest = text.substr(at);
  const auto range = std::partition_point(special.begin(), special.end(),
                                          [&](const Range& one) { return one.end <= at; });
  const size_t special_end = range != special.end() && range->begin <= at ? range->end : at;
  // Of the sorted tokens those that share the first `depth` bytes with the text.
  auto low = tokens_.begin(), high = tokens_.end();
  for (size_t depth = 0; low != high;) {
    const size_t shared = shared_bytes(low->text, std::prev(high)->text, depth);
    work.spend(kNarrowSteps + (shared - depth) / 64);
    if (rest.substr(depth, shared - depth) !=
        std::string_view(low->text).substr(depth, shared - depth))
      break;
    depth = shared;
    for (; low != high && low->text.size() == depth; ++low) {
      if (!low->special || at + depth <= special_end) best = &*low;
    }
    if (depth == rest.size()) break;
    const auto byte = static_cast<unsigned char>(rest[depth]);
    const auto at_depth = [&](const AddedToken& token) {
      return int{static_cast<unsigned char>(token.text[depth])};
    };
    low = std::partition_point(low, high, [&](const auto& t) { return at_depth(t) < byte; });
    high = std::partition_point(low, high, [&](const auto& t) { return at_depth(t) <= byte; });
  }
  return best;
}

std::vector<TextSegment> AddedTokens::split(std::string_view text, std::span<const Range> special,
                                            WorkLimit& work) const {
  std::vector<TextSegment> segments;
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    const size_t pair = static_cast<unsigned char>(text[at]) * size_t{256} +
                        (at + 1 < text.size() ? static_cast<unsigned char>(text[at + 1]) : 0);
    // The text's last byte can only be a token of one byte, and those mark every pair.
    const AddedToken* found = starts_[pair] ? longest(text, at, special, work) : nullptr;
    if (found == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + found->text.size();
    at = end;
    if (found->single_word && (word_before(text, begin) || word_after(text, end))) continue;
    if (found->left_strip) {
      while (begin > done) {
        const size_t start = before(text, begin);
        if (start < done || !is_space(text.substr(start, begin - start))) break;
        begin = start;
      }
    }
    if (found->right_strip) {
      while (end < text.size() && is_space(text.substr(end, utf8_step(text, end)))) {
        end += utf8_step(text, end);
      }
    }
    if (begin > done) segments.push_back({text.substr(done, begin - done)});
    segments.push_back({text.substr(begin, end - begin), found->id});
    done = at = end;
  }
  if (done < text.size()) segments.push_back({text.substr(done)});
  return segments;
}

}  // namespace ridge
