// A chat template's text as tokens, with white space removed as Jinja does with trim_blocks and
// lstrip_blocks set: the line end after a block tag and the spaces before one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ridge::jinja {

enum class LexKind {
  text,
  print_begin,  // {{
  print_end,    // }}
  block_begin,  // {%
  block_end,    // %}
  name,
  string,  // the value, escapes undone
  integer,
  real,
  symbol,  // operators and brackets
  end,
};

struct LexToken {
  LexKind kind;
  std::string value;
  int line;
};

// The last token is `end`. Throws Error with the line.
std::vector<LexToken> lex(std::string_view source);

}  // namespace ridge::jinja
