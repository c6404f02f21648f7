// Tokens of words seen before. Text repeats its words: most look-ups hit, and a hit costs a
// fraction of merging again. Bounded: a word that falls on another's place replaces it.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "text/tokenizer/tokenizer.h"

namespace ridge {

class WordCache {
 public:
  static constexpr size_t kLongest = 38, kTokens = 12;  // a slot is 88 bytes

  // Appends the word's tokens and says true, or makes its slot free for `store`.
  bool fetch(std::string_view word, std::vector<Token>& out) {
    if (slots_.empty()) slots_.resize(kSlots);
    const Slot& slot = slots_[place(word)];
    if (slot.length != word.size() || std::memcmp(slot.word, word.data(), word.size()) != 0) {
      return false;
    }
    out.insert(out.end(), slot.tokens.begin(), slot.tokens.begin() + slot.count);
    return true;
  }
  void store(std::string_view word, const Token* tokens, size_t count) {
    if (count > kTokens) return;
    Slot& slot = slots_[place(word)];
    slot.length = static_cast<uint8_t>(word.size());
    slot.count = static_cast<uint8_t>(count);
    std::memcpy(slot.word, word.data(), word.size());
    std::memcpy(slot.tokens.data(), tokens, count * sizeof(Token));
  }

 private:
  static constexpr size_t kSlots = 1 << 15;  // 2.9 MB
  struct Slot {
    uint8_t length = 0, count = 0;
    char word[kLongest];
    std::array<Token, kTokens> tokens;
  };

  static size_t place(std::string_view word) {
    uint64_t hash = word.size();
    for (size_t at = 0; at < word.size(); at += 8) {
      uint64_t chunk = 0;
      std::memcpy(&chunk, word.data() + at, std::min<size_t>(8, word.size() - at));
      hash = (hash ^ chunk) * 0x9E3779B97F4A7C15;
      hash ^= hash >> 29;
    }
    return static_cast<size_t>(hash) % kSlots;
  }

  std::vector<Slot> slots_;
};

}  // namespace ridge
