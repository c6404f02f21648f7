// The KV cache's pages: who holds which. Only numbers; the memory belongs to the backend.
//
// A page holds `page_tokens` tokens of one sequence in every layer: page p is the same place in
// each layer's K and V. A contiguous cache is one sequence with pages in a row.
#pragma once

#include <span>
#include <vector>

namespace ridge {

class PagePool {
 public:
  explicit PagePool(int pages, int page_tokens);
  int page_tokens() const { return page_tokens_; }
  int total() const { return static_cast<int>(holders_.size()); }
  int free() const { return static_cast<int>(free_.size()); }

  int acquire();                 // throws Error when none is free; the page has one holder
  void add_reference(int page);  // one more holder (a common prefix)
  void release(int page);        // one less; free when none is left

 private:
  int page_tokens_;
  std::vector<int> free_;
  std::vector<int> holders_;
};

// One sequence's tokens in the cache. Gives its pages back at the end.
class CachedSequence {
 public:
  explicit CachedSequence(PagePool& pool) : pool_(&pool) {}
  ~CachedSequence() { cut(0); }
  CachedSequence(const CachedSequence&) = delete;
  CachedSequence& operator=(const CachedSequence&) = delete;

  int length() const { return length_; }
  std::span<const int> pages() const { return pages_; }
  void extend(int tokens);  // room for that many more; throws Error when the pool is empty
  void cut(int length);     // forget what lies beyond (speculation, a new chat)

 private:
  PagePool* pool_;
  std::vector<int> pages_;
  int length_ = 0;
};

}  // namespace ridge
