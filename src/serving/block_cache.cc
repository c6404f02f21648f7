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
  while (node != kNone && (at(node).ids.front() != id || at(node).parent != parent)) {
    node = at(node).next;
  }
  return node;
}

void BlockCache::add_to_bucket(Node node) {
  if (in_buckets_ == buckets_.size()) grow_buckets();
  Node& head = buckets_[bucket(at(node).parent, at(node).ids.front())];
  at(node).next = head;
  head = node;
  ++in_buckets_;
}

void BlockCache::remove_from_bucket(Node node) {
  Node* link = &buckets_[bucket(at(node).parent, at(node).ids.front())];
  while (*link != node) link = &at(*link).next;
  *link = at(node).next;
  --in_buckets_;
}

void BlockCache::grow_buckets() {
  std::vector<Node> nodes;
  for (Node node : buckets_) {
    for (; node != kNone; node = at(node).next) nodes.push_back(node);
  }
  buckets_.assign(buckets_.size() * 2, kNone);
  in_buckets_ = 0;
  for (const Node node : nodes) add_to_bucket(node);
}

BlockCache::Node BlockCache::new_entry(Node parent, int pages) {
  Node node = static_cast<Node>(entries_.size());
  if (unused_.empty()) {
    entries_.emplace_back();
  } else {
    node = unused_.back();
    unused_.pop_back();
  }
  Entry& entry = at(node);
  entry.parent = parent;
  entry.locks = 0;
  entry.pages = pages;
  entry.ids.clear();  // keeps its memory
  entry.place = nullptr;
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
  if (!entry.ids.empty()) remove_from_bucket(node);
  if (entry.place != nullptr) *entry.place = kNone;
  unused_.push_back(node);
}

bool BlockCache::acquire(int pages) {
  if (pages > available()) return false;
  while (free_ < pages) {
    const Node node = oldest_;
    Entry& entry = at(node);
    const int evicted = std::min(entry.pages, pages - free_);
    free_ += evicted;
    evictable_ -= evicted;
    entry.pages -= evicted;
    if (entry.pages == 0) {
      remove(node);
    } else if (!entry.ids.empty()) {
      entry.ids.resize(static_cast<size_t>(entry.pages));
    }
  }
  free_ -= pages;
  return true;
}

BlockCache::Match BlockCache::match(std::span<const int64_t> blocks) const {
  Match found;
  while (!blocks.empty()) {
    const Node next = find(found.node, blocks.front());
    if (next == kNone) break;
    const std::vector<int64_t>& ids = at(next).ids;
    const size_t most = std::min(ids.size(), blocks.size());
    const auto different = std::mismatch(ids.begin(), ids.begin() + long(most), blocks.begin());
    const auto equal = static_cast<size_t>(different.first - ids.begin());
    found.node = next;
    found.in_node = static_cast<int>(equal);
    found.blocks += found.in_node;
    if (equal < ids.size()) break;
    blocks = blocks.subspan(equal);
  }
  return found;
}

// Where the match ends inside a node, its first blocks become a new node, the parent of the rest:
// sequences whose path ends with the node, and its children, keep it.
BlockCache::Node BlockCache::end_of(const Match& match) {
  const Node node = match.node;
  if (node == kNone || match.in_node == at(node).pages) return node;
  remove_from_bucket(node);
  const Node head = new_entry(at(node).parent, match.in_node);
  Entry& first = at(head);
  Entry& rest = at(node);
  const auto cut = rest.ids.begin() + match.in_node;
  first.ids.assign(rest.ids.begin(), cut);
  rest.ids.erase(rest.ids.begin(), cut);
  rest.pages -= match.in_node;
  rest.parent = head;
  first.locks = rest.locks;
  add_to_bucket(head);
  add_to_bucket(node);
  if (rest.locks == 0) {  // evicted behind the rest
    first.older = node;
    first.newer = rest.newer;
    (rest.newer == kNone ? newest_ : at(rest.newer).older) = head;
    rest.newer = head;
  }
  return head;
}

BlockCache::Node BlockCache::insert(Node parent, std::span<const int64_t> blocks) {
  while (!blocks.empty()) {
    const Node next = find(parent, blocks.front());
    if (next == kNone) break;
    const std::vector<int64_t>& ids = at(next).ids;
    const size_t most = std::min(ids.size(), blocks.size());
    const auto different = std::mismatch(ids.begin(), ids.begin() + long(most), blocks.begin());
    const int equal = static_cast<int>(different.first - ids.begin());
    parent = end_of({.blocks = equal, .node = next, .in_node = equal});
    lock_one(parent);
    free_ += equal;
    blocks = blocks.subspan(static_cast<size_t>(equal));
  }
  if (blocks.empty()) return parent;
  const Node node = new_entry(parent, static_cast<int>(blocks.size()));
  at(node).ids.assign(blocks.begin(), blocks.end());
  at(node).locks = 1;
  add_to_bucket(node);
  return node;
}

void BlockCache::lock_one(Node node) {
  if (at(node).locks++ > 0) return;
  unlink(node);
  evictable_ -= at(node).pages;
}

void BlockCache::lock(Node node) {
  for (; node != kNone; node = at(node).parent) lock_one(node);
}

void BlockCache::unlock(Node node) {
  for (; node != kNone; node = at(node).parent) {
    assert(at(node).locks > 0);
    if (--at(node).locks > 0) continue;
    append(node);
    evictable_ += at(node).pages;
  }
}

void BlockCache::add_run(Node parent, int pages, Node* place) {
  *place = new_entry(parent, pages);
  at(*place).place = place;
  append(*place);
  evictable_ += pages;
}

void BlockCache::acquire_run(Node run) {
  evictable_ -= at(run).pages;
  remove(run);
}

void BlockCache::use_run(Node run) {
  unlink(run);
  append(run);
}

void BlockCache::disown_run(Node run) { at(run).place = nullptr; }

}  // namespace ridge
