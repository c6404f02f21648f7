// SentencePiece's precompiled character map (its normalizer's "precompiled_charsmap").
//
// Layout: u32 bytes of the double array; the array of u32 units (darts-clone); then the
// replacements, each ended by a zero byte. A unit: bit 31 marks a leaf, whose other bits are the
// value; otherwise bits 0-7 are the label, bit 8 says that a leaf hangs below, and bits 10-30 are
// the offset of the children, in steps of 256 where bit 9 is set.
#include <bit>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

#include "base/error.h"
#include "text/tokenizer/normalize.h"
#include "text/tokenizer/regex.h"
#include "text/tokenizer/utf8.h"

namespace ridge {
namespace {

constexpr size_t kMaxMap = 16 << 20;    // T5's takes 0.2 MB
constexpr size_t kLongestGrapheme = 6;  // Hugging Face looks up shorter ones whole

class CharacterMap {
 public:
  CharacterMap(std::string map, const std::string& where) {
    static_assert(std::endian::native == std::endian::little, "the map is read in host order");
    uint32_t bytes = 0;
    if (map.size() > kMaxMap) throw Error("{}: the character map is too large", where);
    if (map.size() >= sizeof(bytes)) std::memcpy(&bytes, map.data(), sizeof(bytes));
    if (map.size() < sizeof(bytes) || bytes % 4 != 0 || bytes > map.size() - sizeof(bytes) ||
        bytes == 0) {
      throw Error("{}: the character map does not hold what it says", where);
    }
    units_.resize(bytes / 4);
    std::memcpy(units_.data(), map.data() + sizeof(bytes), bytes);
    replacements_ = map.substr(sizeof(bytes) + bytes);
  }

  struct Found {
    size_t length = 0;  // of the prefix that is replaced
    std::string_view replacement;
  };

  // The shortest or the longest prefix of `text` that the map knows.
  std::optional<Found> find(std::string_view text, bool longest) const {
    std::optional<Found> found;
    size_t node = offset(units_[0]);
    for (size_t i = 0; i < text.size(); ++i) {
      const auto label = static_cast<unsigned char>(text[i]);
      if (label == 0) break;
      node ^= label;
      if (node >= units_.size() || (units_[node] & (1u << 31 | 0xFF)) != label) break;
      const uint32_t unit = units_[node];
      node ^= offset(unit);
      if ((unit >> 8 & 1) == 0 || node >= units_.size()) continue;
      const size_t value = units_[node] & 0x7FFFFFFF;
      if (value >= replacements_.size()) continue;
      const std::string_view rest = std::string_view(replacements_).substr(value);
      found = Found{i + 1, rest.substr(0, rest.find('\0'))};
      if (!longest) break;
    }
    return found;
  }

 private:
  static size_t offset(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

  std::vector<uint32_t> units_;
  std::string replacements_;
};

std::string by_longest(const CharacterMap& map, std::string_view text, size_t most) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    // No entry is longer than a few characters; the array ends the walk.
    if (const auto found = map.find(text.substr(at), true)) {
      out += found->replacement;
      check_growth(out.size(), most);
      at += found->length;
      continue;
    }
    const size_t length = utf8_length(text, at);
    if (length == 0) {
      utf8_append(out, 0xFFFD);  // SentencePiece replaces a malformed byte
      ++at;
    } else {
      out += text.substr(at, length);
      at += length;
    }
  }
  return out;
}

std::string by_grapheme(const CharacterMap& map, const Regex& graphemes, std::string_view text,
                        const Normalizer::Room& room) {
  std::vector<Match> found;
  graphemes.matches(text, false, found, room.work);
  std::string out;
  size_t at = 0;
  for (const Match& match : found) {
    out += text.substr(at, match.begin - at);
    const std::string_view grapheme = text.substr(match.begin, match.end - match.begin);
    at = match.end;
    if (grapheme.size() < kLongestGrapheme) {
      if (const auto whole = map.find(grapheme, false)) {
        out += whole->replacement;
        check_growth(out.size(), room.bytes);
        continue;
      }
    }
    for (size_t i = 0; i < grapheme.size(); i += utf8_step(grapheme, i)) {
      const std::string_view one = grapheme.substr(i, utf8_step(grapheme, i));
      const auto single = map.find(one, false);
      out += single ? single->replacement : one;
      check_growth(out.size(), room.bytes);
    }
  }
  return out += text.substr(at);
}

}  // namespace

Normalizer::Step character_map_step(std::string map, bool longest, const std::string& where) {
  CharacterMap compiled(std::move(map), where);
  if (longest) {
    return [compiled = std::move(compiled)](std::string_view text, const Normalizer::Room& room) {
      return by_longest(compiled, text, room.bytes);
    };
  }
  return [compiled = std::move(compiled), graphemes = Regex::pattern("\\X", where)](
             std::string_view text, const Normalizer::Room& room) {
    return by_grapheme(compiled, graphemes, text, room);
  };
}

}  // namespace ridge
