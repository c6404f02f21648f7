// A word to tokens: the part of a tokenizer in which its kinds differ.
//
// Bounds: merging looks at each pair of neighbours when they meet, at most three times for each
// byte of the word; a unigram model follows the pieces that begin at each character. Both spend a
// step of a WorkLimit for each look, and one for kComparedPerStep bytes that are looked up.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/vocabulary.h"

namespace ridge {

inline constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // ▁, SentencePiece's space

inline constexpr size_t kComparedPerStep = 32;

struct WordCuts {
  bool spaces = false;    // before a space mark that follows another character
  bool newlines = false;  // between a newline and another character
  // The length of the first part of `word`.
  size_t first(std::string_view word) const;
};
// Which of them the pieces allow; `made` are the texts that merging can make.
class CutFinder {
 public:
  void add(std::string_view made);
  WordCuts cuts() const { return cuts_; }

 private:
  WordCuts cuts_{true, true};
};

class WordModel {
 public:
  virtual ~WordModel() = default;
  // Appends the tokens of `word`. `as_bytes`: the word is bytes, the vocabulary is written in
  // GPT-2's alphabet; otherwise both are text.
  virtual void encode(std::string_view word, bool as_bytes, std::vector<Token>& out,
                      WorkLimit& work) const = 0;
  // Whether `encode` may be given bytes.
  virtual bool takes_bytes() const { return false; }
  // Where a word may be cut without changing its tokens, because no piece spans such a place. Whole
  // texts without a pre-tokeniser become short words, which the cache knows.
  virtual WordCuts cuts() const { return {}; }
};

// Byte-pair encoding by a list of merges, earliest first. Hugging Face's BPE.
struct BpeRules {
  std::vector<std::pair<Token, Token>> merges;
  std::vector<Token> merged;              // what each makes
  std::optional<Token> unknown;           // for characters without a piece; none: left out
  bool fuse_unknown = false;              // neighbours become one
  bool byte_fallback = false;             // "<0x0A>" for the bytes of such characters
  bool whole_words = false;               // a word that is a piece is that piece (ignore_merges)
  std::string inner_prefix, last_suffix;  // "##", "</w>"
};
std::unique_ptr<WordModel> make_bpe(const Vocabulary& vocabulary, BpeRules rules);

// SentencePiece's BPE: of all neighbours that make a piece the best score is merged first.
std::unique_ptr<WordModel> make_scored_bpe(const Vocabulary& vocabulary,
                                           std::optional<Token> unknown);

// The most probable pieces (Viterbi); scores are log probabilities.
struct UnigramRules {
  std::optional<Token> unknown;
  bool byte_fallback = false;
  bool user_defined_free = false;  // SentencePiece scores them 0
};
std::unique_ptr<WordModel> make_unigram(const Vocabulary& vocabulary, UnigramRules rules);

}  // namespace ridge
