// A place in an automaton: every reading of the text so far.
//
// Bounds: a text has at most kMaxThreads readings of at most kMaxFrames frames each. A byte enters
// each frame above each stack once, however many ways lead there (past the first kFewFrames, which
// are not remembered). Each entered frame spends a step of a WorkLimit, so does each comparison of
// sixteen threads, and each frame that is put on a stack spends four.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/work_limit.h"
#include "text/grammar/automaton.h"

namespace ridge::grammar {

struct Frame {
  StateId state;
  uint32_t value;
  bool operator==(const Frame&) const = default;
};

// Frames above stacks, each with a number. A few are found by looking at each, more by hashing.
class PlaceTable {
 public:
  void clear();
  // The place's number and whether it is new; a new place gets `number`.
  std::pair<uint32_t, bool> insert(Frame frame, uint32_t below, uint32_t number = 0);

 private:
  struct Place {
    Frame frame;
    uint32_t below, number;
  };
  size_t slot_of(Frame frame, uint32_t below) const;
  void grow();
  std::vector<Place> places_;
  std::vector<uint32_t> slots_;  // 1 + an index in places_; 0: free
};

// Stacks of frames that share what lies below. Node 0 is the bottom of all of them.
class StackPool {
 public:
  struct Node {
    Frame frame{};
    uint32_t below = 0;
    uint32_t frames = 0;  // of the stack that this node is the top of
  };
  uint32_t push(Frame frame, uint32_t below);  // may be an equal node that was pushed before
  uint32_t add(Frame frame, uint32_t below);   // a new node
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

// Reads bytes. Remembers what the current byte has entered, so that equal places are entered once.
class Reader {
 public:
  // All outlive the reader.
  Reader(const Automaton& automaton, StackPool& pool, WorkLimit& work)
      : automaton_(automaton), pool_(pool), work_(work) {}

  // Before each byte, which `threads` of them read; `out` gets what they become, without
  // duplicates. Forgets what the byte before has entered.
  void begin_byte(size_t threads, Threads& out) {
    work_.spend(threads + std::min(entries_, kFewFrames));
    if (entries_ > kFewFrames) forget();
    entries_ = 0;
    out_ = &out;
  }
  void step(Thread thread, uint8_t byte);
  // What a frame becomes before a byte is read.
  void enter(Frame frame, uint32_t below);

 private:
  // To remember takes longer than to enter a frame, and most bytes enter a few.
  static constexpr uint32_t kFewFrames = 64;
  void forget();
  void step_string(Thread thread, uint8_t byte);
  void step_key(Thread thread, uint8_t byte);
  void add_thread(Thread thread);
  uint32_t push(Frame frame, uint32_t below);

  const Automaton& automaton_;
  StackPool& pool_;
  WorkLimit& work_;
  Threads* out_ = nullptr;
  uint32_t entries_ = 0;  // of frames, by this byte
  PlaceTable entered_, pushed_;
};

class Matcher {
 public:
  Matcher(const Automaton& automaton, WorkLimit& work);

  // False, and where it throws: nothing has changed.
  bool accept(const Automaton& automaton, std::string_view bytes, WorkLimit& work);
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
