// The KV pages of a simulated replica, counted, and its prefix cache by block ids.
//
// The tree of PrefixTree without tokens: a node is a page with a block's id behind the blocks
// before it. Pages that no other request can share (behind the last id, and those of the output)
// lie in the tree as one run, a leaf of several pages, which only its own request finds again after
// a preemption. Nodes are evicted as PrefixTree evicts them; a run from its end.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace ridge {

class BlockCache {
 public:
  using Node = int32_t;
  static constexpr Node kNone = -1;

  explicit BlockCache(int pages) : total_(pages), free_(pages), buckets_(64, kNone) {}

  int total() const { return total_; }
  int available() const { return free_ + evictable_; }  // free, or free after eviction
  int held() const { return total_ - free_ - evictable_; }

  // Pages for a sequence, by eviction where none are free. False, with nothing changed, where there
  // are too few.
  [[nodiscard]] bool take(int pages);
  void give_back(int pages) { free_ += pages; }

  struct Match {
    Node node = kNone;  // the last block's
    int blocks = 0;
  };
  Match match(std::span<const int64_t> blocks) const;

  // The sequence's page of block `id` behind `parent` becomes the tree's, locked. Where the tree
  // has that block already, the sequence's own page is given back.
  Node insert(Node parent, int64_t id);
  // Every node from `node` up to the root; kNone does nothing.
  void lock(Node node);
  void unlock(Node node);

  // Pages of one sequence behind `parent`, unlocked. `*place` is the run's node, and becomes kNone
  // when the last page is evicted.
  void add_run(Node parent, int pages, Node* place);
  Node parent(Node node) const { return at(node).parent; }

  int run_pages(Node run) const { return run == kNone ? 0 : at(run).pages; }
  // The pages are the sequence's again; the run is gone.
  void take_run(Node run);
  void use_run(Node run);     // it becomes the one used last
  void disown_run(Node run);  // its request has ended: nobody looks for it

 private:
  struct Entry {
    int64_t id = 0;
    Node parent = kNone;
    Node next = kNone;                  // in its bucket
    Node older = kNone, newer = kNone;  // unlocked ones, in order of their last unlocking
    int locks = 0;
    int pages = 1;
    Node* place = nullptr;  // of a run whose request is here
    bool run = false;
  };

  Entry& at(Node node) { return entries_[static_cast<size_t>(node)]; }
  const Entry& at(Node node) const { return entries_[static_cast<size_t>(node)]; }
  size_t bucket(Node parent, int64_t id) const;
  Node find(Node parent, int64_t id) const;
  Node new_entry();
  void append(Node node);
  void unlink(Node node);
  void remove(Node node);
  void grow_buckets();

  int total_, free_, evictable_ = 0;
  std::vector<Entry> entries_;
  std::vector<Node> unused_;
  std::vector<Node> buckets_;  // a power of two of them, at least as many as blocks
  size_t blocks_ = 0;
  Node oldest_ = kNone, newest_ = kNone;
};

}  // namespace ridge
