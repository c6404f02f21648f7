// Builds automata from their ends: each function takes the state that follows and gives the state
// that its part starts in. Every state, edge and node spends steps by its size: about one for each
// four bytes of the automaton.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/work_limit.h"
#include "text/grammar/automaton.h"

namespace ridge::grammar {

class Builder {
 public:
  // A part whose end is known only later.
  using Part = std::function<StateId(StateId next)>;

  explicit Builder(WorkLimit& work) : work_(work) {}  // which outlives the builder

  // Shared by all rules.
  StateId ret();
  StateId call(StateId rule, StateId next);
  StateId split(const std::vector<StateId>& targets);
  // A split whose targets are set once.
  StateId reserve();
  void fill(StateId reserved, const std::vector<StateId>& targets);

  StateId bytes(const std::vector<ByteEdge>& edges);
  StateId byte(char c, StateId next);
  StateId text(std::string_view text, StateId next);
  // One of the texts, as a trie.
  StateId texts(std::vector<std::string> texts, StateId next);

  StateId gap(StateId next);    // nothing, a space, or a newline and an indent
  StateId space(StateId next);  // nothing or a space
  StateId string(uint32_t min, uint32_t max, StateId next);
  StateId number(bool negative, StateId next);
  StateId integer(int64_t min, int64_t max, StateId next);  // min <= max
  StateId constant(const Json& value, StateId next);        // exactly this value
  StateId any_value(StateId next);

  struct Array {
    std::vector<Part> prefix;
    std::optional<Part> item;  // none: nothing after the prefix
    uint32_t min = 0, max = kNoLimit;
  };
  StateId array(const Array& array, StateId next);  // min <= max

  struct Property {
    std::string name;
    bool required = false;
    Part value;
  };
  struct Object {
    std::vector<Property> properties;  // in the order in which they come
    std::optional<Part> other;         // the value of any other name
  };
  StateId object(const Object& object, StateId next);

  // The automaton that starts in `start`. The builder is empty afterwards.
  Automaton finish(StateId start);

 private:
  StateId add(const State& state);
  // Items after the prefix, of which at least one comes.
  StateId items(const Part& item, uint32_t min, uint32_t max, StateId close);
  StateId key_trie(const Object& object, uint32_t index);
  // Digits: exactly `required`, then up to `optional` more.
  StateId digits(int required, int optional, StateId next);
  StateId magnitude(uint64_t low, uint64_t high, StateId next);  // 0 < low <= high
  StateId digits_between(std::string_view low, std::string_view high, StateId next);

  WorkLimit& work_;
  Automaton automaton_;
  std::optional<StateId> ret_, any_, indent_;
};

}  // namespace ridge::grammar
