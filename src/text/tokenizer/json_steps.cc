#include "text/tokenizer/json_steps.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/unicode.h"

namespace ridge {
namespace {

using nlohmann::json;

// {"String": "..."} or {"Regex": "..."}
struct Pattern {
  std::string text;
  bool regex = false;
};

Pattern read_pattern(const json& object, const std::string& where) {
  const auto found = object.find("pattern");
  if (found == object.end()) throw Error("{}: pattern is missing", where);
  if (found->is_string()) return {found->get<std::string>(), false};
  const std::string inside = where + ": pattern";
  if (auto text = string_field(*found, "String", inside)) return {*text, false};
  if (auto text = string_field(*found, "Regex", inside)) return {*text, true};
  throw Error("{}: pattern must be a String or a Regex", where);
}

SplitBehaviour read_behaviour(const json& object, const std::string& where,
                              SplitBehaviour otherwise) {
  const auto name = string_field(object, "behavior", where);
  if (!name) return otherwise;
  if (*name == "Removed") return SplitBehaviour::removed;
  if (*name == "Isolated") return SplitBehaviour::isolated;
  if (*name == "MergedWithPrevious") return SplitBehaviour::merged_with_previous;
  if (*name == "MergedWithNext") return SplitBehaviour::merged_with_next;
  if (*name == "Contiguous") return SplitBehaviour::contiguous;
  throw Error("{}: behavior {} is not known", where, *name);
}

// Standard base 64, as the character map comes.
std::string from_base64(std::string_view text, const std::string& where) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int count = 0;
  while (text.ends_with('=')) text.remove_suffix(1);
  for (char c : text) {
    const size_t digit = kDigits.find(c);
    if (digit == kDigits.npos) throw Error("{}: not base 64", where);
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count >= 8) {
      count -= 8;
      out += static_cast<char>(bits >> count & 0xFF);
    }
  }
  return out;
}

Normalizer::Step form_step(NormalForm form) {
  return
      [form](std::string_view text, const Normalizer::Room&) { return to_normal_form(text, form); };
}

void read_replace(const json& value, const std::string& where, Normalizer& out) {
  const Pattern pattern = read_pattern(value, where);
  std::string content = json_text(value, "content", where);
  constexpr size_t kLongest = 256;
  if (content.size() > kLongest) throw Error("{}: content is too long", where);
  out.add(pattern.regex ? replace_pattern_step(pattern.text, std::move(content), where)
                        : replace_step(pattern.text, std::move(content)));
}

void read_metaspace(const json& value, const std::string& where, PreTokenizer& out) {
  const std::string mark = string_field(value, "replacement", where).value_or("\xE2\x96\x81");
  if (mark.empty() || mark.size() > 16) throw Error("{}: replacement must be a character", where);
  const bool legacy = bool_field(value, "add_prefix_space", where).value_or(true);
  const std::string scheme =
      string_field(value, "prepend_scheme", where).value_or(legacy ? "always" : "never");
  PrefixSpace prefix = PrefixSpace::always;
  if (scheme == "never") {
    prefix = PrefixSpace::never;
  } else if (scheme == "first") {
    prefix = PrefixSpace::first;
  } else if (scheme != "always") {
    throw Error("{}: prepend_scheme {} is not known", where, scheme);
  }
  out.metaspace(mark, prefix, bool_field(value, "split", where).value_or(true), where);
}

void read_split(const json& value, const std::string& where, PreTokenizer& out) {
  const Pattern pattern = read_pattern(value, where);
  if (pattern.text.empty()) return;
  out.split(
      pattern.regex ? Regex::pattern(pattern.text, where) : Regex::literal(pattern.text, where),
      read_behaviour(value, where, SplitBehaviour::isolated),
      bool_field(value, "invert", where).value_or(false));
}

constexpr int kMaxSteps = 64;

