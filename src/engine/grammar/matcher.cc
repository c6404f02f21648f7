#include "engine/grammar/matcher.h"

#include <algorithm>

namespace ridge::grammar {

namespace {

// How far back a push looks for an equal node. Equal nodes are pushed by readings of the same byte,
// close together; one that is not found costs time, not correctness.
constexpr uint32_t kPushWindow = 64;

void add_thread(const Automaton& automaton, const StackPool& pool, Thread thread, Threads& out) {
  if (pool[thread.below].frames + automaton.heights[thread.top.state] > kMaxFrames) return;
  if (out.size() >= kMaxThreads || std::find(out.begin(), out.end(), thread) != out.end()) return;
  out.push_back(thread);
}

void step_string(const Automaton& automaton, StackPool& pool, Thread thread, uint8_t byte,
                 Threads& out) {
  const State& state = automaton.states[thread.top.state];
  StringPlace place = StringPlace::of(thread.top.value);
  const StringState inside = string_step(state.string_kind, place.inside, byte);
  if (inside == kStringFail) return;
  if (inside == kStringEnd) {
    if (place.characters >= state.min) {
      enter(automaton, pool, {state.next, 0}, thread.below, out);
    }
    return;
  }
  if (place.inside == kStringBody) {
    if (place.characters >= state.max) return;
    // Without an upper bound, characters count only up to the lower one.
    if (state.max != kNoLimit || place.characters < state.min) ++place.characters;
  }
  place.inside = inside;
  add_thread(automaton, pool, {{thread.top.state, place.value()}, thread.below}, out);
}

// What may become of a key that has been read as far as `node`.
struct KeyOutlook {
  bool property = false;  // one that may come now
  bool other = false;     // another name
};

KeyOutlook key_outlook(const Automaton& automaton, const KeyNode& node, uint32_t first,
                       uint32_t frames) {
  const ObjectKeys& object = automaton.objects[node.object];
  const auto fits = [&](StateId state) { return frames + automaton.heights[state] <= kMaxFrames; };
  KeyOutlook outlook;
  auto property = std::lower_bound(node.properties.begin(), node.properties.end(), first);
  for (; property != node.properties.end() && *property <= object.required[first]; ++property) {
    if (fits(object.complete[*property])) {
      outlook.property = true;
      break;
    }
  }
  outlook.other = object.others_after(first) && !node.leaf && node.inside != kStringFail &&
                  fits(object.other_complete);
  return outlook;
}

void step_key(const Automaton& automaton, StackPool& pool, Thread thread, uint8_t byte,
              Threads& out) {
  const KeyNode& node = automaton.keys[automaton.states[thread.top.state].first];
  const ObjectKeys& object = automaton.objects[node.object];
  const uint32_t first = thread.top.value, frames = pool[thread.below].frames;
  for (const ByteEdge& edge : node.edges) {
    if (edge.low != byte) continue;
    const KeyNode& child = automaton.keys[automaton.states[edge.target].first];
    const KeyOutlook outlook = key_outlook(automaton, child, first, frames);
    if (child.leaf && outlook.property) {
      enter(automaton, pool, {object.complete[child.properties[0]], 0}, thread.below, out);
    } else if (outlook.property || outlook.other) {
      add_thread(automaton, pool, {{edge.target, first}, thread.below}, out);
    }
    return;
  }
  if (!key_outlook(automaton, node, first, frames).other) return;
  const StringState inside = string_step(StringKind::key, node.inside, byte);
  if (inside == kStringFail) return;
  if (inside == kStringEnd) {
    enter(automaton, pool, {object.other_complete, 0}, thread.below, out);
  } else {
    const StringPlace place{0, inside};
    add_thread(automaton, pool, {{object.other_inside, place.value()}, thread.below}, out);
  }
}

}  // namespace

uint32_t StackPool::push(Frame frame, uint32_t below) {
  const uint32_t oldest = size() > kPushWindow ? size() - kPushWindow : 1;
  for (uint32_t node = size(); node-- > oldest;) {
    if (nodes_[node].below == below && nodes_[node].frame == frame) return node;
  }
  nodes_.push_back({frame, below, nodes_[below].frames + 1});
  return size() - 1;
}

void enter(const Automaton& automaton, StackPool& pool, Frame frame, uint32_t below, Threads& out) {
  const State& state = automaton.states[frame.state];
  switch (state.kind) {
    case StateKind::bytes:
    case StateKind::keys:
      add_thread(automaton, pool, {frame, below}, out);
      break;
    case StateKind::string:
      add_thread(automaton, pool, {{frame.state, StringPlace{0, kStringBody}.value()}, below}, out);
      break;
    case StateKind::split:
      for (uint32_t i = 0; i < state.count; ++i) {
        enter(automaton, pool, {automaton.targets[state.first + i], frame.value}, below, out);
      }
      break;
    case StateKind::call:
      if (pool[below].frames + automaton.heights[frame.state] <= kMaxFrames) {
        const uint32_t pushed = pool.push({state.next, frame.value}, below);
        enter(automaton, pool, {state.rule, 0}, pushed, out);
      }
      break;
    case StateKind::ret:
      if (below == 0) {
        add_thread(automaton, pool, {frame, below}, out);
      } else {
        const StackPool::Node node = pool[below];
        enter(automaton, pool, node.frame, node.below, out);
      }
      break;
    case StateKind::start_keys:
      enter(automaton, pool, {state.next, state.min}, below, out);
      break;
    case StateKind::again:
      if (frame.value < state.max) {
        // Without an upper bound, items count only up to the lower one.
        const bool counts = state.max != kNoLimit || frame.value < state.min;
        enter(automaton, pool, {state.next, frame.value + (counts ? 1 : 0)}, below, out);
      }
      break;
    case StateKind::enough:
      if (frame.value >= state.min) enter(automaton, pool, {state.next, 0}, below, out);
      break;
  }
}

void step(const Automaton& automaton, StackPool& pool, Thread thread, uint8_t byte, Threads& out) {
  const State& state = automaton.states[thread.top.state];
  switch (state.kind) {
    case StateKind::bytes:
      for (uint32_t i = 0; i < state.count; ++i) {
        const ByteEdge& edge = automaton.edges[state.first + i];
        if (byte >= edge.low && byte <= edge.high) {
          enter(automaton, pool, {edge.target, thread.top.value}, thread.below, out);
        }
      }
      break;
    case StateKind::string:
      step_string(automaton, pool, thread, byte, out);
      break;
    case StateKind::keys:
      step_key(automaton, pool, thread, byte, out);
      break;
    default:
      break;  // the end of the document
  }
}

Matcher::Matcher(const Automaton& automaton) {
  enter(automaton, pool_, {automaton.start, 0}, 0, threads_);
}

bool Matcher::accept(const Automaton& automaton, std::string_view bytes) {
  const uint32_t mark = pool_.size();
  Threads now = threads_, next;
  for (char byte : bytes) {
    next.clear();
    for (const Thread& thread : now) {
      step(automaton, pool_, thread, static_cast<uint8_t>(byte), next);
    }
    std::swap(now, next);
    if (now.empty()) {
      pool_.shrink(mark);
      return false;
    }
  }
  threads_ = std::move(now);
  compact();
  may_end_ = std::any_of(threads_.begin(), threads_.end(), [&](const Thread& thread) {
    return automaton.states[thread.top.state].kind == StateKind::ret;
  });
  return true;
}

void Matcher::compact() {
  // A node lies above the nodes it refers to, so one pass downwards finds all that are in use.
  std::vector<uint32_t> place(pool_.size());
  for (const Thread& thread : threads_) place[thread.below] = 1;
  for (uint32_t node = pool_.size(); node-- > 1;) {
    if (place[node] != 0) place[pool_[node].below] = 1;
  }
  StackPool kept;
  place[0] = 0;
  for (uint32_t node = 1; node < pool_.size(); ++node) {
    if (place[node] != 0) place[node] = kept.push(pool_[node].frame, place[pool_[node].below]);
  }
  for (Thread& thread : threads_) thread.below = place[thread.below];
  pool_ = std::move(kept);
}

}  // namespace ridge::grammar
