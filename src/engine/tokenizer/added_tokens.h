// Tokens that are looked for in the text before it is normalised and cut: special ones and those
// that a vocabulary's users added.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/tokenizer/tokenizer.h"

namespace ridge {

struct AddedToken {
  std::string text;
  Token id = 0;
  bool special = false;                          // only where the text may hold special tokens
  bool single_word = false;                      // only between non-words
  bool left_strip = false, right_strip = false;  // takes the white space beside it
};

struct TextSegment {
  std::string_view text;
  Token id = -1;  // -1: text
};

class AddedTokens {
 public:
  void add(AddedToken token);
  void index();  // once all are added
  bool empty() const { return tokens_.empty(); }

  // `text` as tokens and what lies between them; at each place the longest token. `special` are the
  // ranges of `text`, in order, in which special tokens count.
  struct Range {
    size_t begin, end;
  };
  std::vector<TextSegment> split(std::string_view text, std::span<const Range> special) const;

 private:
  const AddedToken* longest(std::string_view text, size_t at, std::span<const Range> special) const;
  std::vector<AddedToken> tokens_;  // sorted by text
  std::vector<bool> starts_;        // by the first two bytes
};

}  // namespace ridge
