// Byte-pair encoding by merges, as Hugging Face's BPE model does it.
#include <array>

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/merge.h"
#include "text/tokenizer/pair_table.h"
#include "text/tokenizer/utf8.h"
#include "text/tokenizer/word_model.h"

namespace ridge {
namespace {

class Bpe : public WordModel {
 public:
  Bpe(const Vocabulary& vocabulary, BpeRules rules)
      : vocabulary_(vocabulary), rules_(std::move(rules)), table_(rules_.merges.size()) {
    CutFinder finder;
    for (size_t rank = 0; rank < rules_.merges.size(); ++rank) {
      const auto [left, right] = rules_.merges[rank];
      const Token made = rules_.merged[rank];
      table_.set(uint32_t(left), uint32_t(right), uint32_t(rank), made);
      finder.add(vocabulary_[made].text);
    }
    for (unsigned byte = 0; byte < 256; ++byte) {
      byte_ids_[byte] = vocabulary_.find(byte_characters()[byte]).value_or(-1);
      const auto token = vocabulary_.find_byte(static_cast<unsigned char>(byte));
      fallback_ids_[byte] = token.value_or(-1);
    }
    rules_.merges = {};
    rules_.merged = {};
    takes_bytes_ = rules_.inner_prefix.empty() && rules_.last_suffix.empty();
    // A word must be looked up whole or have its end, and a run of unknown characters be one token.
    const bool complete =
        rules_.byte_fallback &&
        std::find(fallback_ids_.begin(), fallback_ids_.end(), -1) == fallback_ids_.end();
    const bool runs = rules_.fuse_unknown && rules_.unknown && !complete;
    if (!rules_.whole_words && takes_bytes_ && !runs) cuts_ = finder.cuts();
  }

  bool takes_bytes() const override { return takes_bytes_; }
  WordCuts cuts() const override { return cuts_; }

  void encode(std::string_view word, bool as_bytes, std::vector<Token>& out,
              WorkLimit& limit) const override {
    if (rules_.whole_words) {
      const auto whole = vocabulary_.find(as_bytes ? to_byte_characters(word) : std::string(word));
      if (whole && vocabulary_[*whole].kind != TokenKind::control) {
        out.push_back(*whole);
        return;
      }
    }
    thread_local MergeWork work;
    work.begin(word.size());
    if (as_bytes) {
      add_bytes(word, work);
    } else {
      add_characters(word, work);
    }
    const auto find = [&](uint32_t left, uint32_t right) -> std::pair<uint32_t, Token> {
      const PairTable::Entry* found =
          table_.find(uint32_t(work.id(left)), uint32_t(work.id(right)));
      if (found == nullptr) return {0, -1};
      return {found->rank, found->id};
    };
    work.merge_all(find, limit);
    work.for_each([&](uint32_t at) { out.push_back(work.id(at)); });
    work.end();
  }

 private:
  // Unknown characters wait here, to be one token where they are fused.
  struct Waiting {
    size_t length = 0;
    void flush(MergeWork& work, Token unknown) {
      if (length > 0) work.add(unknown, length);
      length = 0;
    }
  };

  void add_bytes(std::string_view word, MergeWork& work) const {
    Waiting waiting;
    for (unsigned char byte : word) {
      const Token id = byte_ids_[byte];
      if (id < 0) {
        add_unknown(byte_characters()[byte], 1, waiting, work);
        continue;
      }
      waiting.flush(work, rules_.unknown.value_or(-1));
      work.add(id, 1);
    }
    waiting.flush(work, rules_.unknown.value_or(-1));
  }

  void add_characters(std::string_view word, MergeWork& work) const {
    Waiting waiting;
    std::string text;
    for (size_t at = 0; at < word.size();) {
      const size_t length = utf8_step(word, at);
      std::string_view character = word.substr(at, length);
      if (!takes_bytes_) {
        text = (at > 0 ? rules_.inner_prefix : "") + std::string(character);
        if (at + length == word.size()) text += rules_.last_suffix;
        character = text;
      }
      if (const auto id = vocabulary_.find(character)) {
        waiting.flush(work, rules_.unknown.value_or(-1));
        work.add(*id, length);
      } else {
        add_unknown(character, length, waiting, work);
      }
      at += length;
    }
    waiting.flush(work, rules_.unknown.value_or(-1));
  }

