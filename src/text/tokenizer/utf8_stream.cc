#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/utf8.h"

namespace ridge {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

// Whether more bytes could make a character of `rest`, which is none yet.
bool may_continue(std::string_view rest) {
  static constexpr std::string_view kTails[] = {"\x80\x80\x80", "\xBF\x80\x80"};
  if (rest.size() >= 4) return false;
  for (std::string_view tail : kTails) {
    for (size_t length = 1; length <= tail.size(); ++length) {
      const std::string whole = std::string(rest) + std::string(tail.substr(0, length));
      if (utf8_length(whole, 0) == whole.size()) return true;
    }
  }
  return false;
}

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  pending_ += bytes;
  std::string out;
  size_t at = 0;
  while (at < pending_.size()) {
    const size_t end = utf8_valid_end(pending_, at);
    out += std::string_view(pending_).substr(at, end - at);
    at = end;
    if (at == pending_.size() || may_continue(std::string_view(pending_).substr(at))) break;
    // One for as much as could have begun a character (the Standard, section 3.9).
    out += kReplacement;
    size_t broken = 1;
    while (may_continue(std::string_view(pending_).substr(at, broken + 1)) &&
           at + broken < pending_.size()) {
      ++broken;
    }
    at += broken;
  }
  pending_.erase(0, at);
  return out;
}

std::string Utf8Stream::finish() {
  std::string out;
  if (!pending_.empty()) out = kReplacement;
  pending_.clear();
  return out;
}

}  // namespace ridge
