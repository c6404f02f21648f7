#include "engine/kv/pages.h"

#include <cassert>
#include <numeric>
#include <utility>

namespace ridge {

PagePool::PagePool(int pages, int page_tokens)
    : page_tokens_(page_tokens), free_(static_cast<size_t>(pages)), references_(free_.size(), 0) {
  assert(pages > 0 && page_tokens > 0);
  std::iota(free_.rbegin(), free_.rend(), 0);  // page 0 is handed out first
}

std::optional<int> PagePool::acquire() {
  if (free_.empty()) return std::nullopt;
  const int page = free_.back();
  free_.pop_back();
  references_[static_cast<size_t>(page)] = 1;
  return page;
}

void PagePool::add_reference(int page) {
  assert(references(page) > 0);
  ++references_[static_cast<size_t>(page)];
}

void PagePool::release(int page) {
  assert(references(page) > 0);
  if (--references_[static_cast<size_t>(page)] == 0) free_.push_back(page);
}

KvSequence::~KvSequence() { truncate(0); }

KvSequence::KvSequence(KvSequence&& other) noexcept
    : pool_(other.pool_),
      pages_(std::exchange(other.pages_, {})),
      length_(std::exchange(other.length_, 0)) {}

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(pages_, other.pages_);
  std::swap(length_, other.length_);
  return *this;
}

int KvSequence::capacity() const { return static_cast<int>(pages_.size()) * pool_->page_tokens(); }

bool KvSequence::reserve(int tokens, std::vector<PageCopy>& copies) {
  const int page_tokens = pool_->page_tokens();
  const int used = length_ % page_tokens;  // tokens in the page that the next token enters
  const auto partial = static_cast<size_t>(length_ / page_tokens);
  const bool copy_partial = tokens > 0 && used > 0 && pool_->references(pages_[partial]) > 1;
  const auto needed = static_cast<size_t>((length_ + tokens + page_tokens - 1) / page_tokens);
  const size_t fresh = needed > pages_.size() ? needed - pages_.size() : 0;
  if (static_cast<size_t>(pool_->free()) < fresh + (copy_partial ? 1 : 0)) return false;
  if (copy_partial) {
    const int to = *pool_->acquire();
    copies.push_back({pages_[partial], to, used});
    pool_->release(pages_[partial]);
    pages_[partial] = to;
  }
  for (size_t i = 0; i < fresh; ++i) pages_.push_back(*pool_->acquire());
  return true;
}

void KvSequence::commit(int tokens) {
  assert(tokens >= 0 && length_ + tokens <= capacity());
  length_ += tokens;
}

void KvSequence::truncate(int length) {
  assert(length >= 0 && length <= length_);
  const int page_tokens = pool_->page_tokens();
  const auto kept = static_cast<size_t>((length + page_tokens - 1) / page_tokens);
  while (pages_.size() > kept) {
    pool_->release(pages_.back());
    pages_.pop_back();
  }
  length_ = length;
}

void KvSequence::replace_page(int index, int page) {
  assert((index + 1) * pool_->page_tokens() <= length_);  // a full one
  pool_->add_reference(page);
  pool_->release(std::exchange(pages_[static_cast<size_t>(index)], page));
}

KvSequence KvSequence::fork() const {
  KvSequence copy(*pool_);
  const int page_tokens = pool_->page_tokens();
  const auto written = static_cast<size_t>((length_ + page_tokens - 1) / page_tokens);
  copy.append_shared(pages().first(written), length_);
  return copy;
}

void KvSequence::append_shared(std::span<const int> pages, int tokens) {
  assert(length_ == capacity());
  for (const int page : pages) {
    pool_->add_reference(page);
    pages_.push_back(page);
  }
  commit(tokens);
}

}  // namespace ridge
