// Arrays and objects.
#include <algorithm>

#include "text/grammar/builder.h"

namespace ridge::grammar {

namespace {

constexpr uint64_t kKeyNodeSteps = 24;

}  // namespace

StateId Builder::items(const Part& item, uint32_t min, uint32_t max, StateId close) {
  const StateId after = reserve();
  if (min <= 1 && max == kNoLimit) {
    const StateId start = item(after);
    fill(after, {close, byte(',', gap(start))});
    return start;
  }
  // Items are called: the frame's value counts them.
  const StateId rule = item(ret());
  const StateId start = call(rule, after);
  const auto again = [&](StateId next) {
    return add({.kind = StateKind::again, .next = next, .min = min, .max = max});
  };
  fill(after, {add({.kind = StateKind::enough, .next = close, .rule = rule, .min = min}),
               again(byte(',', gap(start)))});
  return again(start);
}

StateId Builder::array(const Array& array, StateId next) {
  const auto all = static_cast<uint32_t>(array.prefix.size());
  const uint32_t prefix = std::min(all, array.max);
  const StateId end = byte(']', next);
  const StateId close = gap(end);
  std::optional<StateId> element;  // the start of the element at `at`
  if (array.item && array.max > all) {
    const uint32_t min = array.min > all ? array.min - all : 0;
    const uint32_t max = array.max == kNoLimit ? kNoLimit : array.max - all;
    element = items(*array.item, min, max, close);
  }
  const auto choices = [&](uint32_t at, StateId closing, bool comma) {
    std::vector<StateId> ways;
    if (at >= array.min) ways.push_back(closing);
    if (element) ways.push_back(comma ? byte(',', gap(*element)) : *element);
    return split(ways);
  };
  for (uint32_t at = prefix; at-- > 0;) element = array.prefix[at](choices(at + 1, close, true));
  return byte('[', gap(choices(0, end, false)));
}

StateId Builder::key_trie(const Object& object, uint32_t index) {
  // Nodes in the order in which they are made; each has its state.
  struct Link {
    uint32_t node;
    StateId state;
  };
  const auto make_node = [&](StringState inside) {
    work_.spend(kKeyNodeSteps);
    const auto node = static_cast<uint32_t>(automaton_.keys.size());
    automaton_.keys.push_back({});
    automaton_.keys.back().object = index;
    automaton_.keys.back().inside = inside;
    return Link{node, add({.kind = StateKind::keys, .first = node})};
  };
  const Link root = make_node(kStringBody);
  for (uint32_t property = 0; property < object.properties.size(); ++property) {
    const std::string literal = Json(object.properties[property].name).dump();
    uint32_t at = root.node;
    automaton_.keys[at].properties.push_back(property);
    for (char c : std::string_view(literal).substr(1)) {
      const auto value = static_cast<uint8_t>(c);
      const KeyNode& node = automaton_.keys[at];
      work_.spend(1 + node.edges.size() / 4);
      const auto edge = std::find_if(node.edges.begin(), node.edges.end(),
                                     [&](const ByteEdge& e) { return e.low == value; });
      if (edge != node.edges.end()) {
        at = automaton_.states[edge->target].first;
      } else {
        const bool known = node.inside < kStringEnd;
        const Link child =
            make_node(known ? string_step(StringKind::key, node.inside, value) : kStringFail);
        automaton_.keys[at].edges.push_back({value, value, child.state});
        at = child.node;
      }
      automaton_.keys[at].properties.push_back(property);
    }
    automaton_.keys[at].leaf = true;
  }
  return root.state;
}

StateId Builder::object(const Object& object, StateId next) {
  const auto count = static_cast<uint32_t>(object.properties.size());
  const auto index = static_cast<uint32_t>(automaton_.objects.size());
  automaton_.objects.push_back({});
  work_.spend(count);
  std::vector<uint32_t> required(count + 1, count);
  for (uint32_t i = count; i-- > 0;) {
    required[i] = object.properties[i].required ? i : required[i + 1];
  }

  const StateId end = byte('}', next);
  const StateId close = gap(end);
  const StateId last = reserve();  // after the last property, and after each other name
  const auto value = [&](const Part& part, StateId after) { return byte(':', space(part(after))); };
  StateId other_complete = 0, other_inside = 0;
  if (object.other) {
    other_complete = value(*object.other, last);
    const StringKind kind = count > 0 ? StringKind::key : StringKind::value;
    other_inside = add({.kind = StateKind::string, .string_kind = kind, .next = other_complete});
  }
  // A key of which property i is the first that may come. Without names to tell apart, any string.
  const StateId keys = byte('"', count > 0 ? key_trie(object, index) : other_inside);
  const auto key = [&](uint32_t i) {
    if (count == 0) return keys;
    return add({.kind = StateKind::start_keys, .next = keys, .rule = index, .min = i});
  };
  const auto choices = [&](uint32_t i, StateId closing, bool comma) {
    std::vector<StateId> ways;
    if (required[i] == count) ways.push_back(closing);
    if (i < count || object.other) ways.push_back(comma ? byte(',', gap(key(i))) : key(i));
    return ways;
  };
  fill(last, choices(count, close, true));
  std::vector<StateId> complete(count);
  for (uint32_t i = count; i-- > 0;) {
    const StateId after = i + 1 == count ? last : split(choices(i + 1, close, true));
    complete[i] = value(object.properties[i].value, after);
  }
  const StateId start = byte('{', gap(split(choices(0, end, false))));
  automaton_.objects[index] = {std::move(complete), std::move(required), object.other.has_value(),
                               other_inside, other_complete};
  return start;
}

}  // namespace ridge::grammar
