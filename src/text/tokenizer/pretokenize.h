// A text to words, in steps: tokenizer.json's "pre_tokenizer".
//
// Bounds: all words together have at most the bytes that the caller allows, and each step
// spends a step of a WorkLimit for each word and for kCopiedPerStep bytes that it writes.
#pragma once

#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizer/regex.h"

namespace ridge {

// What becomes of a match: dropped, a word of its own, joined to a neighbour, or joined to the
// matches beside it.
enum class SplitBehaviour { removed, isolated, merged_with_previous, merged_with_next, contiguous };

enum class PrefixSpace { never, first, always };  // first: only where the text itself starts

// Words of one text; they point into it or into `rewritten`.
struct Words {
  std::vector<std::string_view> words;
  bool valid = true;      // UTF-8 throughout
  bool as_bytes = false;  // the last step's mapping to GPT-2's alphabet was left to the model
  std::deque<std::string> rewritten;
};

class PreTokenizer {
 public:
  // `invert`: what does not match is the match.
  void split(Regex regex, SplitBehaviour behaviour, bool invert = false);
  // GPT-2's: optionally a space before each word that has none, then its pattern, then bytes as
  // characters.
  void byte_level(bool prefix_space, bool use_pattern, const std::string& where);
  // SentencePiece's: spaces become `mark`, one is put before where asked, and words start at it.
  void metaspace(std::string mark, PrefixSpace prefix, bool splits, const std::string& where);

  // `first`: this is where the text starts. `bytes_late`: leave a last byte-level mapping to the
  // model (Words::as_bytes). `most`: bytes of all words; throws Error beyond.
  void apply(std::string_view text, bool first, bool bytes_late, size_t most, Words& out,
             WorkLimit& work) const;

 private:
  enum class Kind { split, prefix_space, byte_characters, mark_spaces };
  struct Step {
    Kind kind;
    std::vector<Regex> regex;  // one for split
    SplitBehaviour behaviour = SplitBehaviour::isolated;
    bool invert = false;
    std::string mark;
    PrefixSpace prefix = PrefixSpace::never;
  };
  static void rewrite(const Step& step, bool first, size_t most, Words& out, WorkLimit& work);
  static void split_all(const Step& step, Words& out, WorkLimit& work);
  std::vector<Step> steps_;
};

// GPT-2's pattern: contractions, words, numbers, the rest, each with at most one space before it.
inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace ridge
