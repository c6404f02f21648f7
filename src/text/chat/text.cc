#include "text/chat/text.h"

#include <clocale>
#include <cwctype>
#include <utility>

#include "base/error.h"

namespace ridge::jinja {
namespace {

bool is_letter_ascii(char32_t code) {
  return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z');
}

// glibc's tables of Unicode, whatever the process's own locale is. Null: ASCII only.
locale_t unicode_locale() {
  static const locale_t locale = newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

char32_t upper_code(char32_t code) {
  if (code < 0x80 || !unicode_locale()) return code >= 'a' && code <= 'z' ? code - 32 : code;
  return static_cast<char32_t>(towupper_l(static_cast<wint_t>(code), unicode_locale()));
}

char32_t lower_code(char32_t code) {
  if (code < 0x80 || !unicode_locale()) return code >= 'A' && code <= 'Z' ? code + 32 : code;
  return static_cast<char32_t>(towlower_l(static_cast<wint_t>(code), unicode_locale()));
}

bool is_letter(char32_t code) {
  if (code < 0x80 || !unicode_locale()) return is_letter_ascii(code);
  return iswalpha_l(static_cast<wint_t>(code), unicode_locale()) != 0;
}

enum class Case { lower, upper };

// `wanted(code)` says the case of each character, in order.
template <typename Wanted>
Text with_cases(const Text& text, Wanted wanted) {
  Text result;
  for (size_t at = 0; at < text.size();) {
    const Character character = character_at(text.bytes(), at);
    const Case choice = wanted(character.code);
    const char32_t code =
        choice == Case::upper ? upper_code(character.code) : lower_code(character.code);
    if (code == character.code) {
      result.append(text, at, at + character.size);
    } else {
      result.append(to_utf8(code), text.origin(at));
    }
    at += character.size;
  }
  return result;
}

void add_part(std::vector<Text>& parts, Text part) {
  check_items(parts.size() + 1);
  parts.push_back(std::move(part));
}

bool is_line_end(char32_t code) {
  return (code >= 0x0A && code <= 0x0D) || (code >= 0x1C && code <= 0x1E) || code == 0x85 ||
         code == 0x2028 || code == 0x2029;
}

}  // namespace

void check_items(size_t count) {
  if (count > kMaxItems) throw Error("a list of more than {} values", kMaxItems);
}

void Text::refuse_growth() { throw Error("a text would grow beyond {} MiB", kMaxText >> 20); }

Character character_at(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {first, 1};
  const size_t size = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || at + size > text.size()) return {0xFFFD, 1};
  char32_t code = first & (0xFFu >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return {0xFFFD, 1};
    code = code << 6 | (byte(i) & 0x3Fu);
  }
  return {code, size};
}

std::string to_utf8(char32_t code) {
  const auto low = [&](int shift) { return static_cast<char>(0x80 | (code >> shift & 0x3F)); };
  if (code < 0x80) return {static_cast<char>(code)};
  if (code < 0x800) return {static_cast<char>(0xC0 | code >> 6), low(0)};
  if (code < 0x10000) return {static_cast<char>(0xE0 | code >> 12), low(6), low(0)};
  return {static_cast<char>(0xF0 | (code >> 18 & 7)), low(12), low(6), low(0)};
}

bool is_space(char32_t code) {
  return code == ' ' || (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x1F) ||
         code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

std::vector<size_t> character_starts(const Text& text) {
  std::vector<size_t> starts;
  starts.reserve(text.size() + 1);
  for (size_t at = 0; at < text.size(); at += character_at(text.bytes(), at).size) {
    starts.push_back(at);
  }
  starts.push_back(text.size());
  return starts;
}

size_t character_count(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += character_at(text, at).size) ++count;
  return count;
}

Text strip(const Text& text, bool left, bool right, const Text* characters) {
  const auto removed = [&](char32_t code) {
    if (!characters) return is_space(code);
    for (size_t at = 0; at < characters->size();) {
      const Character one = character_at(characters->bytes(), at);
      if (one.code == code) return true;
      at += one.size;
    }
    return false;
  };
  size_t begin = 0, end = text.size();
  while (left && begin < end) {
    const Character character = character_at(text.bytes(), begin);
    if (!removed(character.code)) break;
    begin += character.size;
  }
  while (right && end > begin) {
    size_t start = end - 1;
    const auto continues = [&] {
      return (static_cast<unsigned char>(text.bytes()[start]) >> 6) == 2;
    };
    while (start > begin && end - start < 4 && continues()) --start;
    Character character = character_at(text.bytes(), start);
    if (start + character.size != end) {  // not UTF-8: the last byte stands for itself
      start = end - 1;
      character = {0xFFFD, 1};
    }
    if (!removed(character.code)) break;
    end = start;
  }
  return text.slice(begin, end);
}

Text replace(const Text& text, std::string_view from, const Text& to, int64_t most) {
  Text result;
  size_t at = 0;
  if (from.empty()) {  // before every character and at the end
    for (size_t begin : character_starts(text)) {
      result.append(text, at, begin);
      if (most-- > 0) result.append(to);
      at = begin;
    }
    return result;
  }
  for (; most > 0; --most) {
    const size_t found = text.bytes().find(from, at);
    if (found == std::string::npos) break;
    result.append(text, at, found);
    result.append(to);
    at = found + from.size();
  }
  result.append(text, at, text.size());
  return result;
}

std::vector<Text> split(const Text& text, std::string_view separator, int64_t most) {
  std::vector<Text> parts;
  size_t at = 0;
  for (; most > 0; --most) {
    const size_t found = text.bytes().find(separator, at);
    if (found == std::string::npos) break;
    add_part(parts, text.slice(at, found));
    at = found + separator.size();
  }
  add_part(parts, text.slice(at, text.size()));
  return parts;
}

std::vector<Text> split_spaces(const Text& text, int64_t most) {
  std::vector<Text> parts;
  const auto end_of = [&](size_t at, bool spaces) {
    while (at < text.size()) {
      const Character character = character_at(text.bytes(), at);
      if (is_space(character.code) != spaces) break;
      at += character.size;
    }
    return at;
  };
  size_t at = end_of(0, true);
  for (; at < text.size() && most > 0; --most) {
    const size_t end = end_of(at, false);
    add_part(parts, text.slice(at, end));
    at = end_of(end, true);
  }
  if (at < text.size()) add_part(parts, text.slice(at, text.size()));
  return parts;
}

std::vector<Text> split_from_right(const Text& text, std::string_view separator, int64_t most) {
  std::vector<Text> parts;
  size_t end = text.size();
  for (; most > 0 && end >= separator.size(); --most) {
    const size_t found = text.bytes().rfind(separator, end - separator.size());
    if (found == std::string::npos) break;
    add_part(parts, text.slice(found + separator.size(), end));
    end = found;
  }
  add_part(parts, text.slice(0, end));
  return {parts.rbegin(), parts.rend()};
}

std::vector<Text> split_lines(const Text& text) {
  std::vector<Text> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Character character = character_at(text.bytes(), at);
    size_t next = at + character.size;
    if (is_line_end(character.code)) {
      add_part(lines, text.slice(begin, at));
      if (character.code == '\r' && next < text.size() && text.bytes()[next] == '\n') ++next;
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) add_part(lines, text.slice(begin, text.size()));
  return lines;
}

Text upper(const Text& text) {
  return with_cases(text, [](char32_t) { return Case::upper; });
}

Text lower(const Text& text) {
  return with_cases(text, [](char32_t) { return Case::lower; });
}

Text capitalize(const Text& text) {
  return with_cases(text, [first = true](char32_t) mutable {
    const Case result = first ? Case::upper : Case::lower;
    first = false;
    return result;
  });
}

Text title_words(const Text& text) {
  return with_cases(text, [inside = false](char32_t code) mutable {
    const Case result = inside ? Case::lower : Case::upper;
    inside = is_letter(code);
    return result;
  });
}

Text title_spaced(const Text& text) {
  return with_cases(text, [first = true](char32_t code) mutable {
    const bool separates =
        is_space(code) || (code < 0x80 && std::string_view("-({[<").find(static_cast<char>(code)) !=
                                              std::string_view::npos);
    const Case result = first ? Case::upper : Case::lower;
    first = separates;
    return result;
  });
}

}  // namespace ridge::jinja
