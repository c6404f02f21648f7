#include "engine/tokenizer/added_tokens.h"

#include <algorithm>

#include "engine/tokenizer/regex.h"
#include "engine/tokenizer/utf8.h"

namespace ridge {
namespace {

bool is_one(const Regex& kind, std::string_view character) {
  std::vector<Match> found;
  kind.matches(character, false, found);
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

}  // namespace

void AddedTokens::add(AddedToken token) {
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
                                       std::span<const Range> special) const {
  const AddedToken* best = nullptr;
  const std::string_view rest = text.substr(at);
  // Of the sorted tokens those that share the first `depth` bytes with the text.
  auto low = tokens_.begin(), high = tokens_.end();
  for (size_t depth = 0; low != high; ++depth) {
    for (auto it = low; it != high && it->text.size() == depth; ++it) {
      const auto inside = [&](const Range& range) {
        return range.begin <= at && at + depth <= range.end;
      };
      if (!it->special || std::any_of(special.begin(), special.end(), inside)) best = &*it;
    }
    if (depth == rest.size()) break;
    const auto byte = static_cast<unsigned char>(rest[depth]);
    const auto at_depth = [&](const AddedToken& token) {
      return token.text.size() > depth ? int{static_cast<unsigned char>(token.text[depth])} : -1;
    };
    low = std::partition_point(low, high, [&](const auto& t) { return at_depth(t) < byte; });
    high = std::partition_point(low, high, [&](const auto& t) { return at_depth(t) <= byte; });
  }
  return best;
}

std::vector<TextSegment> AddedTokens::split(std::string_view text,
                                            std::span<const Range> special) const {
  std::vector<TextSegment> segments;
  size_t done = 0;
  for (size_t at = 0; at < text.size() && !tokens_.empty();) {
    const size_t pair = static_cast<unsigned char>(text[at]) * size_t{256} +
                        (at + 1 < text.size() ? static_cast<unsigned char>(text[at + 1]) : 0);
    // The text's last byte can only be a token of one byte, and those mark every pair.
    const AddedToken* found = starts_[pair] ? longest(text, at, special) : nullptr;
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
