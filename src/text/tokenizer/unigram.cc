// The most probable segmentation, as SentencePiece and Hugging Face's Unigram find it.
#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <utility>

#include "base/error.h"
#include "text/tokenizer/pair_table.h"
#include "text/tokenizer/utf8.h"
#include "text/tokenizer/word_model.h"

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
        longest_ = std::max(longest_, piece.text.size());
      }
    }
    unknown_score_ =
        (least < std::numeric_limits<double>::infinity() ? least : 0) - kUnknownPenalty;
    for (unsigned byte = 0; byte < 256; ++byte) {
      bytes_[byte] = vocabulary_.find_byte(static_cast<unsigned char>(byte)).value_or(-1);
    }
  }

  void encode(std::string_view word, bool, std::vector<Token>& out,
              WorkLimit& work) const override {
    std::vector<Token> ids(word.size() + 1, kNotReached);  // of the best piece that ends here
    std::vector<double> scores(std::bit_ceil(std::min(longest_, word.size()) + 1));
    const Search search{word, ids, scores, work};
    for (size_t at = 0; at < word.size(); at += utf8_step(word, at)) {
      const size_t length = utf8_step(word, at);
      if (!extend(search, at)) offer(search, at, at + length, unknown_of(length), unknown_score_);
    }
    // Backwards along the best pieces, which are put where they begin.
    Token id = ids[word.size()];
    for (size_t end = word.size(); end > 0;) {
      end -= length_of(id);
      std::swap(id, ids[end]);
    }
    for (size_t at = 0; at < word.size();) {
      if (ids[at] >= 0) {
        out.push_back(ids[at]);
        at += length_of(ids[at]);
        continue;
      }
      const size_t begin = at;  // neighbours become one
      while (at < word.size() && ids[at] < 0) at += length_of(ids[at]);
      add_unknown(word.substr(begin, at - begin), out);
    }
  }

 private:
  static constexpr Token kNone = -1;  // no piece ends at a node
  // What stands for an unknown character of `length` bytes.
  static Token unknown_of(size_t length) { return -1 - static_cast<Token>(length); }
  static constexpr Token kNotReached = -6;
  size_t length_of(Token id) const {
    return id < 0 ? static_cast<size_t>(-1 - id) : vocabulary_[id].text.size();
  }

  struct Search {
    std::string_view word;
    std::vector<Token>& ids;
    std::vector<double>& scores;  // of the best way to a place, for as far back as pieces reach
    WorkLimit& work;
    double& score(size_t at) const { return scores[at & (scores.size() - 1)]; }
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
        tokens_.push_back(kNone);
        const auto made = static_cast<uint32_t>(tokens_.size() - 1);
        children_.set(node, byte, 0, static_cast<int32_t>(made));
        node = made;
      } else {
        node = static_cast<uint32_t>(found->id);
      }
    }
    tokens_[node] = id;
  }

  static void offer(const Search& search, size_t start, size_t end, Token id, double score) {
    const double total = search.score(start) + score;
    if (search.ids[end] != kNotReached && total <= search.score(end)) return;
    search.ids[end] = id;
    search.score(end) = total;
  }

  // Every piece that starts at `at`; whether one of them is exactly the character there.
  bool extend(const Search& search, size_t at) const {
    const std::string_view word = search.word;
    const size_t character = at + utf8_step(word, at);
    bool single = false;
    uint32_t node = 0;
    for (size_t end = at; end < word.size();) {
      const PairTable::Entry* found = children_.find(node, static_cast<unsigned char>(word[end]));
      if (found == nullptr) break;
      search.work.spend();
      node = static_cast<uint32_t>(found->id);
      ++end;
      const Token id = tokens_[node];
      if (id == kNone) continue;
      const Piece& piece = vocabulary_[id];
      const bool free = rules_.user_defined_free && piece.kind == TokenKind::user_defined;
      offer(search, at, end, id, free ? 0 : piece.score);
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
  PairTable children_;                // of a node and a byte
  std::vector<Token> tokens_{kNone};  // by node; the first is the root
  std::array<Token, 256> bytes_{};
  double unknown_score_ = 0;
  size_t longest_ = 4;  // bytes of a piece or a character
};

}  // namespace

std::unique_ptr<WordModel> make_unigram(const Vocabulary& vocabulary, UnigramRules rules) {
  return std::make_unique<Unigram>(vocabulary, rules);
}

}  // namespace ridge
