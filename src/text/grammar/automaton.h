// A schema as a nondeterministic pushdown automaton over bytes.
//
// A frame is a state and a value, a number whose meaning the state defines. A stack of frames is
// one reading of the text so far; the frames below the top hold the states to return to.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/work_limit.h"
#include "text/grammar/json_string.h"

namespace ridge::grammar {

using StateId = uint32_t;
inline constexpr uint32_t kNoLimit = ~uint32_t{0};
// Stacks have at most so many frames. Each $ref, each level of JSON that no schema describes and
// each item of an array with bounds takes a frame.
inline constexpr uint32_t kMaxFrames = 64;
inline constexpr uint32_t kNeverEnds = 1 << 20;  // a height

enum class StateKind : uint8_t {
  bytes,       // reads a byte: `edges`
  string,      // reads the rest of a string of min to max characters, then `next`. Value: see below
  keys,        // reads the rest of an object's key: `keys`. Value: the first property that may come
  split,       // goes to each of `targets`
  call,        // goes to `rule` in a new frame of value 0; `next` when that returns
  ret,         // returns, or is the end of the document where there is no frame below
  start_keys,  // value = `min`, the first property of object `rule` that may come; then `next`
  again,       // value < max: counts it up, then `next`
  enough,      // value >= min: then `next`
};

struct ByteEdge {
  uint8_t low, high;
  StateId target;
};

// A node of the trie of an object's keys (without the opening quote, with the closing one).
struct KeyNode {
  std::vector<ByteEdge> edges;       // to the nodes below; low == high
  std::vector<uint32_t> properties;  // indices of the keys below, increasing
  uint32_t object = 0;
  StringState inside = kStringBody;  // of StringKind::key here; kStringFail: no other key
  bool leaf = false;                 // a whole key
};

// The keys of an object in the order of their properties. Keys of other names may follow them.
struct ObjectKeys {
  std::vector<StateId> complete;  // by property: what follows its key
  // By the first property i that may come: the first required one from i on, or the number of
  // properties where there is none. Properties i to that one may come next.
  std::vector<uint32_t> required;
  bool others = false;         // other names may come
  StateId other_inside = 0;    // the rest of such a key: a string
  StateId other_complete = 0;  // what follows it

  bool others_after(uint32_t i) const { return others && required[i] == complete.size(); }
};

struct State {
  StateKind kind = StateKind::ret;
  StringKind string_kind = StringKind::value;
  StateId next = 0;
  StateId rule = 0;  // call; enough: the items'; start_keys: the object
  uint32_t min = 0, max = kNoLimit;
  uint32_t first = 0, count = 0;  // bytes: in edges; split: in targets; keys: `first` in keys
};

// The value of a string's frame: characters begun (as far as they matter) and the StringState.
struct StringPlace {
  uint32_t characters;
  StringState inside;
  static StringPlace of(uint32_t value) { return {value >> 8, static_cast<StringState>(value)}; }
  uint32_t value() const { return characters << 8 | inside; }
};
inline constexpr uint32_t kMaxCount = (1u << 24) - 1;  // of characters and of items

struct Automaton {
  std::vector<State> states;
  std::vector<ByteEdge> edges;
  std::vector<StateId> targets;
  std::vector<KeyNode> keys;
  std::vector<ObjectKeys> objects;
  StateId start = 0;
  // By state: the frames that must still be pushed to come to the `ret` of its rule, at least;
  // kNeverEnds where there is no way. A reading with `frames` frames is followed only while
  // frames + height <= kMaxFrames: so no reading comes to a dead end.
  std::vector<uint32_t> heights;
};

// Spends a step for each two states of each pass over them; there are at most about two passes for
// each of kMaxFrames.
void compute_heights(Automaton& automaton, WorkLimit& work);
// True if a rule calls itself before it reads a byte: such an automaton cannot be run.
bool left_recursive(const Automaton& automaton);

}  // namespace ridge::grammar
