// The KV cache's page table: which sequence holds which page. Only page numbers live here; the
// memory behind them belongs to the backend.
//
// A page holds `page_tokens` tokens of one sequence in every layer: page p is the same place in
// each layer's K and V. A contiguous cache is one sequence whose pages follow each other.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace ridge {

// A fixed number of pages with reference counts. Nothing here throws or blocks: a caller that gets
// no page waits, preempts a sequence or evicts cached pages.
class PagePool {
 public:
  PagePool(int pages, int page_tokens);
  int page_tokens() const { return page_tokens_; }
  int total() const { return static_cast<int>(references_.size()); }
  int free() const { return static_cast<int>(free_.size()); }
  int references(int page) const { return references_[static_cast<size_t>(page)]; }

  std::optional<int> acquire();  // a page with one reference; nullopt when none is free
  void add_reference(int page);  // of a page that is held: a shared prefix
  void release(int page);        // one reference less; the page is free when none is left

 private:
  int page_tokens_;
  std::vector<int> free_;
  std::vector<int> references_;
};

// The first `tokens` tokens of page `from` are copied to page `to`, in every layer
// (Runner::copy_pages).
struct PageCopy {
  int from = 0, to = 0;
  int tokens = 0;
};

// One sequence's pages and how many of its tokens are written there. Releases its pages at the end.
//
// A step on a sequence: reserve() room, run the copies that it names, run the step with
// past = length() and these pages, commit() the tokens. A step that fails commits nothing, so the
// length never counts keys that were not written.
class KvSequence {
 public:
  explicit KvSequence(PagePool& pool) : pool_(&pool) {}
  ~KvSequence();
  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&& other) noexcept;

  int length() const { return length_; }  // tokens whose keys and values are written
  int capacity() const;                   // tokens that the pages hold
  std::span<const int> pages() const { return pages_; }

  // Room for `tokens` beyond length(), in pages that no other sequence holds: a shared page that
  // the tokens would enter is replaced by a copy, which is appended to `copies`. The copies must
  // run before the next step. False, with nothing changed, when the pool has too few pages.
  [[nodiscard]] bool reserve(int tokens, std::vector<PageCopy>& copies);
  void commit(int tokens);    // that many reserved tokens are written now
  void truncate(int length);  // drops what lies beyond: rejected drafts, a new chat
  // Page `index` of the sequence gives way to `page`, which holds the same tokens.
  void replace_page(int index, int page);

  // A sequence with the same tokens that shares every written page: parallel samples of a prompt.
  KvSequence fork() const;
  // Appends pages that hold the next `tokens` tokens (whole pages; a prefix cache's). Adds a
  // reference to each. The sequence must end at a page's end.
  void append_shared(std::span<const int> pages, int tokens);

 private:
  PagePool* pool_;
  std::vector<int> pages_;
  int length_ = 0;
};

}  // namespace ridge
