#include "text/chat/lexer.h"

#include <algorithm>

#include "base/error.h"
#include "text/chat/text.h"

namespace ridge::jinja {
namespace {

// Line ends as \n; one at the very end is dropped.
std::string with_plain_lines(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool starts_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(with_plain_lines(source)) {}

  std::vector<LexToken> run() {
    while (at_ < source_.size()) read_outside();
    add(LexKind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& message) const {
    throw Error("line {}: {}", line_, message);
  }
  void add(LexKind kind, std::string value) { tokens_.push_back({kind, std::move(value), line_}); }
  bool looking_at(std::string_view text) const {
    return std::string_view(source_).substr(at_).starts_with(text);
  }
  void advance(size_t count) {
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<long>(at_),
                                         source_.begin() + static_cast<long>(at_ + count), '\n'));
    at_ += count;
  }
  void skip_spaces() {
    while (at_ < source_.size()) {
      const Character character = character_at(source_, at_);
      if (!is_space(character.code)) return;
      advance(character.size);
    }
  }

  // Text up to the next tag, then the tag.
  void read_outside() {
    size_t open = at_;
    const auto opens = [&](size_t at) {
      return source_[at] == '{' && at + 1 < source_.size() &&
             std::string_view("{%#").find(source_[at + 1]) != std::string_view::npos;
    };
    while (open < source_.size() && !opens(open)) ++open;
    if (open == source_.size()) {
      add(LexKind::text, source_.substr(at_));
      return advance(source_.size() - at_);
    }
    const char kind = source_[open + 1];
    const char sign = open + 2 < source_.size() ? source_[open + 2] : ' ';
    add_text(source_.substr(at_, open - at_), kind, sign);
    advance(open - at_);
    const int line = line_;
    advance(sign == '-' || sign == '+' ? 3 : 2);
    if (kind == '#') return skip_comment();
    tokens_.push_back({kind == '{' ? LexKind::print_begin : LexKind::block_begin, "", line});
    read_inside(kind == '{');
  }

  void add_text(std::string text, char kind, char sign) {
    if (sign == '-') {
      text = strip(Text(text, Origin::of_template), false, true, nullptr).bytes();
    } else if (sign != '+' && kind != '{') {
      const size_t line = text.rfind('\n') + 1;  // 0 where there is none
      const auto is_blank = [](char c) { return is_space(static_cast<unsigned char>(c)); };
      if ((line > 0 || line_starts_) &&
          std::all_of(text.begin() + static_cast<long>(line), text.end(), is_blank)) {
        text.resize(line);
      }
    }
    if (!text.empty()) add(LexKind::text, std::move(text));
  }

  // What follows the end of a tag that was closed with `sign`.
  void finish_tag(char sign, bool trims_line) {
    const size_t before = at_;
    if (sign == '-') {
      skip_spaces();
    } else if (sign != '+' && trims_line && looking_at("\n")) {
      advance(1);
    }
    line_starts_ = at_ > before && source_[at_ - 1] == '\n';
  }

  void skip_comment() {
    const size_t close = source_.find("#}", at_);
    if (close == std::string::npos) fail("a comment has no end");
    const char sign = close > at_ ? source_[close - 1] : ' ';
    advance(close + 2 - at_);
    finish_tag(sign, true);
  }

  void read_inside(bool print) {
    const std::string_view close = print ? "}}" : "%}";
    std::string open_brackets;
    while (true) {
      skip_spaces();
      if (at_ == source_.size()) fail("a tag has no end");
      if (open_brackets.empty()) {
        const char sign = source_[at_];
        const bool has_sign = sign == '-' || (sign == '+' && !print);
        if (std::string_view(source_).substr(at_ + (has_sign ? 1 : 0)).starts_with(close)) {
          add(print ? LexKind::print_end : LexKind::block_end, "");
          advance(close.size() + (has_sign ? 1 : 0));
          return finish_tag(has_sign ? sign : ' ', !print);
        }
      }
      read_token(open_brackets);
    }
  }

