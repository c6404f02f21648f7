#include "text/grammar/vocabulary_trie.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace ridge {

using grammar::kStringBody;
using grammar::kStringEnd;
using grammar::kStringFail;
using grammar::StringKind;
using grammar::StringState;

namespace {

std::vector<std::string> texts_of(const Tokenizer& tokenizer) {
  std::vector<std::string> texts(static_cast<size_t>(tokenizer.size()));
  for (Token token = 0; token < tokenizer.size(); ++token) {
    if (!tokenizer.is_special(token)) texts[static_cast<size_t>(token)] = tokenizer.decode(token);
  }
  return texts;
}

}  // namespace

VocabularyTrie::VocabularyTrie(const Tokenizer& tokenizer)
    : VocabularyTrie(texts_of(tokenizer), tokenizer.ends) {}

VocabularyTrie::VocabularyTrie(std::vector<std::string> tokens, std::vector<Token> ends)
    : ends_(std::move(ends)) {
  for (Token token : ends_) tokens[static_cast<size_t>(token)].clear();
  starts_.push_back(0);
  for (const std::string& token : tokens) {
    text_ += token;
    starts_.push_back(static_cast<uint32_t>(text_.size()));
    longest_ = std::max(longest_, static_cast<uint32_t>(token.size()));
  }
  build_nodes();
  for (StringKind kind : {StringKind::value, StringKind::key}) {
    string_tokens_[static_cast<size_t>(kind)] = match_strings(kind);
  }
}

std::string_view VocabularyTrie::bytes(Token token) const {
  const auto at = static_cast<size_t>(token);
  return std::string_view(text_).substr(starts_[at], starts_[at + 1] - starts_[at]);
}

void VocabularyTrie::build_nodes() {
  tokens_.resize(static_cast<size_t>(size()));
  std::iota(tokens_.begin(), tokens_.end(), 0);
  std::erase_if(tokens_, [&](Token token) { return bytes(token).empty(); });
  std::sort(tokens_.begin(), tokens_.end(), [&](Token a, Token b) {
    const int order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a < b;
  });

  // In sorted order each token adds the nodes of what it does not share with the one before. A
  // subtree ends when the first node that is not deeper comes.
  std::vector<uint32_t> path = {0};  // nodes from the root
  const auto add_node = [&](uint8_t byte, uint32_t depth, size_t token) {
    bytes_.push_back(byte);
    depths_.push_back(depth);
    ends_of_.push_back(0);
    first_token_.push_back(static_cast<uint32_t>(token));
  };
  const auto close_to = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) ends_of_[path.back()] = nodes();
  };
  add_node(0, 0, 0);
  std::string_view before;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view text = bytes(tokens_[i]);
    size_t shared = 0;
    while (shared < before.size() && before[shared] == text[shared]) ++shared;
    close_to(shared + 1);
    for (size_t at = shared; at < text.size(); ++at) {
      path.push_back(nodes());
      add_node(static_cast<uint8_t>(text[at]), static_cast<uint32_t>(at) + 1, i);
    }
    before = text;
  }
  close_to(0);
  first_token_.push_back(static_cast<uint32_t>(tokens_.size()));
}

VocabularyTrie::StringTokens VocabularyTrie::match_strings(StringKind kind) const {
  StringTokens result;
  result.mask.resize((static_cast<size_t>(size()) + 31) / 32);
  struct Place {
    StringState inside;
    uint32_t characters;
  };
  std::vector<Place> places(longest_ + 1);  // by depth
  places[0] = {kStringBody, 0};
  for (uint32_t node = 1; node < nodes();) {
    Place place = places[depth(node) - 1];
    if (place.inside == kStringBody) ++place.characters;
    place.inside = string_step(kind, place.inside, byte(node));
    if (place.inside == kStringEnd) result.closing.push_back({node, place.characters - 1});
    if (place.inside == kStringEnd || place.inside == kStringFail) {
      node = end(node);
      continue;
    }
    for (Token token : tokens(node)) {
      result.inside.push_back({token, place.characters});
      result.mask[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
    }
    places[depth(node)] = place;
    ++node;
  }
  const auto by_characters = [](const auto& a, const auto& b) {
    return a.characters < b.characters;
  };
  std::stable_sort(result.inside.begin(), result.inside.end(), by_characters);
  return result;
}

}  // namespace ridge
