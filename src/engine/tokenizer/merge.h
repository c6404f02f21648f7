// Merging neighbours, best first: what both kinds of BPE share. O(n log n) by a heap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/tokenizer/tokenizer.h"

namespace ridge {

// A stretch of the word. Lengths count its bytes; where symbols lie follows from them.
struct Symbol {
  Token id = -1;  // -1: no piece
  uint32_t length = 0;
  int32_t previous = -1, next = -1;
};

struct MergeWork {
  std::vector<Symbol> symbols;
  std::vector<uint32_t> starts;  // of each symbol, for models that look at text

  void clear() {
    // One huge word must not hold its memory for good.
    if (symbols.capacity() > kKeptSymbols) *this = MergeWork();
    symbols.clear();
    starts.clear();
    heap_.clear();
    end_ = 0;
  }
  void add(Token id, size_t length) {
    const auto index = static_cast<int32_t>(symbols.size());
    if (index > 0) symbols.back().next = index;
    symbols.push_back({id, static_cast<uint32_t>(length), index - 1, -1});
    starts.push_back(end_);
    end_ += static_cast<uint32_t>(length);
  }

  // `find(left, right)` gives {rank, id} of what two symbols make, id -1 for nothing. Lowest rank
  // first, leftmost among equals. Afterwards symbols of length 0 are gone.
  template <typename Find>
  void merge_all(Find find) {
    for (size_t i = 0; i + 1 < symbols.size(); ++i) propose(static_cast<int32_t>(i), find, false);
    std::make_heap(heap_.begin(), heap_.end());
    while (!heap_.empty()) {
      const Candidate best = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end());
      heap_.pop_back();
      const auto at = static_cast<int32_t>(best.key & 0xFFFFFFFF);
      Symbol& left = symbols[static_cast<size_t>(at)];
      if (left.length == 0 || left.next < 0) continue;
      Symbol& right = symbols[static_cast<size_t>(left.next)];
      // Starts do not move, so equal lengths are equal texts: otherwise one of them has changed.
      if (left.length + right.length != best.length) continue;
      left.id = best.id;
      left.length = best.length;
      left.next = right.next;
      right.length = 0;
      if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = at;
      if (left.previous >= 0) propose(left.previous, find, true);
      propose(at, find, true);
    }
  }

 private:
  static constexpr size_t kKeptSymbols = 1 << 16;

  struct Candidate {
    uint64_t key;  // rank << 32 | place of the left symbol
    Token id;
    uint32_t length;
    bool operator<(const Candidate& other) const { return key > other.key; }
  };

  template <typename Find>
  void propose(int32_t at, Find& find, bool keep_heap) {
    const Symbol& left = symbols[static_cast<size_t>(at)];
    if (left.next < 0) return;
    const Symbol& right = symbols[static_cast<size_t>(left.next)];
    const auto [rank, id] = find(at, left.next);
    if (id < 0) return;
    heap_.push_back(
        {uint64_t{rank} << 32 | static_cast<uint32_t>(at), id, left.length + right.length});
    if (keep_heap) std::push_heap(heap_.begin(), heap_.end());
  }

  std::vector<Candidate> heap_;
  uint32_t end_ = 0;
};

}  // namespace ridge
