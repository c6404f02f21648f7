// Patterns as tokenizer files write them, matched by PCRE2.
//
// Hugging Face runs them with Oniguruma in Ruby's syntax; they are rewritten where the two differ:
// \s is Unicode's White_Space, \w letters, marks, decimal digits and connectors, \h a hexadecimal
// digit, ^ and $ stand at every line, classes nest ([a[bc]]) and intersect ([\w&&[^\d]]).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

struct Match {
  size_t begin = 0, end = 0;
};

class Regex {
 public:
  // Throws Error "WHERE: pattern ...: why".
  static Regex pattern(std::string_view pattern, const std::string& where);
  static Regex literal(std::string_view text, const std::string& where);

  // Every match from left to right, none overlapping; a match may be empty. Bytes that are not
  // UTF-8 match nothing and end whatever stands before them. `valid`: the text is known to be
  // UTF-8. Throws Error where the pattern takes too many steps on this text.
  void matches(std::string_view text, bool valid, std::vector<Match>& found) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  void matches_valid(std::string_view text, size_t offset, std::vector<Match>& found) const;
  std::shared_ptr<const Code> code_;
};

// The pattern in PCRE2's syntax; throws Error for what has none.
std::string pcre_from_onig(std::string_view pattern, const std::string& where);

}  // namespace ridge
