// Grammars and vocabularies for the tests of structured output.
#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/grammar.h"

namespace ridge::sample {

// Every byte as a token, then `more`, then one end token.
inline std::shared_ptr<const VocabularyTrie> byte_vocabulary(std::vector<std::string> more = {}) {
  std::vector<std::string> tokens;
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  tokens.insert(tokens.end(), more.begin(), more.end());
  tokens.push_back("</s>");
  const auto end = static_cast<Token>(tokens.size()) - 1;
  return std::make_shared<VocabularyTrie>(std::move(tokens), std::vector<Token>{end});
}

inline std::shared_ptr<const Grammar> grammar_of(
    std::string_view schema, std::shared_ptr<const VocabularyTrie> vocabulary = byte_vocabulary()) {
  return std::make_shared<Grammar>(Json::parse(schema), std::move(vocabulary));
}

inline bool allows(std::span<const uint32_t> mask, Token token) {
  return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
}

inline std::vector<uint32_t> mask_of(const GrammarState& state, Token size) {
  std::vector<uint32_t> mask((static_cast<size_t>(size) + 31) / 32);
  state.allowed(mask);
  return mask;
}

// Whether the text is a whole document: byte by byte, with the mask asked before each.
inline bool is_document(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  GrammarState state(grammar);
  const Token size = grammar->vocabulary().size();
  for (char c : text) {
    const Token token = static_cast<uint8_t>(c);
    const bool allowed = allows(mask_of(state, size), token);
    const bool accepted = state.accept(std::string_view(&c, 1));
    EXPECT_EQ(allowed, accepted) << text;
    if (!accepted) return false;
  }
  EXPECT_EQ(state.may_end(), allows(mask_of(state, size), size - 1));
  return state.may_end();
}

}  // namespace ridge::sample
