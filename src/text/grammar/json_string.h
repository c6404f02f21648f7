// The inside of a JSON string as a finite automaton over bytes: RFC 8259 escapes, no control
// characters, well-formed UTF-8 only (Unicode 15, table 3-7), surrogates in escapes only as pairs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace ridge::grammar {

enum class StringKind : uint8_t {
  value,  // any JSON string
  // Without \uXXXX and \/. Each text has one spelling, so that texts can be compared as bytes.
  key,
};
inline constexpr size_t kStringKinds = 2;

using StringState = uint8_t;
inline constexpr StringState kStringBody = 0;  // between two characters
inline constexpr StringState kStringEnd = 254, kStringFail = 255;

namespace string_detail {
inline constexpr size_t kStates = 20;
using Table = std::array<std::array<StringState, 256>, kStates>;
extern const std::array<Table, kStringKinds> kTables;
}  // namespace string_detail

// The state after `byte`: kStringEnd after the closing quote, kStringFail where the byte cannot
// come. `state` is neither of the two. A character begins with each byte but the quote that is read
// in kStringBody; a surrogate pair is one character.
inline StringState string_step(StringKind kind, StringState state, uint8_t byte) {
  return string_detail::kTables[static_cast<size_t>(kind)][state][byte];
}

}  // namespace ridge::grammar
