// Tokens that are looked for in the text before it is normalised and cut: special ones and those
// that a vocabulary's users added.
//
// Bounds: a token has at most kMaxAddedToken bytes. The longest token at a place is found by
// narrowing the sorted tokens: kNarrowSteps of a WorkLimit for each place at which tokens part, and
// a step for 64 bytes that they have in common.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/work_limit.h"
#include "text/tokenizer/tokenizer.h"

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

// The longest that are known are 33 bytes (DeepSeek's place holders) and runs of 31 spaces.
inline constexpr size_t kMaxAddedToken = 1 << 10;

class AddedTokens {
 public:
  void add(AddedToken token);  // throws Error where it is too long
  void index();                // once all are added
  bool empty() const { return tokens_.empty(); }

  // `text` as tokens and what lies between them; at each place the longest token. `special` are the
  // ranges of `text`, in order, in which special tokens count.
  struct Range {
    size_t begin, end;
  };
  std::vector<TextSegment> split(std::string_view text, std::span<const Range> special,
                                 WorkLimit& work) const;

 private:
  static constexpr uint64_t kNarrowSteps = 16;
  const AddedToken* longest(std::string_view text, size_t at, std::span<const Range> special,
                            WorkLimit& work) const;
  std::vector<AddedToken> tokens_;  // sorted by text
  std::vector<bool> starts_;        // by the first two bytes
};

}  // namespace ridge
