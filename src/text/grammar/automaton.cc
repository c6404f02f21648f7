#include "text/grammar/automaton.h"

#include <algorithm>

namespace ridge::grammar {

namespace {

uint32_t height_of(const Automaton& automaton, const State& state) {
  const std::vector<uint32_t>& heights = automaton.heights;
  uint32_t least = kNeverEnds;
  const auto reach = [&](StateId target) { least = std::min(least, heights[target]); };
  switch (state.kind) {
    case StateKind::ret:
    case StateKind::keys:  // start_keys and each step through a key see to it
      return 0;
    case StateKind::bytes:
      for (uint32_t i = 0; i < state.count; ++i) reach(automaton.edges[state.first + i].target);
      return least;
    case StateKind::split:
      for (uint32_t i = 0; i < state.count; ++i) reach(automaton.targets[state.first + i]);
      return least;
    case StateKind::start_keys: {
      const ObjectKeys& object = automaton.objects[state.rule];
      for (uint32_t i = state.min; i <= object.required[state.min]; ++i) {
        if (i < object.complete.size()) reach(object.complete[i]);
      }
      if (object.others_after(state.min)) reach(object.other_complete);
      return least;
    }
    case StateKind::call:
      return std::min(kNeverEnds, std::max(heights[state.rule] + 1, heights[state.next]));
    case StateKind::enough:
      // Items may still be missing: they need a frame and their own.
      return std::min(kNeverEnds,
                      std::max(heights[state.next], state.min > 0 ? heights[state.rule] + 1 : 0));
    case StateKind::string:
    case StateKind::again:
      return heights[state.next];
  }
  return kNeverEnds;
}

enum class Visit : uint8_t { none, open, closed };

// Depth first along the transitions that read nothing.
bool meets_itself(const Automaton& automaton, StateId id, std::vector<Visit>& visits) {
  if (visits[id] != Visit::none) return visits[id] == Visit::open;
  visits[id] = Visit::open;
  const State& state = automaton.states[id];
  bool cycle = false;
  switch (state.kind) {
    case StateKind::split:
      for (uint32_t i = 0; i < state.count && !cycle; ++i) {
        cycle = meets_itself(automaton, automaton.targets[state.first + i], visits);
      }
      break;
    case StateKind::call:
      cycle = meets_itself(automaton, state.rule, visits);
      break;
    case StateKind::start_keys:
    case StateKind::again:
    case StateKind::enough:
      cycle = meets_itself(automaton, state.next, visits);
      break;
    case StateKind::bytes:
    case StateKind::string:
    case StateKind::keys:
    case StateKind::ret:
      break;
  }
  visits[id] = Visit::closed;
  return cycle;
}

}  // namespace

void compute_heights(Automaton& automaton, WorkLimit& work) {
  automaton.heights.assign(automaton.states.size(), kNeverEnds);
  // Heights only sink; most states come after those that they lead to, so few passes are needed.
  for (bool changed = true; changed;) {
    changed = false;
    work.spend(automaton.states.size() / 2);
    for (StateId id = 0; id < automaton.states.size(); ++id) {
      uint32_t height = height_of(automaton, automaton.states[id]);
      // What cannot be run counts as endless, so that long chains of rules need few passes, too.
      if (height > kMaxFrames) height = kNeverEnds;
      changed |= height != automaton.heights[id];
      automaton.heights[id] = height;
    }
  }
}

bool left_recursive(const Automaton& automaton) {
  std::vector<Visit> visits(automaton.states.size(), Visit::none);
  for (StateId id = 0; id < automaton.states.size(); ++id) {
    if (meets_itself(automaton, id, visits)) return true;
  }
  return false;
}

}  // namespace ridge::grammar
