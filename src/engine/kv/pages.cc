#include "engine/kv/pages.h"

#include <cassert>
#include <numeric>

#include "base/error.h"

namespace ridge {

PagePool::PagePool(int pages, int page_tokens)
    : page_tokens_(page_tokens), free_(static_cast<size_t>(pages)), holders_(free_.size(), 0) {
  assert(pages > 0 && page_tokens > 0);
  std::iota(free_.rbegin(), free_.rend(), 0);  // the first page is taken first
}

int PagePool::acquire() {
  if (free_.empty()) {
    throw Error("the KV cache is full: {} pages of {} tokens", total(), page_tokens_);
  }
  const int page = free_.back();
  free_.pop_back();
  holders_[static_cast<size_t>(page)] = 1;
  return page;
}

void PagePool::add_reference(int page) {
  assert(holders_[static_cast<size_t>(page)] > 0);
  ++holders_[static_cast<size_t>(page)];
}

void PagePool::release(int page) {
  int& holders = holders_[static_cast<size_t>(page)];
  assert(holders > 0);
  if (--holders == 0) free_.push_back(page);
}

void CachedSequence::extend(int tokens) {
  const int page_tokens = pool_->page_tokens();
  const int needed = (length_ + tokens + page_tokens - 1) / page_tokens;
  while (static_cast<int>(pages_.size()) < needed) pages_.push_back(pool_->acquire());
  length_ += tokens;
}

void CachedSequence::cut(int length) {
  assert(length <= length_);
  const int page_tokens = pool_->page_tokens();
  const auto kept = static_cast<size_t>((length + page_tokens - 1) / page_tokens);
  while (pages_.size() > kept) {
    pool_->release(pages_.back());
    pages_.pop_back();
  }
  length_ = length;
}

}  // namespace ridge
