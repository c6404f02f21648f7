// The most probable segmentation, as SentencePiece and Hugging Face's Unigram find it.
#include <algorithm>
#include <array>
#include <limits>

#include "base/error.h"
#include "engine/tokenizer/pair_table.h"
#include "engine/tokenizer/utf8.h"
#include "engine/tokenizer/word_model.h"

namespace ridge {
namespace {

constexpr double kUnknownPenalty = 10;  // SentencePiece: below the least probable piece
constexpr size_t kMaxBytes = 8 << 20;   // of all pieces; XLM-R's quarter million take 2 MB

class Unigram : public WordModel {
 public:
  Unigram(const Vocabulary& vocabulary, UnigramRules rules)
      : vocabulary_(vocabulary), rules_(rules), children_(total_bytes(vocabulary)) {
    double least = std::numeric_limits<double>::infinity();
    for (Token id = 0; id < vocabulary_.size(); ++id) {
      const Piece& piece = vocabulary_[id];
      if (piece.text.empty() || vocabulary_.find(piece.text) != id) continue;
      if (piece.kind == TokenKind::normal) least = std::min(least, piece.score);
      if (piece.kind != TokenKind::control && piece.kind != TokenKind::unknown &&
          piece.kind != TokenKind::byte) {
        insert(piece.text, id);
      }
    }
    unknown_score_ =
        (least < std::numeric_limits<double>::infinity() ? least : 0) - kUnknownPenalty;
    for (unsigned byte = 0; byte < 256; ++byte) {
      bytes_[byte] = vocabulary_.find_byte(static_cast<unsigned char>(byte)).value_or(-1);
    }
  }

  void encode(std::string_view word, bool, std::vector<Token>& out) const override {
    std::vector<Best> best(word.size() + 1);
    for (size_t at = 0; at < word.size(); at += utf8_step(word, at)) {
      if (!extend(word, at, best)) {
        offer(best, at, at + utf8_step(word, at), kUnknown, unknown_score_);
      }
    }
    std::vector<Stretch> path;
    for (size_t end = word.size(); end > 0; end = best[end].start) {
      const bool unknown = best[end].id == kUnknown;
      if (unknown && !path.empty() && path.back().id == kUnknown) {
        path.back().start = best[end].start;  // neighbours become one
      } else {
        path.push_back({best[end].id, best[end].start, end});
      }
    }
    for (size_t i = path.size(); i-- > 0;) {
      const Stretch& stretch = path[i];
      if (stretch.id != kUnknown) {
        out.push_back(stretch.id);
      } else {
        add_unknown(word.substr(stretch.start, stretch.end - stretch.start), out);
      }
    }
  }

 private:
  static constexpr Token kUnknown = -1;
  struct Best {
    Token id = kUnknown;
    size_t start = std::string_view::npos;  // npos: not reached
    double score = 0;
  };
  struct Stretch {
    Token id;
    size_t start, end;
  };

  static size_t total_bytes(const Vocabulary& vocabulary) {
    size_t bytes = 0;
    for (Token id = 0; id < vocabulary.size(); ++id) bytes += vocabulary[id].text.size();
    if (bytes > kMaxBytes) {
      throw Error("a unigram vocabulary of {} bytes, at most {} are read", bytes, kMaxBytes);
    }
    return bytes;
  }

  void insert(std::string_view text, Token id) {
    uint32_t node = 0;
    for (unsigned char byte : text) {
      const PairTable::Entry* found = children_.find(node, byte);
      if (found == nullptr) {
        tokens_.push_back(kUnknown);
        const auto made = static_cast<uint32_t>(tokens_.size() - 1);
        children_.set(node, byte, 0, static_cast<int32_t>(made));
        node = made;
      } else {
        node = static_cast<uint32_t>(found->id);
      }
    }
    tokens_[node] = id;
  }

  static void offer(std::vector<Best>& best, size_t start, size_t end, Token id, double score) {
    const double total = best[start].score + score;
    Best& target = best[end];
    if (target.start == std::string_view::npos || total > target.score) target = {id, start, total};
  }

  // Every piece that starts at `at`; whether one of them is exactly the character there.
  bool extend(std::string_view word, size_t at, std::vector<Best>& best) const {
    const size_t character = at + utf8_step(word, at);
    bool single = false;
    uint32_t node = 0;
    for (size_t end = at; end < word.size();) {
      const PairTable::Entry* found = children_.find(node, static_cast<unsigned char>(word[end]));
      if (found == nullptr) break;
      node = static_cast<uint32_t>(found->id);
      ++end;
      const Token id = tokens_[node];
      if (id == kUnknown) continue;
      const Piece& piece = vocabulary_[id];
      const bool free = rules_.user_defined_free && piece.kind == TokenKind::user_defined;
      offer(best, at, end, id, free ? 0 : piece.score);
      single = single || end == character;
    }
    return single;
  }

  void add_unknown(std::string_view text, std::vector<Token>& out) const {
    bool all = rules_.byte_fallback;
    for (unsigned char byte : text) all = all && bytes_[byte] >= 0;
    if (all) {
      for (unsigned char byte : text) out.push_back(bytes_[byte]);
    } else if (rules_.unknown) {
      out.push_back(*rules_.unknown);
    }
  }

  const Vocabulary& vocabulary_;
  UnigramRules rules_;
  PairTable children_;                   // of a node and a byte
  std::vector<Token> tokens_{kUnknown};  // by node; the first is the root
  std::array<Token, 256> bytes_{};
  double unknown_score_ = 0;
};

}  // namespace

std::unique_ptr<WordModel> make_unigram(const Vocabulary& vocabulary, UnigramRules rules) {
  return std::make_unique<Unigram>(vocabulary, rules);
}

}  // namespace ridge
