// UTF-8 as it comes: whole characters where there are any, single bytes where there are not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace ridge {

// Bytes of the character at `at` when it is well formed (no overlong forms, surrogates or values
// above U+10FFFF), 0 when it is not.
size_t utf8_length(std::string_view text, size_t at);
// Bytes to step over: the character's, or 1 for a byte that belongs to none.
inline size_t utf8_step(std::string_view text, size_t at) {
  if (static_cast<unsigned char>(text[at]) < 0x80) return 1;
  const size_t length = utf8_length(text, at);
  return length > 0 ? length : 1;
}
// The end of the longest well-formed stretch that starts at `at`.
size_t utf8_valid_end(std::string_view text, size_t at);

// The character at `at`, which must be well formed.
char32_t utf8_read(std::string_view text, size_t at);
void utf8_append(std::string& text, char32_t character);

}  // namespace ridge
