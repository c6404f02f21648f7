#include "text/tokenizer/byte_level.h"

#include "text/tokenizer/utf8.h"

namespace ridge {
namespace {

bool stands_for_itself(unsigned byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::string, 256> characters;
  std::array<int, 0x200> bytes{};  // by code point; -1: none

  Alphabet() {
    bytes.fill(-1);
    char32_t next = 0x100;
    for (unsigned byte = 0; byte < 256; ++byte) {
      const char32_t character = stands_for_itself(byte) ? byte : next++;
      utf8_append(characters[byte], character);
      bytes[character] = static_cast<int>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet kAlphabet;
  return kAlphabet;
}

}  // namespace

const std::array<std::string, 256>& byte_characters() { return alphabet().characters; }

std::string to_byte_characters(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size() + bytes.size() / 2);
  for (unsigned char byte : bytes) out += alphabet().characters[byte];
  return out;
}

std::optional<std::string> from_byte_characters(std::string_view piece) {
  std::string out;
  for (size_t at = 0; at < piece.size();) {
    const size_t length = utf8_length(piece, at);
    if (length == 0) return std::nullopt;
    const char32_t character = utf8_read(piece, at);
    if (character >= alphabet().bytes.size() || alphabet().bytes[character] < 0) {
      return std::nullopt;
    }
    out += static_cast<char>(alphabet().bytes[character]);
    at += length;
  }
  return out;
}

}  // namespace ridge
