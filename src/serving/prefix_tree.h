// The prefix cache: pages of finished and running sequences, found again by their tokens.
//
// A tree with one edge per full page. The path from the root to a node spells the tokens whose keys
// and values lie in the pages along it, so a page is only ever found behind the exact tokens that
// it was computed after. Lookups hash a page's tokens and then compare them: never the hash alone.
//
//   root(salt "") --[16 tokens]--> page 7 --[16 tokens]--> page 3
//                                        \-[16 tokens]--> page 9      two prompts, one beginning
//
// The tree holds one reference (PagePool) to each of its pages. A running sequence locks the path
// that it took; nodes without a lock are evicted, the one first whose last lock was released first.
// A path is unlocked from its end to the root. So a node's children are evicted before it.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/kv/pages.h"
#include "serving/cache_snapshot.h"
#include "text/tokenizer/tokenizer.h"

namespace ridge {

class PrefixTree {
 public:
  using Node = int32_t;
  static constexpr Node kNone = -1;

  explicit PrefixTree(PagePool& pool) : pool_(&pool) {}
  ~PrefixTree();
  PrefixTree(const PrefixTree&) = delete;
  PrefixTree& operator=(const PrefixTree&) = delete;

  struct Match {
    Node node = kNone;       // the last full page's; kNone where none matched
    std::vector<int> pages;  // full pages, in order
    // A cached page whose first `partial_tokens` tokens go on with the sequence: to be copied.
    int partial_page = -1, partial_tokens = 0;
    Node partial_node = kNone;
  };
  // The longest cached prefix of `tokens` under `salt`.
  Match match(std::string_view salt, std::span<const Token> tokens) const;

  // Adds the full pages of a sequence behind `node`, the end of its locked path (kNone: the root of
  // `salt`), and moves the lock to the new end, which is returned. `tokens` are those behind
  // `node`: page_tokens for each of `pages`. Where the tree holds a page with the same tokens
  // already, that one stays: `held` gets the pages that the tree holds, and the sequence must take
  // those that differ for its own. So a sequence never holds a page beside the tree's.
  Node insert(std::string_view salt, Node node, std::span<const Token> tokens,
              std::span<const int> pages, std::vector<int>& held);

  // Every node from `node` up to the root; kNone does nothing.
  void lock(Node node);
  void unlock(Node node);

  // Evicts until at least `pages` were released to the pool, or nothing more can be.
  int evict(int pages);
  int evictable() const { return unlocked_; }  // pages that evict() can release
  int pages() const { return static_cast<int>(count_); }
  // Calls f(page, locks) for every page of the tree.
  template <typename F>
  void for_each_page(F f) const {
    for (const Entry& entry : entries_) {
      if (entry.page >= 0) f(entry.page, entry.locks);
    }
  }
  void copy_nodes(std::vector<CacheSnapshot::Node>& to) const;  // by their numbers

 private:
  struct Entry {
    Node parent = kNone;
    int page = -1;  // -1: unused or a root
    int locks = 0, children = 0;
    Node older = kNone, newer = kNone;  // unlocked ones, in order of their last unlocking
    Node first_child = kNone;           // children are a doubly linked list
    Node previous = kNone, next = kNone;
    std::vector<Token> tokens;  // page_tokens of them
  };

  Entry& at(Node node) { return entries_[static_cast<size_t>(node)]; }
  const Entry& at(Node node) const { return entries_[static_cast<size_t>(node)]; }
  Node root(std::string_view salt);
  Node new_entry();
  Node child(Node parent, std::span<const Token> tokens) const;
  Node add_child(Node parent, std::span<const Token> tokens, int page);
  void remove(Node leaf);
  void lock_one(Node node);
  void unlink(Node node);
  bool is_leaf(Node node) const { return at(node).children == 0; }

  PagePool* pool_;
  std::vector<Entry> entries_;
  std::vector<Node> unused_;
  std::map<std::string, Node, std::less<>> roots_;
  std::unordered_multimap<uint64_t, Node> by_tokens_;  // hash of (parent, tokens)
  Node oldest_ = kNone, newest_ = kNone;               // ends of the list of unlocked nodes
  size_t count_ = 0;
  int unlocked_ = 0;
};

}  // namespace ridge
