#include "serving/prefix_tree.h"

#include <algorithm>
#include <cassert>

#include "base/random.h"

namespace ridge {
namespace {

// Children of one node that a search for a partial page looks at. They are linked most recently
// added first.
constexpr int kMaxSiblings = 32;

uint64_t hash_page(PrefixTree::Node parent, std::span<const Token> tokens) {
  uint64_t hash = splitmix64(static_cast<uint64_t>(parent) + 1);
  for (const Token token : tokens) hash = splitmix64(hash ^ static_cast<uint32_t>(token));
  return hash;
}

int common_tokens(std::span<const Token> a, std::span<const Token> b) {
  const size_t most = std::min(a.size(), b.size());
  return static_cast<int>(std::mismatch(a.begin(), a.begin() + long(most), b.begin()).first -
                          a.begin());
}

}  // namespace

PrefixTree::~PrefixTree() {
  for (const Entry& entry : entries_) {
    if (entry.page >= 0) pool_->release(entry.page);
  }
}

PrefixTree::Node PrefixTree::root(std::string_view salt) {
  if (const auto found = roots_.find(salt); found != roots_.end()) return found->second;
  const Node node = new_entry();
  roots_.emplace(salt, node);
  return node;
}

PrefixTree::Node PrefixTree::new_entry() {
  if (unused_.empty()) {
    entries_.emplace_back();
    return static_cast<Node>(entries_.size()) - 1;
  }
  const Node node = unused_.back();
  unused_.pop_back();
  return node;
}

PrefixTree::Node PrefixTree::child(Node parent, std::span<const Token> tokens) const {
  const auto [first, last] = by_tokens_.equal_range(hash_page(parent, tokens));
  for (auto it = first; it != last; ++it) {
    const Entry& entry = at(it->second);
    if (entry.parent == parent && std::equal(tokens.begin(), tokens.end(), entry.tokens.begin())) {
      return it->second;
    }
  }
  return kNone;
}

PrefixTree::Match PrefixTree::match(std::string_view salt, std::span<const Token> tokens) const {
  Match found;
  const auto page_tokens = static_cast<size_t>(pool_->page_tokens());
  const auto start = roots_.find(salt);
  if (start == roots_.end()) return found;
  Node node = start->second;
  size_t at_token = 0;
  while (at_token + page_tokens <= tokens.size()) {
    const Node next = child(node, tokens.subspan(at_token, page_tokens));
    if (next == kNone) break;
    found.pages.push_back(at(next).page);
    found.node = node = next;
    at_token += page_tokens;
  }
  const std::span<const Token> rest = tokens.subspan(at_token);
  int looked = 0;
  for (Node c = at(node).first_child; c != kNone && looked < kMaxSiblings; c = at(c).next) {
    ++looked;
    const int common = common_tokens(rest, at(c).tokens);
    if (common > found.partial_tokens) {
      found.partial_tokens = common;
      found.partial_page = at(c).page;
      found.partial_node = c;
    }
  }
  return found;
}

PrefixTree::Node PrefixTree::insert(std::string_view salt, Node node, std::span<const Token> tokens,
                                    std::span<const int> pages, std::vector<int>& held) {
  held.clear();
  if (pages.empty()) return node;
  const auto page_tokens = static_cast<size_t>(pool_->page_tokens());
  assert(tokens.size() == pages.size() * page_tokens);
  Node end = node == kNone ? root(salt) : node;
  for (size_t i = 0; i < pages.size(); ++i) {
    const std::span<const Token> page = tokens.subspan(i * page_tokens, page_tokens);
    const Node next = child(end, page);
    if (next == kNone) {
      end = add_child(end, page, pages[i]);
    } else {
      lock_one(end = next);
    }
    held.push_back(at(end).page);
  }
  return end;
}

PrefixTree::Node PrefixTree::add_child(Node parent, std::span<const Token> tokens, int page) {
  const Node node = new_entry();
  Entry& up = at(parent);
  Entry& entry = at(node);
  entry = Entry{.parent = parent,
                .page = page,
                .locks = 1,
                .next = up.first_child,
                .tokens = {tokens.begin(), tokens.end()}};
  if (up.first_child != kNone) at(up.first_child).previous = node;
  up.first_child = node;
  ++up.children;
  by_tokens_.emplace(hash_page(parent, tokens), node);
  pool_->add_reference(page);
  ++count_;
  return node;
}

void PrefixTree::unlink(Node node) {
  const Entry& entry = at(node);
  (entry.older == kNone ? oldest_ : at(entry.older).newer) = entry.newer;
  (entry.newer == kNone ? newest_ : at(entry.newer).older) = entry.older;
}

void PrefixTree::lock_one(Node node) {
  if (at(node).locks++ > 0) return;
  --unlocked_;
  unlink(node);
}

void PrefixTree::lock(Node node) {
  for (; node != kNone && at(node).page >= 0; node = at(node).parent) lock_one(node);
}

void PrefixTree::unlock(Node node) {
  for (; node != kNone && at(node).page >= 0; node = at(node).parent) {
    Entry& entry = at(node);
    assert(entry.locks > 0);
    if (--entry.locks > 0) continue;
    ++unlocked_;
    entry.older = newest_;
    entry.newer = kNone;
    (newest_ == kNone ? oldest_ : at(newest_).newer) = node;
    newest_ = node;
  }
}

void PrefixTree::remove(Node leaf) {
  Entry& entry = at(leaf);
  assert(is_leaf(leaf) && entry.locks == 0);
  unlink(leaf);
  const auto [first, last] = by_tokens_.equal_range(hash_page(entry.parent, entry.tokens));
  by_tokens_.erase(
      std::find_if(first, last, [&](const auto& each) { return each.second == leaf; }));
  Entry& up = at(entry.parent);
  (entry.previous == kNone ? up.first_child : at(entry.previous).next) = entry.next;
  if (entry.next != kNone) at(entry.next).previous = entry.previous;
  --up.children;
  pool_->release(entry.page);
  const Node parent = entry.parent;
  entry = Entry{};
  unused_.push_back(leaf);
  if (at(parent).page < 0 && is_leaf(parent)) {  // the root of a salt that nothing is cached under
    std::erase_if(roots_, [parent](const auto& each) { return each.second == parent; });
    unused_.push_back(parent);
  }
  --count_;
  --unlocked_;
}

void PrefixTree::copy_nodes(std::vector<CacheSnapshot::Node>& to) const {
  to.resize(entries_.size());
  for (size_t i = 0; i < entries_.size(); ++i) {
    const Entry& entry = entries_[i];
    if (entry.page < 0) {
      to[i] = {};
    } else {
      to[i] = {.parent = entry.parent, .locks = entry.locks, .used = true};
    }
  }
}

int PrefixTree::evict(int pages) {
  int released = 0;
  while (released < pages && oldest_ != kNone) {
    const Node leaf = oldest_;
    assert(pool_->references(at(leaf).page) == 1);  // sequences lock what they hold
    ++released;
    remove(leaf);
  }
  return released;
}

}  // namespace ridge
