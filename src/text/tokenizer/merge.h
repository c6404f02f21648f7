// Merging neighbours, best first: what both kinds of BPE share. O(n log n) by a heap, and 16 bytes
// of memory for each byte of the word, because a prompt may be one word of megabytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/work_limit.h"
#include "text/tokenizer/tokenizer.h"

namespace ridge {

// A word as symbols, which are named by the place of their first byte.
class MergeWork {
 public:
  static constexpr Token kNoPiece = -1;

  void begin(size_t bytes) {
    end();
    ids_.assign(bytes, kInside);
    lengths_.resize(bytes);
    end_ = 0;
  }
  // The next symbol. All of them have at most the bytes that begin() was given.
  void add(Token id, size_t length) {
    set(end_, id, static_cast<uint32_t>(length));
    end_ += static_cast<uint32_t>(length);
  }

  Token id(uint32_t at) const { return ids_[at]; }
  uint32_t length(uint32_t at) const { return lengths_[at]; }

  // `find(left, right)` gives {rank, id} of what two symbols make, id -1 for nothing. Lowest rank
  // first, leftmost among equals.
  template <typename Find>
  void merge_all(Find find, WorkLimit& work) {
    heap_.clear();
    work.spend(end_);
    for (uint32_t at = 0; at < end_; at += lengths_[at]) propose(at, find);
    std::make_heap(heap_.begin(), heap_.end(), std::greater<>());
    while (!heap_.empty()) {
      work.spend(3);  // it may propose two more
      const uint64_t best = heap_.front();
      std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
      heap_.pop_back();
      const auto at = static_cast<uint32_t>(best);
      if (ids_[at] == kInside) continue;
      const uint32_t right = at + lengths_[at];
      if (right == end_) continue;
      // One of the two may have changed. What they make now has been proposed with its own rank.
      const auto [rank, id] = find(at, right);
      if (id < 0 || rank != best >> 32) continue;
      ids_[right] = kInside;
      set(at, id, lengths_[at] + lengths_[right]);
      if (at > 0) push(at - lengths_[at - 1], find);
      push(at, find);
    }
  }

  template <typename See>
  void for_each(See see) const {
    for (uint32_t at = 0; at < end_; at += lengths_[at]) see(at);
  }

  // One huge word must not hold its memory for good.
  void end() {
    if (ids_.capacity() > kKeptBytes) *this = MergeWork();
  }

 private:
  static constexpr size_t kKeptBytes = 1 << 16;
  static constexpr Token kInside = -2;  // no symbol begins here

  void set(uint32_t at, Token id, uint32_t length) {
    ids_[at] = id;
    lengths_[at] = lengths_[at + length - 1] = length;
  }
  template <typename Find>
  bool propose(uint32_t at, Find& find) {
    const uint32_t right = at + lengths_[at];
    if (right == end_) return false;
    const auto [rank, id] = find(at, right);
    if (id < 0) return false;
    if (heap_.empty()) heap_.reserve(end_);
    heap_.push_back(uint64_t{rank} << 32 | at);
    return true;
  }
  template <typename Find>
  void push(uint32_t at, Find& find) {
    if (propose(at, find)) std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
  }

  std::vector<Token> ids_;         // by place
  std::vector<uint32_t> lengths_;  // of a symbol, at its first and at its last byte
  std::vector<uint64_t> heap_;     // rank << 32 | place of the left symbol
  uint32_t end_ = 0;
};

}  // namespace ridge