  void add_unknown(std::string_view character, size_t length, Waiting& waiting,
                   MergeWork& work) const {
    if (rules_.byte_fallback) {
      bool all = true;
      for (unsigned char byte : character) all = all && fallback_ids_[byte] >= 0;
      if (all) {
        waiting.flush(work, rules_.unknown.value_or(-1));
        for (unsigned char byte : character) work.add(fallback_ids_[byte], 1);
        return;
      }
    }
    if (!rules_.unknown) return;
    if (!rules_.fuse_unknown) waiting.flush(work, *rules_.unknown);
    waiting.length += length;
  }

  const Vocabulary& vocabulary_;
  BpeRules rules_;
  PairTable table_;
  std::array<Token, 256> byte_ids_{}, fallback_ids_{};
  bool takes_bytes_ = true;
  WordCuts cuts_;
};

// Ids by text: a merge needs no rule, only that what it makes is a piece.
class ScoredBpe : public WordModel {
 public:
  ScoredBpe(const Vocabulary& vocabulary, std::optional<Token> unknown)
      : vocabulary_(vocabulary), unknown_(unknown), ranks_(size_t(vocabulary.size()), 0) {
    std::vector<Token> order;
    for (Token id = 0; id < vocabulary_.size(); ++id) {
      if (merges_to(id)) order.push_back(id);
    }
    const auto score = [&](Token id) { return vocabulary_[id].score; };
    std::stable_sort(order.begin(), order.end(),
                     [&](Token a, Token b) { return score(a) > score(b); });
    CutFinder finder;
    uint32_t rank = 0;
    for (size_t i = 0; i < order.size(); ++i) {
      if (i > 0 && score(order[i]) < score(order[i - 1])) ++rank;
      ranks_[size_t(order[i])] = rank;
      finder.add(vocabulary_[order[i]].text);
    }
    cuts_ = finder.cuts();
    for (unsigned byte = 0; byte < 256; ++byte) {
      const auto found = vocabulary_.find_byte(static_cast<unsigned char>(byte));
      const auto single = vocabulary_.find(std::string(1, char(byte)));
      bytes_[byte] = found ? *found : single.value_or(-1);
    }
  }

  WordCuts cuts() const override { return cuts_; }

  void encode(std::string_view word, bool, std::vector<Token>& out,
              WorkLimit& limit) const override {
    thread_local MergeWork work;
    work.begin(word.size());
    for (size_t at = 0; at < word.size();) {
      const size_t length = utf8_step(word, at);
      work.add(piece(word.substr(at, length)), length);
      at += length;
    }
    const auto find = [&](uint32_t left, uint32_t right) -> std::pair<uint32_t, Token> {
      const size_t length = work.length(left) + work.length(right);
      limit.spend(length / kComparedPerStep);
      const Token id = piece(word.substr(left, length));
      if (id < 0) return {0, -1};
      return {ranks_[size_t(id)], id};
    };
    work.merge_all(find, limit);
    work.for_each([&](uint32_t at) {
      if (work.id(at) != MergeWork::kNoPiece) {
        out.push_back(work.id(at));
      } else {
        add_unknown(word.substr(at, work.length(at)), out);
      }
    });
    work.end();
  }

 private:
  // Control, unknown and byte tokens are not made from text.
  bool merges_to(Token id) const {
    const TokenKind kind = vocabulary_[id].kind;
    return kind == TokenKind::normal || kind == TokenKind::user_defined ||
           (kind == TokenKind::unused && vocabulary_.has(id));
  }
  Token piece(std::string_view text) const {
    const auto found = vocabulary_.find(text);
    return found && merges_to(*found) ? *found : -1;
  }

  void add_unknown(std::string_view text, std::vector<Token>& out) const {
    bool all = true;
    for (unsigned char byte : text) all = all && bytes_[byte] >= 0;
    if (all) {
      for (unsigned char byte : text) out.push_back(bytes_[byte]);
    } else if (unknown_) {
      out.push_back(*unknown_);
    }
  }

  const Vocabulary& vocabulary_;
  std::optional<Token> unknown_;
  std::vector<uint32_t> ranks_;  // by score, best 0; equal scores share one
  std::array<Token, 256> bytes_{};
  WordCuts cuts_;
};

}  // namespace

std::unique_ptr<WordModel> make_bpe(const Vocabulary& vocabulary, BpeRules rules) {
  return std::make_unique<Bpe>(vocabulary, std::move(rules));
}

std::unique_ptr<WordModel> make_scored_bpe(const Vocabulary& vocabulary,
                                           std::optional<Token> unknown) {
  return std::make_unique<ScoredBpe>(vocabulary, unknown);
}

}  // namespace ridge
