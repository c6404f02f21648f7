// The KV pages of a simulated replica, counted, and its prefix cache by block ids.
//
// The tree of PrefixTree without tokens, compressed: a node holds the ids of consecutive blocks and
// is split where a request leaves it in the middle. So a request costs a few nodes, not one a
// block. Pages that no other request can share (behind the last id, and those of the output) are a
// run: a leaf without ids, which only its own request finds again after a preemption. Pages are
// evicted in PrefixTree's order; those of one node from its end.
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
  [[nodiscard]] bool acquire(int pages);
  void release(int pages) { free_ += pages; }

  // The longest cached prefix of `blocks`.
  struct Match {
    int blocks = 0;
    Node node = kNone;  // where the last one is,
    int in_node = 0;    // and how many of the node's blocks match
  };
  Match match(std::span<const int64_t> blocks) const;
  // The node that ends where the match ends.
  Node end_of(const Match& match);

  // The node behind `parent` that begins with this block.
  Node find(Node parent, int64_t id) const;

  // The sequence's pages of `blocks`, behind `parent`, become the tree's, locked. Where the tree
  // has such a block already, the sequence's own page is released. Returns the new end of its
  // path.
  Node insert(Node parent, std::span<const int64_t> blocks);
  // Every node from `node` up to the root; kNone does nothing.
  void lock(Node node);
  void unlock(Node node);

  // Pages of one sequence behind `parent`, unlocked. `*place` is the run's node, and becomes kNone
  // when the last page is evicted.
  void add_run(Node parent, int pages, Node* place);
  int run_pages(Node run) const { return run == kNone ? 0 : at(run).pages; }
  // The pages are the sequence's again; the run is gone.
  void acquire_run(Node run);
  void use_run(Node run);     // it becomes the one used last
  void disown_run(Node run);  // its request has ended: nobody looks for it

 private:
  struct Entry {
    Node parent = kNone;
    Node next = kNone;                  // in its bucket
    Node older = kNone, newer = kNone;  // unlocked ones, in order of their last unlocking
    int locks = 0;
    int pages = 0;
    std::vector<int64_t> ids;  // of its blocks; none: a run
    Node* place = nullptr;     // of a run whose request is here
  };

  Entry& at(Node node) { return entries_[static_cast<size_t>(node)]; }
  const Entry& at(Node node) const { return entries_[static_cast<size_t>(node)]; }
  size_t bucket(Node parent, int64_t id) const;
  void add_to_bucket(Node node);
  void remove_from_bucket(Node node);
  void grow_buckets();
  Node new_entry(Node parent, int pages);
  void lock_one(Node node);
  void append(Node node);
  void unlink(Node node);
  void remove(Node node);

  int total_, free_, evictable_ = 0;
  std::vector<Entry> entries_;
  std::vector<Node> unused_;
  std::vector<Node> buckets_;  // a power of two of them, at least as many as nodes with ids
  size_t in_buckets_ = 0;
  Node oldest_ = kNone, newest_ = kNone;
};

}  // namespace ridge
