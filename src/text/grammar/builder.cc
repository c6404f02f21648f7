#include "text/grammar/builder.h"

#include <algorithm>
#include <utility>

#include "text/grammar/json_schema.h"

namespace ridge::grammar {

namespace {

constexpr uint64_t kStateSteps = 8, kEdgeSteps = 3;

}  // namespace

StateId Builder::add(const State& state) {
  work_.spend(kStateSteps);
  automaton_.states.push_back(state);
  return static_cast<StateId>(automaton_.states.size() - 1);
}

StateId Builder::ret() {
  if (!ret_) ret_ = add({});
  return *ret_;
}

StateId Builder::call(StateId rule, StateId next) {
  State state{.kind = StateKind::call, .next = next, .rule = rule};
  return add(state);
}

StateId Builder::split(const std::vector<StateId>& targets) {
  if (targets.size() == 1) return targets[0];
  const StateId state = reserve();
  fill(state, targets);
  return state;
}

StateId Builder::reserve() { return add({.kind = StateKind::split}); }

void Builder::fill(StateId reserved, const std::vector<StateId>& targets) {
  work_.spend(targets.size());
  State& state = automaton_.states[reserved];
  state.first = static_cast<uint32_t>(automaton_.targets.size());
  state.count = static_cast<uint32_t>(targets.size());
  automaton_.targets.insert(automaton_.targets.end(), targets.begin(), targets.end());
}

StateId Builder::bytes(const std::vector<ByteEdge>& edges) {
  work_.spend(edges.size() * kEdgeSteps);
  State state{.kind = StateKind::bytes};
  state.first = static_cast<uint32_t>(automaton_.edges.size());
  state.count = static_cast<uint32_t>(edges.size());
  automaton_.edges.insert(automaton_.edges.end(), edges.begin(), edges.end());
  return add(state);
}

StateId Builder::byte(char c, StateId next) {
  const auto value = static_cast<uint8_t>(c);
  return bytes({{value, value, next}});
}

StateId Builder::text(std::string_view text, StateId next) {
  for (size_t at = text.size(); at-- > 0;) next = byte(text[at], next);
  return next;
}

StateId Builder::texts(std::vector<std::string> texts, StateId next) {
  std::sort(texts.begin(), texts.end());
  texts.erase(std::unique(texts.begin(), texts.end()), texts.end());
  // The texts first to last - 1 agree in their first `depth` bytes. Recurses only where texts part,
  // so that long texts with a long common prefix do not need a deep stack.
  const std::function<StateId(size_t, size_t, size_t)> node = [&](size_t first, size_t last,
                                                                  size_t depth) {
    const std::string_view least = texts[first], greatest = texts[last - 1];
    if (last - first == 1) return text(least.substr(depth), next);
    size_t agreed = depth;
    while (agreed < least.size() && least[agreed] == greatest[agreed]) ++agreed;
    std::vector<StateId> targets;
    if (least.size() == agreed) targets.push_back(next), ++first;
    std::vector<ByteEdge> edges;
    while (first < last) {
      const char c = texts[first][agreed];
      size_t end = first + 1;
      while (end < last && texts[end][agreed] == c) ++end;
      const auto value = static_cast<uint8_t>(c);
      edges.push_back({value, value, node(first, end, agreed + 1)});
      first = end;
    }
    targets.push_back(bytes(edges));
    return text(least.substr(depth, agreed - depth), split(targets));
  };
  return node(0, texts.size(), 0);
}

StateId Builder::space(StateId next) { return split({next, byte(' ', next)}); }

StateId Builder::gap(StateId next) {
  if (!indent_) {
    StateId indent = ret();
    for (int i = 0; i < kMaxIndent; ++i) indent = split({ret(), byte(' ', indent)});
    indent_ = byte('\n', indent);
  }
  return split({next, byte(' ', next), call(*indent_, next)});
}

StateId Builder::string(uint32_t min, uint32_t max, StateId next) {
  return byte('"', add({.kind = StateKind::string, .next = next, .min = min, .max = max}));
}

StateId Builder::constant(const Json& value, StateId next) {
  const auto fixed = [this](const Json& inner) {
    return [this, &inner](StateId after) { return constant(inner, after); };
  };
  if (value.is_array()) {
    Array fields;
    for (const Json& item : value) fields.prefix.push_back(fixed(item));
    fields.min = static_cast<uint32_t>(value.size());
    return array(fields, next);
  }
  if (value.is_object()) {
    Object fields;
    for (const auto& [name, inner] : value.items()) {
      fields.properties.push_back({name, true, fixed(inner)});
    }
    return object(fields, next);
  }
  return text(value.dump(), next);
}

StateId Builder::any_value(StateId next) {
  if (!any_) {
    any_ = reserve();
    const Part any = [this](StateId after) { return any_value(after); };
    fill(*any_, {object({{}, any}, ret()), array({{}, any}, ret()), string(0, kNoLimit, ret()),
                 number(true, ret()), texts({"true", "false", "null"}, ret())});
  }
  return call(*any_, next);
}

Automaton Builder::finish(StateId start) {
  automaton_.start = start;
  compute_heights(automaton_, work_);
  return std::exchange(automaton_, {});
}

}  // namespace ridge::grammar
