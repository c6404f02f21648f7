#include "serving/block_cache.h"

#include <algorithm>
#include <cassert>

#include "base/random.h"

namespace ridge {

size_t BlockCache::bucket(Node parent, int64_t id) const {
  const uint64_t hash = splitmix64(static_cast<uint64_t>(id) + static_cast<uint64_t>(parent) * 31);
  return hash & (buckets_.size() - 1);
}

BlockCache::Node BlockCache::find(Node parent, int64_t id) const {
  Node node = buckets_[bucket(parent, id)];
  while (node != kNone && (at(node).id != id || at(node).parent != parent)) node = at(node).next;
  return node;
}

BlockCache::Node BlockCache::new_entry() {
  if (unused_.empty()) {
    entries_.emplace_back();
    return static_cast<Node>(entries_.size()) - 1;
  }
  const Node node = unused_.back();
  unused_.pop_back();
  at(node) = {};
  return node;
}

void BlockCache::append(Node node) {
  Entry& entry = at(node);
  entry.older = newest_;
  entry.newer = kNone;
  (newest_ == kNone ? oldest_ : at(newest_).newer) = node;
  newest_ = node;
}

void BlockCache::unlink(Node node) {
  const Entry& entry = at(node);
  (entry.older == kNone ? oldest_ : at(entry.older).newer) = entry.newer;
  (entry.newer == kNone ? newest_ : at(entry.newer).older) = entry.older;
}

void BlockCache::remove(Node node) {
  unlink(node);
  const Entry& entry = at(node);
  if (entry.run) {
    if (entry.place != nullptr) *entry.place = kNone;
  } else {
    Node* link = &buckets_[bucket(entry.parent, entry.id)];
    while (*link != node) link = &at(*link).next;
    *link = entry.next;
    --blocks_;
  }
  unused_.push_back(node);
}

void BlockCache::grow_buckets() {
  buckets_.assign(buckets_.size() * 2, kNone);
  // Every block is in the table; runs and unused entries are not.
  std::vector<bool> unused(entries_.size(), false);
  for (const Node node : unused_) unused[static_cast<size_t>(node)] = true;
  for (Node node = 0; node < static_cast<Node>(entries_.size()); ++node) {
    Entry& entry = at(node);
    if (entry.run || unused[static_cast<size_t>(node)]) continue;
    Node& head = buckets_[bucket(entry.parent, entry.id)];
    entry.next = head;
    head = node;
  }
}

bool BlockCache::take(int pages) {
  if (pages > available()) return false;
  while (free_ < pages) {
    const Node node = oldest_;
    Entry& entry = at(node);
    const int evicted = std::min(entry.pages, pages - free_);
    free_ += evicted;
    evictable_ -= evicted;
    entry.pages -= evicted;
    if (entry.pages == 0) remove(node);
  }
  free_ -= pages;
  return true;
}

BlockCache::Match BlockCache::match(std::span<const int64_t> blocks) const {
  Match found;
  for (const int64_t id : blocks) {
    const Node next = find(found.node, id);
    if (next == kNone) break;
    found.node = next;
    ++found.blocks;
  }
  return found;
}

BlockCache::Node BlockCache::insert(Node parent, int64_t id) {
  Node node = find(parent, id);
  if (node != kNone) {
    ++free_;
    if (at(node).locks++ == 0) {
      unlink(node);
      --evictable_;
    }
    return node;
  }
  if (blocks_ == buckets_.size()) grow_buckets();
  node = new_entry();
  Entry& entry = at(node);
  Node& head = buckets_[bucket(parent, id)];
  entry.id = id;
  entry.parent = parent;
  entry.next = head;
  entry.locks = 1;
  head = node;
  ++blocks_;
  return node;
}

void BlockCache::lock(Node node) {
  for (; node != kNone; node = at(node).parent) {
    if (at(node).locks++ > 0) continue;
    unlink(node);
    --evictable_;
  }
}

void BlockCache::unlock(Node node) {
  for (; node != kNone; node = at(node).parent) {
    assert(at(node).locks > 0);
    if (--at(node).locks > 0) continue;
    append(node);
    ++evictable_;
  }
}

void BlockCache::add_run(Node parent, int pages, Node* place) {
  *place = new_entry();
  Entry& entry = at(*place);
  entry.parent = parent;
  entry.pages = pages;
  entry.place = place;
  entry.run = true;
  append(*place);
  evictable_ += pages;
}

void BlockCache::take_run(Node run) {
  evictable_ -= at(run).pages;
  remove(run);
}

void BlockCache::use_run(Node run) {
  unlink(run);
  append(run);
}

void BlockCache::disown_run(Node run) { at(run).place = nullptr; }

}  // namespace ridge
