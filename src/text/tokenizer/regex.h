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

#include "base/work_limit.h"

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
  // UTF-8. Throws Error where one match takes more than kMaxMatchSteps and 16 steps for each byte
  // (steps as PCRE2 counts them), or 256 MiB. Each match spends a step of `work`, which is how
  // often its clock is looked at: how long all matches take together depends on the pattern.
  static constexpr uint32_t kMaxMatchSteps = 1u << 24;
  void matches(std::string_view text, bool valid, std::vector<Match>& found, WorkLimit& work) const;

  // The same for a text that is UTF-8, in batches: up to `most` matches from `from` on. Returns
  // where the next batch begins; npos after the last.
  size_t some_matches(std::string_view text, size_t from, size_t most, std::vector<Match>& found,
                      WorkLimit& work) const;

 private:
  struct Code;
  explicit Regex(std::shared_ptr<const Code> code) : code_(std::move(code)) {}
  std::shared_ptr<const Code> code_;
};

// The pattern in PCRE2's syntax; throws Error for what has none.
std::string pcre_from_onig(std::string_view pattern, const std::string& where);

}  // namespace ridge
