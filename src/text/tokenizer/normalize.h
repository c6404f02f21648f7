// What is done to a text before it is cut into words: tokenizer.json's "normalizer".
//
// Bounds: no step makes a text longer than the caller allows, and each spends a step of a WorkLimit
// for kCopiedPerStep bytes that it reads or writes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/work_limit.h"

namespace ridge {

class Normalizer {
 public:
  struct Room {
    size_t bytes;  // that the result may have
    WorkLimit& work;
  };
  using Step = std::function<std::string(std::string_view, const Room&)>;

  void add(Step step) { steps_.push_back(std::move(step)); }
  bool empty() const { return steps_.empty(); }
  std::string apply(std::string_view text, const Room& room) const;

 private:
  std::vector<Step> steps_;
};

inline constexpr size_t kCopiedPerStep = 16;

// Throws Error where a text has more than `most` bytes.
void check_growth(size_t bytes, size_t most);

// Steps that more than one reader needs.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to,
                        size_t most = std::string::npos);
Normalizer::Step prepend_step(std::string prefix);  // to anything but the empty text
Normalizer::Step replace_step(std::string from, std::string to);
Normalizer::Step replace_pattern_step(const std::string& pattern, std::string to,
                                      const std::string& where);
Normalizer::Step strip_step(bool left, bool right);  // Unicode white space

// SentencePiece's compiled character map: a double array of prefixes and what replaces them. Two
// ways to apply it: `longest` takes the longest prefix at each place (SentencePiece, GGUF);
// otherwise grapheme by grapheme, then character by character (Hugging Face).
Normalizer::Step character_map_step(std::string map, bool longest, const std::string& where);

}  // namespace ridge