void read_pre_tokenizer(const json& value, const std::string& where, PreTokenizer& out,
                        int& steps) {
  if (++steps > kMaxSteps) throw Error("{}: more than {} steps", where, kMaxSteps);
  const std::string type = json_text(value, "type", where);
  const std::string inside = where + " " + type;
  using enum SplitBehaviour;
  if (type == "Sequence") {
    for (const json& one : json_list(value, "pretokenizers", inside)) {
      read_pre_tokenizer(one, where, out, steps);
    }
  } else if (type == "Split") {
    read_split(value, inside, out);
  } else if (type == "ByteLevel") {
    out.byte_level(bool_field(value, "add_prefix_space", inside).value_or(true),
                   bool_field(value, "use_regex", inside).value_or(true), inside);
  } else if (type == "Digits") {
    const bool single = bool_field(value, "individual_digits", inside).value_or(false);
    out.split(Regex::pattern("\\p{N}", inside), single ? isolated : contiguous);
  } else if (type == "Punctuation") {
    out.split(Regex::pattern("[\\p{P}!-/:-@\\[-`{-~]", inside),
              read_behaviour(value, inside, isolated));
  } else if (type == "Whitespace") {
    out.split(Regex::pattern("\\w+|[^\\w\\s]+", inside), removed, true);
  } else if (type == "WhitespaceSplit") {
    out.split(Regex::pattern("\\s", inside), removed);
  } else if (type == "CharDelimiterSplit") {
    out.split(Regex::literal(json_text(value, "delimiter", inside), inside), removed);
  } else if (type == "BertPreTokenizer") {
    out.split(Regex::pattern("\\s", inside), removed);
    out.split(Regex::pattern("[\\p{P}!-/:-@\\[-`{-~]", inside), isolated);
  } else if (type == "Metaspace") {
    read_metaspace(value, inside, out);
  } else {
    throw Error("{}: pre-tokenizer {} is not supported", where, type);
  }
}

void read_normalizer(const json& value, const std::string& where, Normalizer& out, int& steps) {
  if (++steps > kMaxSteps) throw Error("{}: more than {} steps", where, kMaxSteps);
  const std::string type = json_text(value, "type", where);
  const std::string inside = where + " " + type;
  if (type == "Sequence") {
    for (const json& one : json_list(value, "normalizers", inside)) {
      read_normalizer(one, where, out, steps);
    }
  } else if (type == "NFC") {
    out.add(form_step(NormalForm::nfc));
  } else if (type == "NFD") {
    out.add(form_step(NormalForm::nfd));
  } else if (type == "NFKC") {
    out.add(form_step(NormalForm::nfkc));
  } else if (type == "NFKD") {
    out.add(form_step(NormalForm::nfkd));
  } else if (type == "Lowercase") {
    out.add([](std::string_view text, const Normalizer::Room&) { return to_lower(text); });
  } else if (type == "StripAccents") {
    out.add(replace_pattern_step("\\p{Mn}+", "", inside));
  } else if (type == "Strip") {
    out.add(strip_step(bool_field(value, "strip_left", inside).value_or(true),
                       bool_field(value, "strip_right", inside).value_or(true)));
  } else if (type == "Prepend") {
    out.add(prepend_step(json_text(value, "prepend", inside)));
  } else if (type == "Replace") {
    read_replace(value, inside, out);
  } else if (type == "ByteLevel") {
    out.add(
        [](std::string_view text, const Normalizer::Room&) { return to_byte_characters(text); });
  } else if (type == "Precompiled") {
    const std::string map = string_field(value, "precompiled_charsmap", inside).value_or("");
    if (!map.empty()) {
      out.add(character_map_step(from_base64(map, inside), false, inside));
    }
  } else {
    throw Error("{}: normalizer {} is not supported", where, type);
  }
}

}  // namespace

const json& json_list(const json& object, const char* key, const std::string& where) {
  static const json kNone = json::array();
  if (!object.is_object()) throw Error("{}: must be an object", where);
  const auto found = object.find(key);
  if (found == object.end() || found->is_null()) return kNone;
  if (!found->is_array()) throw Error("{}: {} must be a list", where, key);
  return *found;
}

std::string json_text(const json& object, const char* key, const std::string& where) {
  auto text = string_field(object, key, where);
  if (!text) throw Error("{}: {} is missing", where, key);
  return std::move(*text);
}

void read_normalizer(const json& value, const std::string& where, Normalizer& out) {
  int steps = 0;
  if (!value.is_null()) read_normalizer(value, where, out, steps);
}

void read_pre_tokenizer(const json& value, const std::string& where, PreTokenizer& out) {
  int steps = 0;
  if (!value.is_null()) read_pre_tokenizer(value, where, out, steps);
}

}  // namespace ridge
