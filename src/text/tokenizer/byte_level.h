// GPT-2's alphabet: every byte as one printable character, so that pieces of bytes can be written
// in JSON. Printable Latin-1 stands for itself, the other 68 bytes follow from U+0100.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

namespace ridge {

const std::array<std::string, 256>& byte_characters();
std::string to_byte_characters(std::string_view bytes);
// The bytes that `piece` stands for; nullopt where a character is not of the alphabet.
std::optional<std::string> from_byte_characters(std::string_view piece);

}  // namespace ridge
