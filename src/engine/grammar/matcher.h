// A place in an automaton: every reading of the text so far.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/grammar/automaton.h"

namespace ridge::grammar {

struct Frame {
  StateId state;
  uint32_t value;
  bool operator==(const Frame&) const = default;
};

// Stacks of frames that share what lies below. Node 0 is the bottom of all of them.
class StackPool {
 public:
  struct Node {
    Frame frame{};
    uint32_t below = 0;
    uint32_t frames = 0;  // of the stack that this node is the top of
  };
  uint32_t push(Frame frame, uint32_t below);
  const Node& operator[](uint32_t node) const { return nodes_[node]; }
  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  void shrink(uint32_t size) { nodes_.resize(size); }

 private:
  std::vector<Node> nodes_ = std::vector<Node>(1);
};

// One reading: its top frame, in a state that reads a byte or ends the document, and the rest.
struct Thread {
  Frame top;
  uint32_t below;  // in a StackPool
  bool operator==(const Thread&) const = default;
};
using Threads = std::vector<Thread>;
// A text has few readings unless its schema is recursive and ambiguous. Of more than these the
// first are followed, which keeps what is generated valid.
inline constexpr size_t kMaxThreads = 512;

// Adds to `out`, without duplicates, what `thread` becomes by reading `byte`.
void step(const Automaton& automaton, StackPool& pool, Thread thread, uint8_t byte, Threads& out);
// Adds what a frame becomes before a byte is read.
void enter(const Automaton& automaton, StackPool& pool, Frame frame, uint32_t below, Threads& out);

class Matcher {
 public:
  explicit Matcher(const Automaton& automaton);

  bool accept(const Automaton& automaton, std::string_view bytes);  // false: nothing has changed
  bool may_end() const { return may_end_; }
  bool finished() const { return may_end_ && threads_.size() == 1; }

  const Threads& threads() const { return threads_; }
  const StackPool& pool() const { return pool_; }

 private:
  void compact();  // drops what no thread refers to

  StackPool pool_;
  Threads threads_;
  bool may_end_ = false;
};

}  // namespace ridge::grammar
