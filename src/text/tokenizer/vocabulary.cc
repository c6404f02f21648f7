#include "text/tokenizer/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>

namespace ridge {

Token Vocabulary::largest_id(size_t count) {
  constexpr size_t kHoles = 1 << 16, kMost = 1 << 26;
  return static_cast<Token>(std::min(4 * count + kHoles, kMost));
}

void Vocabulary::set(Token id, std::string text, double score, TokenKind kind) {
  const auto at = static_cast<size_t>(id);
  if (at >= pieces_.size()) pieces_.resize(at + 1);
  pieces_[at] = {std::move(text), score, kind};
}

void Vocabulary::index() {
  ids_.clear();
  ids_.reserve(pieces_.size());
  for (size_t id = 0; id < pieces_.size(); ++id) {
    if (!pieces_[id].text.empty()) ids_[pieces_[id].text] = static_cast<Token>(id);
  }
}

std::optional<Token> Vocabulary::find(std::string_view text) const {
  const auto found = ids_.find(text);
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

std::optional<Token> Vocabulary::find_byte(unsigned char byte) const {
  return find(fmt::format("<0x{:02X}>", byte));
}

std::optional<unsigned char> byte_of_piece(std::string_view piece) {
  if (piece.size() != 6 || !piece.starts_with("<0x") || piece[5] != '>') return std::nullopt;
  unsigned value = 0;
  for (char c : piece.substr(3, 2)) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit && (c < 'A' || c > 'F')) return std::nullopt;
    value = value * 16 + static_cast<unsigned>(digit ? c - '0' : c - 'A' + 10);
  }
  return static_cast<unsigned char>(value);
}

}  // namespace ridge
