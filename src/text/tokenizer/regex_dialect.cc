// Oniguruma's patterns, as Ruby writes them, in PCRE2's syntax.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/regex.h"

namespace ridge {
namespace {

constexpr const char* kSpace = "\\p{White_Space}";
constexpr const char* kWord = "\\p{L}\\p{M}\\p{Nd}\\p{Pc}";

constexpr std::pair<std::string_view, const char*> kCategories[] = {
    {"Letter", "L"}, {"Mark", "M"},      {"Number", "N"}, {"Punctuation", "P"}, {"Punct", "P"},
    {"Symbol", "S"}, {"Separator", "Z"}, {"Other", "C"},  {"Digit", "Nd"}};

constexpr std::string_view kScripts[] = {
    "Arabic",    "Armenian", "Bengali",  "Bopomofo", "Cyrillic", "Devanagari", "Ethiopic",
    "Georgian",  "Greek",    "Gujarati", "Gurmukhi", "Han",      "Hangul",     "Hebrew",
    "Hiragana",  "Kannada",  "Katakana", "Khmer",    "Lao",      "Latin",      "Malayalam",
    "Mongolian", "Myanmar",  "Oriya",    "Sinhala",  "Tamil",    "Telugu",     "Thai",
    "Tibetan",   "Common",   "Inherited"};

class Rewriter {
 public:
  Rewriter(std::string_view pattern, const std::string& where) : in_(pattern), where_(where) {}

  std::string all() {
    std::string out;
    while (at_ < in_.size()) {
      if (in_[at_] == '[') {
        out += char_class(0);
      } else if (in_[at_] == '\\') {
        out += escape(false);
      } else {
        out += in_[at_++];
      }
    }
    return out;
  }

 private:
  [[noreturn]] void refuse(const char* why) const {
    throw Error("{}: pattern '{}' is not understood: {}", where_, in_.substr(0, 100), why);
  }

  std::string escape(bool in_class) {
    if (at_ + 1 >= in_.size()) refuse("ends in a backslash");
    const char kind = in_[at_ + 1];
    at_ += 2;
    const auto group = [&](std::string members, bool negated) {
      if (in_class && negated) refuse("\\W inside a class");
      if (in_class) return members;
      return (negated ? "[^" : "[") + members + "]";
    };
    switch (kind) {
      case 's':
        return kSpace;
      case 'S':
        return "\\P{White_Space}";
      case 'w':
        return group(kWord, false);
      case 'W':
        return group(kWord, true);
      case 'h':
        return group("0-9a-fA-F", false);
      case 'H':
        return group("0-9a-fA-F", true);
      case 'p':
      case 'P':
        return property(kind);
      case 'u':
        return four_digits();
      default:
        return {'\\', kind};
    }
  }

  // Oniguruma's scripts are the Script property, PCRE2's plain names its extensions: 。 is Han
  // there. Long names of categories are only Oniguruma's.
  std::string property(char kind) {
    const std::string_view rest = in_.substr(at_);
    const size_t end = rest.starts_with('{') ? rest.find('}') : rest.npos;
    if (end == rest.npos) return {'\\', kind};
    const bool negated = rest.starts_with("{^");
    const std::string_view name = rest.substr(negated ? 2 : 1, end - (negated ? 2 : 1));
    at_ += end + 1;
    std::string out = {'\\', kind, '{'};
    if (negated) out += '^';
    for (const auto& [from, to] : kCategories) {
      if (name == from) return out + to + "}";
    }
    const bool script =
        std::find(std::begin(kScripts), std::end(kScripts), name) != std::end(kScripts);
    return out + (script ? "sc:" : "") + std::string(name) + "}";
  }

  std::string four_digits() {  // \uHHHH
    if (in_.size() - at_ < 4) refuse("\\u needs four digits");
    std::string out = "\\x{" + std::string(in_.substr(at_, 4)) + "}";
    at_ += 4;
    return out;
  }

  // The members of a class up to its closing bracket, nested ones among them; what follows && goes
  // to `required`, as look-aheads that a character must pass besides.
  std::string members(int depth, std::string& required) {
    if (depth > 8) refuse("classes nested too deep");
    std::string out;
    bool first = true;
    while (at_ < in_.size()) {
      const std::string_view rest = in_.substr(at_);
      if (rest[0] == ']' && !first) {
        ++at_;
        return out;
      }
      if (rest.starts_with("[:")) {
        const size_t end = rest.find(":]");
        if (end == rest.npos) refuse("[: without :]");
        out += rest.substr(0, end + 2);
        at_ += end + 2;
      } else if (rest[0] == '[') {
        nested(depth, out, required);
      } else if (rest.starts_with("&&")) {
        at_ += 2;
        std::string more;
        const std::string other = members(depth + 1, more);  // takes the closing bracket
        required += more;
        if (!other.empty()) required += "(?=[" + other + "])";
        return out;
      } else if (rest[0] == '\\') {
        out += escape(true);
      } else {
        out += rest[0] == ']' ? "\\]" : std::string(1, rest[0]);
        ++at_;
      }
      first = false;
    }
    refuse("a class without its end");
  }

  void nested(int depth, std::string& out, std::string& required) {
    ++at_;
    const bool negated = at_ < in_.size() && in_[at_] == '^';
    at_ += negated;
    std::string inner_required;
    const std::string inner = members(depth + 1, inner_required);
    if (!inner_required.empty()) refuse("&& inside a nested class");
    if (!negated) {
      out += inner;
    } else if (out.empty() && depth > 0) {
      required += "(?![" + inner + "])";  // "&&[^...]"
    } else {
      refuse("a negated class inside another");
    }
  }

  std::string char_class(int depth) {
    ++at_;
    const bool negated = at_ < in_.size() && in_[at_] == '^';
    at_ += negated;
    std::string required;
    const std::string inner = members(depth, required);
    if (required.empty()) return (negated ? "[^" : "[") + inner + "]";
    if (negated) refuse("&& in a negated class");
    return "(?:" + required + "[" + inner + "])";
  }

  std::string_view in_;
  const std::string& where_;
  size_t at_ = 0;
};

}  // namespace

std::string pcre_from_onig(std::string_view pattern, const std::string& where) {
  return Rewriter(pattern, where).all();
}

}  // namespace ridge
