#include "text/tokenizer/unicode.h"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/tokenizer/utf8.h"

namespace ridge {
namespace {

#include "text/tokenizer/unicode_tables.inc"

using Characters = std::u32string;

// The Standard, section 3.12: syllables compose from a leading, a vowel and a trailing jamo.
constexpr char32_t kSyllables = 0xAC00, kLeading = 0x1100, kVowels = 0x1161, kTrailing = 0x11A7;
constexpr char32_t kLeadingCount = 19, kVowelCount = 21, kTrailingCount = 28;
constexpr char32_t kSyllableCount = kLeadingCount * kVowelCount * kTrailingCount;

struct Tables {
  std::unordered_map<char32_t, Characters> canonical;      // one step
  std::unordered_map<char32_t, Characters> compatibility;  // all steps
  std::unordered_map<uint64_t, char32_t> composed;         // first << 32 | second
  std::unordered_map<char32_t, uint8_t> classes;
  std::unordered_map<char32_t, char32_t> lower;
};

uint64_t pair_key(char32_t first, char32_t second) { return uint64_t{first} << 32 | second; }

// Entries "HEX REST " with distances between the code points; visit(code point, rest).
template <typename Visit>
void each_entry(const char* at, Visit visit) {
  char32_t character = 0;
  while (*at != '\0') {
    char* rest = nullptr;
    character += static_cast<char32_t>(std::strtoul(at, &rest, 16));
    visit(character, rest);
    while (*rest != ' ') ++rest;
    at = rest + 1;
  }
}

Characters read_list(const char* at) {
  Characters list;
  while (true) {
    char* end = nullptr;
    list += static_cast<char32_t>(std::strtoul(at, &end, 16));
    if (*end != ',') return list;
    at = end + 1;
  }
}

// "+COUNT=VALUE" or "*COUNT=VALUE": one or two apart.
template <typename Visit>
void each_of_run(char32_t first, const char* rest, Visit visit) {
  const char32_t stride = *rest == '*' ? 2 : 1;
  char* equals = nullptr;
  const auto count = static_cast<char32_t>(std::strtoul(rest + 1, &equals, 16));
  const long value = std::strtol(equals + 1, nullptr, 10);
  for (char32_t i = 0; i < count; ++i) visit(first + i * stride, value);
}

Tables read_tables() {
  Tables tables;
  each_entry(kCanonical, [&](char32_t c, const char* rest) {
    const bool composes = *rest == '=';
    Characters list = read_list(rest + (composes ? 1 : 2));
    if (composes && list.size() == 2) tables.composed[pair_key(list[0], list[1])] = c;
    tables.canonical[c] = std::move(list);
  });
  each_entry(kCompatibility,
             [&](char32_t c, const char* rest) { tables.compatibility[c] = read_list(rest + 1); });
  each_entry(kClasses, [&](char32_t c, const char* rest) {
    each_of_run(c, rest, [&](char32_t one, long value) { tables.classes[one] = uint8_t(value); });
  });
  each_entry(kLower, [&](char32_t c, const char* rest) {
    each_of_run(c, rest, [&](char32_t one, long value) {
      tables.lower[one] = static_cast<char32_t>(static_cast<long>(one) + value);
    });
  });
  return tables;
}

const Tables& tables() {
  static const Tables kTables = read_tables();
  return kTables;
}

uint8_t class_of(char32_t c) {
  if (c < 0x300) return 0;
  const auto found = tables().classes.find(c);
  return found == tables().classes.end() ? 0 : found->second;
}

void decompose(char32_t c, bool compatible, Characters& out) {
  if (c < 0xA0) {
    out += c;
  } else if (c >= kSyllables && c < kSyllables + kSyllableCount) {
    const char32_t index = c - kSyllables, tail = index % kTrailingCount;
    out += kLeading + index / (kVowelCount * kTrailingCount);
    out += kVowels + index / kTrailingCount % kVowelCount;
    if (tail > 0) out += kTrailing + tail;
  } else if (const auto all = tables().compatibility.find(c);
             compatible && all != tables().compatibility.end()) {
    out += all->second;
  } else if (const auto step = tables().canonical.find(c); step != tables().canonical.end()) {
    for (char32_t part : step->second) decompose(part, compatible, out);
  } else {
    out += c;
  }
}

// Marks after a base in the order of their classes.
void order_marks(Characters& text) {
  for (size_t i = 0; i < text.size();) {
    if (class_of(text[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && class_of(text[end]) != 0) ++end;
    std::stable_sort(text.begin() + long(i), text.begin() + long(end),
                     [](char32_t a, char32_t b) { return class_of(a) < class_of(b); });
    i = end;
  }
}

char32_t compose_pair(char32_t first, char32_t second) {
  if (first >= kLeading && first < kLeading + kLeadingCount && second >= kVowels &&
      second < kVowels + kVowelCount) {
    return kSyllables + ((first - kLeading) * kVowelCount + second - kVowels) * kTrailingCount;
  }
  if (first >= kSyllables && first < kSyllables + kSyllableCount &&
      (first - kSyllables) % kTrailingCount == 0 && second > kTrailing &&
      second < kTrailing + kTrailingCount) {
    return first + second - kTrailing;
  }
  const auto found = tables().composed.find(pair_key(first, second));
  return found == tables().composed.end() ? 0 : found->second;
}

// A mark joins the last base unless one of its own or a higher class stands between.
void compose(Characters& text) {
  size_t base = std::string::npos, kept = 0;
  int last_class = -1;  // of what was kept since the base; -1: nothing
  for (char32_t c : text) {
    const int now = class_of(c);
    if (base != std::string::npos && last_class < now) {
      if (const char32_t joined = compose_pair(text[base], c); joined != 0) {
        text[base] = joined;
        continue;
      }
    }
    if (now == 0) {
      base = kept;
      last_class = -1;
    } else {
      last_class = now;
    }
    text[kept++] = c;
  }
  text.resize(kept);
}

// Below these no form changes anything, and nothing there joins what stands before it.
char32_t first_changed(NormalForm form) {
  if (form == NormalForm::nfc) return 0x300;
  return form == NormalForm::nfd ? 0xC0 : 0xA0;
}

void append_normal(std::string& out, std::string_view valid, NormalForm form) {
  const bool composed = form == NormalForm::nfc || form == NormalForm::nfkc;
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  Characters text;
  for (size_t at = 0; at < valid.size(); at += utf8_step(valid, at)) {
    decompose(utf8_read(valid, at), compatible, text);
  }
  order_marks(text);
  if (composed) compose(text);
  for (char32_t c : text) utf8_append(out, c);
}

bool needs_work(std::string_view valid, NormalForm form) {
  for (size_t at = 0; at < valid.size(); at += utf8_step(valid, at)) {
    if (utf8_read(valid, at) >= first_changed(form)) return true;
  }
  return false;
}

// Calls valid(stretch) for what is UTF-8 and copies the rest.
template <typename Valid>
std::string each_valid(std::string_view text, Valid valid) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t end = utf8_valid_end(text, at);
    if (end > at) {
      valid(out, text.substr(at, end - at));
      at = end;
    } else {
      out += text[at++];
    }
  }
  return out;
}

}  // namespace

std::string to_normal_form(std::string_view text, NormalForm form) {
  return each_valid(text, [&](std::string& out, std::string_view valid) {
    if (needs_work(valid, form)) {
      append_normal(out, valid, form);
    } else {
      out += valid;
    }
  });
}

std::string to_lower(std::string_view text) {
  return each_valid(text, [&](std::string& out, std::string_view valid) {
    for (size_t at = 0; at < valid.size(); at += utf8_step(valid, at)) {
      const char32_t c = utf8_read(valid, at);
      if (c == 0x130) {  // İ: the one character whose lower case is two
        out += "i\xCC\x87";
        continue;
      }
      const auto found = tables().lower.find(c);
      utf8_append(out, found == tables().lower.end() ? c : found->second);
    }
  });
}

}  // namespace ridge
