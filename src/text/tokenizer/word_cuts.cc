#include "text/tokenizer/word_model.h"

namespace ridge {
namespace {

bool space_starts(std::string_view text, size_t at) {
  return text.substr(at).starts_with(kSpaceMark) && !text.substr(0, at).ends_with(kSpaceMark);
}

bool newline_borders(std::string_view text, size_t at) {
  return (text[at] == '\n') != (text[at - 1] == '\n');
}

}  // namespace

size_t WordCuts::first(std::string_view word) const {
  if (!spaces && !newlines) return word.size();
  for (size_t at = 1; at < word.size(); ++at) {
    if (newlines && newline_borders(word, at)) return at;
    if (spaces && word[at] == kSpaceMark[0] && space_starts(word, at)) return at;
  }
  return word.size();
}

void CutFinder::add(std::string_view made) {
  for (size_t at = 1; at < made.size(); ++at) {
    if (newline_borders(made, at)) cuts_.newlines = false;
    if (space_starts(made, at)) cuts_.spaces = false;
  }
}

}  // namespace ridge