  void read_token(std::string& open_brackets) {
    const char c = source_[at_];
    if (starts_name(c)) {
      size_t end = at_;
      while (end < source_.size() && (starts_name(source_[end]) || is_digit(source_[end]))) ++end;
      add(LexKind::name, source_.substr(at_, end - at_));
      return advance(end - at_);
    }
    if (is_digit(c)) return read_number();
    if (c == '\'' || c == '"') return read_string(c);
    static constexpr std::string_view kPairs[] = {"//", "**", "==", "!=", ">=", "<="};
    std::string symbol(1, c);
    for (std::string_view pair : kPairs) {
      if (looking_at(pair)) symbol = pair;
    }
    if (symbol.size() == 1 &&
        std::string_view("+-/*%~[](){}<>=.:|,").find(c) == std::string_view::npos) {
      fail(fmt::format("unexpected character '{}'", c));
    }
    if (c == '(' || c == '[' || c == '{') open_brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
    if (c == ')' || c == ']' || c == '}') {
      if (open_brackets.empty() || open_brackets.back() != c) {
        fail(fmt::format("unexpected '{}'", c));
      }
      open_brackets.pop_back();
    }
    add(LexKind::symbol, symbol);
    advance(symbol.size());
  }

  void read_number() {
    std::string digits;
    bool real = false;
    const auto take_digits = [&] {
      for (; at_ < source_.size() && (is_digit(source_[at_]) || source_[at_] == '_'); ++at_) {
        if (source_[at_] != '_') digits += source_[at_];
      }
    };
    take_digits();
    const auto digit_at = [&](size_t at) { return at < source_.size() && is_digit(source_[at]); };
    if (looking_at(".") && digit_at(at_ + 1)) {
      real = true;
      digits += source_[at_++];
      take_digits();
    }
    if (looking_at("e") || looking_at("E")) {
      const char sign = at_ + 1 < source_.size() ? source_[at_ + 1] : ' ';
      const size_t skip = sign == '+' || sign == '-' ? 2 : 1;
      if (digit_at(at_ + skip)) {
        real = true;
        digits += source_.substr(at_, skip);
        at_ += skip;
        take_digits();
      }
    }
    add(real ? LexKind::real : LexKind::integer, digits);
  }

  void read_string(char quote) {
    std::string value;
    size_t at = at_ + 1;
    for (; at < source_.size() && source_[at] != quote; ++at) {
      if (source_[at] != '\\' || at + 1 == source_.size()) {
        value += source_[at];
      } else {
        at = read_escape(at + 1, value);
      }
    }
    if (at >= source_.size()) fail("a string has no end");
    add(LexKind::string, std::move(value));
    advance(at + 1 - at_);
  }

  // Python's escapes. `at` is the character after the backslash; returns the escape's last one.
  size_t read_escape(size_t at, std::string& value) const {
    static constexpr std::string_view kNames = "abfnrtv0\\'\"";
    static constexpr std::string_view kValues("\a\b\f\n\r\t\v\0\\'\"", kNames.size());
    const char c = source_[at];
    const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (digits > 0) {
      char32_t code = 0;
      for (size_t i = 1; i <= digits; ++i) {
        const char digit = at + i < source_.size() ? source_[at + i] : ' ';
        const size_t place =
            std::string_view("0123456789abcdef").find(static_cast<char>(digit | 0x20));
        if (place == std::string_view::npos || (place < 10 && !is_digit(digit))) {
          fail("a string has a broken escape");
        }
        code = code << 4 | static_cast<char32_t>(place);
      }
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
        fail("a string has an escape that is no character");
      }
      value += to_utf8(code);
      return at + digits;
    }
    if (c == '\n') return at;  // a line that goes on
    if (const size_t known = kNames.find(c); known != std::string_view::npos) {
      value += kValues[known];
    } else {
      value += {'\\', c};
    }
    return at;
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starts_ = true;  // the last tag's end took a line end with it, or nothing came before
  std::vector<LexToken> tokens_;
};

}  // namespace

std::vector<LexToken> lex(std::string_view source) { return Lexer(source).run(); }

}  // namespace ridge::jinja
