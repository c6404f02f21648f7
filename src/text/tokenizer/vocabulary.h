// Pieces by id and ids by piece.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace ridge {

// As SentencePiece and GGUF name them; the numbers are GGUF's.
enum class TokenKind : uint8_t {
  normal = 1,
  unknown = 2,
  control = 3,
  user_defined = 4,  // found in the text before anything else looks at it
  unused = 5,
  byte = 6,
};

struct Piece {
  std::string text;
  double score = 0;
  TokenKind kind = TokenKind::unused;
};

class Vocabulary {
 public:
  // Ids up to this are plausible beside `count` entries: real files leave few holes.
  static Token largest_id(size_t count);

  // Grows as needed; ids between are unused and empty. The last of equal texts is found.
  void set(Token id, std::string text, double score, TokenKind kind);
  // Once all are set: `find` works from here on.
  void index();

  Token size() const { return static_cast<Token>(pieces_.size()); }
  const Piece& operator[](Token id) const { return pieces_[static_cast<size_t>(id)]; }
  bool has(Token id) const { return id >= 0 && id < size() && !(*this)[id].text.empty(); }
  std::optional<Token> find(std::string_view text) const;
  // "<0x0A>" for a byte.
  std::optional<Token> find_byte(unsigned char byte) const;

  void set_kind(Token id, TokenKind kind) { pieces_[static_cast<size_t>(id)].kind = kind; }

 private:
  std::vector<Piece> pieces_;
  std::unordered_map<std::string_view, Token> ids_;
};

// The byte that a piece "<0x0A>" stands for.
std::optional<unsigned char> byte_of_piece(std::string_view piece);

}  // namespace ridge
