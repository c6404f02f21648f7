// The bytes of every token as one trie, so that tokens with a common prefix are matched together.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/grammar/json_string.h"
#include "text/tokenizer/tokenizer.h"

namespace ridge {

// Built once per tokenizer, immutable. Nodes are numbered in depth-first order: the subtree of node
// n is [n, end(n)), its first child n + 1. Node 0 is the root.
class VocabularyTrie {
 public:
  // The bytes are those that a token appends in the middle of a text. Control tokens and tokens
  // without bytes are not in the trie.
  explicit VocabularyTrie(const Tokenizer& tokenizer);
  // For tests and benchmarks: tokens by id, an empty text for a control token.
  VocabularyTrie(std::vector<std::string> tokens, std::vector<Token> ends);

  Token size() const { return static_cast<Token>(starts_.size()) - 1; }
  std::span<const Token> ends() const { return ends_; }  // tokens that end a generation
  std::string_view bytes(Token token) const;             // empty: not in the trie
  uint32_t longest() const { return longest_; }          // bytes of the longest token

  uint32_t nodes() const { return static_cast<uint32_t>(bytes_.size()); }
  uint8_t byte(uint32_t node) const { return bytes_[node]; }
  uint32_t depth(uint32_t node) const { return depths_[node]; }  // bytes from the root
  uint32_t end(uint32_t node) const { return ends_of_[node]; }
  std::span<const Token> tokens(uint32_t node) const {  // that end at this node
    return std::span(tokens_).subspan(first_token_[node],
                                      first_token_[node + 1] - first_token_[node]);
  }

  std::span<const Token> tokens_below(uint32_t node) const {  // that go on from this node
    return std::span(tokens_).subspan(first_token_[node + 1],
                                      first_token_[end(node)] - first_token_[node + 1]);
  }

  // What each token does from inside a JSON string, between two characters. This is the place in
  // which most of a document is written and in which most tokens are allowed: it is worth a table
  // for the vocabulary.
  struct StringTokens {
    // Tokens that do not leave the string, by the number of characters that they begin. Tokens that
    // do, by nodes in increasing order: the byte of the node is the closing quote.
    struct Inside {
      Token token;
      uint32_t characters;
    };
    struct Closing {
      uint32_t node;
      uint32_t characters;
    };
    std::vector<Inside> inside;
    std::vector<Closing> closing;
    std::vector<uint32_t> mask;  // of all `inside`
  };
  const StringTokens& string_tokens(grammar::StringKind kind) const {
    return string_tokens_[static_cast<size_t>(kind)];
  }

 private:
  void build_nodes();
  StringTokens match_strings(grammar::StringKind kind) const;

  std::string text_;              // of all tokens
  std::vector<uint32_t> starts_;  // by token, in text_
  std::vector<Token> ends_;
  uint32_t longest_ = 0;
  std::vector<uint8_t> bytes_;  // by node
  std::vector<uint32_t> depths_, ends_of_, first_token_;
  std::vector<Token> tokens_;  // in the order of their nodes
  std::array<StringTokens, grammar::kStringKinds> string_tokens_;
};

}  // namespace ridge
