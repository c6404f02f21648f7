#include "text/grammar/matcher.h"

#include <algorithm>
#include <bit>

namespace ridge::grammar {

namespace {

// A frame on a stack takes memory: it spends more than a frame that is only entered.
constexpr uint64_t kPushSteps = 4;
constexpr size_t kComparedPerStep = 16;
// How far back a push looks for an equal node. Equal nodes are pushed by readings of the same byte,
// close together.
constexpr uint32_t kPushWindow = 64;

// What may become of a key that has been read as far as `node`.
struct KeyOutlook {
  bool property = false;  // one that may come now
  bool other = false;     // another name
};

KeyOutlook key_outlook(const Automaton& automaton, const KeyNode& node, uint32_t first,
                       uint32_t frames, WorkLimit& work) {
  const ObjectKeys& object = automaton.objects[node.object];
  const auto fits = [&](StateId state) { return frames + automaton.heights[state] <= kMaxFrames; };
  KeyOutlook outlook;
  auto property = std::lower_bound(node.properties.begin(), node.properties.end(), first);
  for (; property != node.properties.end() && *property <= object.required[first]; ++property) {
    if (fits(object.complete[*property])) {
      outlook.property = true;
      break;
    }
    work.spend();
  }
  outlook.other = object.others_after(first) && !node.leaf && node.inside != kStringFail &&
                  fits(object.other_complete);
  return outlook;
}

}  // namespace

void PlaceTable::clear() {
  places_.clear();
  slots_.clear();
}

size_t PlaceTable::slot_of(Frame frame, uint32_t below) const {
  uint64_t hash = (uint64_t{frame.state} << 32 | frame.value) * 0x9E3779B97F4A7C15;
  hash = (hash ^ hash >> 29 ^ below) * 0xBF58476D1CE4E5B9;
  const size_t mask = slots_.size() - 1;
  size_t slot = static_cast<size_t>(hash >> 24) & mask;
  for (; slots_[slot] != 0; slot = (slot + 1) & mask) {
    const Place& place = places_[slots_[slot] - 1];
    if (place.frame == frame && place.below == below) break;
  }
  return slot;
}

void PlaceTable::grow() {
  slots_.assign(std::bit_ceil(4 * (places_.size() + 1)), 0);
  for (size_t i = 0; i < places_.size(); ++i) {
    slots_[slot_of(places_[i].frame, places_[i].below)] = static_cast<uint32_t>(i) + 1;
  }
}

std::pair<uint32_t, bool> PlaceTable::insert(Frame frame, uint32_t below, uint32_t number) {
  constexpr size_t kSearched = 16;
  if (places_.size() < kSearched) {
    for (const Place& place : places_) {
      if (place.frame == frame && place.below == below) return {place.number, false};
    }
  } else {
    if (slots_.size() < 2 * (places_.size() + 1)) grow();
    const size_t slot = slot_of(frame, below);
    if (slots_[slot] != 0) return {places_[slots_[slot] - 1].number, false};
    slots_[slot] = static_cast<uint32_t>(places_.size()) + 1;
  }
  places_.push_back({frame, below, number});
  return {number, true};
}

uint32_t StackPool::push(Frame frame, uint32_t below) {
  const uint32_t oldest = size() > kPushWindow ? size() - kPushWindow : 1;
  for (uint32_t node = size(); node-- > oldest;) {
    if (nodes_[node].below == below && nodes_[node].frame == frame) return node;
  }
  return add(frame, below);
}

uint32_t StackPool::add(Frame frame, uint32_t below) {
  nodes_.push_back({frame, below, nodes_[below].frames + 1});
  return size() - 1;
}

void Reader::forget() {
  entered_.clear();
  pushed_.clear();
}

inline void Reader::add_thread(Thread thread) {
  if (pool_[thread.below].frames + automaton_.heights[thread.top.state] > kMaxFrames) return;
  if (out_->size() >= kComparedPerStep) work_.spend(out_->size() / kComparedPerStep);
  if (out_->size() >= kMaxThreads || std::find(out_->begin(), out_->end(), thread) != out_->end())
    return;
  out_->push_back(thread);
}

// The node of the frame: the one that this byte has pushed, if it has.
uint32_t Reader::push(Frame frame, uint32_t below) {
  if (entries_ <= kFewFrames) return pool_.push(frame, below);
  const auto [node, is_new] = pushed_.insert(frame, below, pool_.size());
  if (!is_new) return node;
  work_.spend(kPushSteps);
  return pool_.add(frame, below);
}

void Reader::enter(Frame frame, uint32_t below) {
  const State& state = automaton_.states[frame.state];
  if (++entries_ > kFewFrames) {
    work_.spend();
    // Several ways may come together in these: without a memory of them, ways multiply.
    const bool joins = state.kind == StateKind::split || state.kind == StateKind::call ||
                       (state.kind == StateKind::ret && below != 0);
    if (joins && !entered_.insert(frame, below).second) return;
  }
  switch (state.kind) {
    case StateKind::bytes:
    case StateKind::keys:
      add_thread({frame, below});
      break;
    case StateKind::string:
      add_thread({{frame.state, StringPlace{0, kStringBody}.value()}, below});
      break;
    case StateKind::split:
      for (uint32_t i = 0; i < state.count; ++i) {
        enter({automaton_.targets[state.first + i], frame.value}, below);
      }
      break;
    case StateKind::call:
      if (pool_[below].frames + automaton_.heights[frame.state] <= kMaxFrames) {
        enter({state.rule, 0}, push({state.next, frame.value}, below));
      }
      break;
    case StateKind::ret:
      if (below == 0) {
        add_thread({frame, below});
      } else {
        const StackPool::Node node = pool_[below];
        enter(node.frame, node.below);
      }
      break;
    case StateKind::start_keys:
      enter({state.next, state.min}, below);
      break;
    case StateKind::again:
      if (frame.value < state.max) {
        // Without an upper bound, items count only up to the lower one.
        const bool counts = state.max != kNoLimit || frame.value < state.min;
        enter({state.next, frame.value + (counts ? 1 : 0)}, below);
      }
      break;
    case StateKind::enough:
      if (frame.value >= state.min) enter({state.next, 0}, below);
      break;
  }
}

void Reader::step_string(Thread thread, uint8_t byte) {
  const State& state = automaton_.states[thread.top.state];
  StringPlace place = StringPlace::of(thread.top.value);
  const StringState inside = string_step(state.string_kind, place.inside, byte);
  if (inside == kStringFail) return;
  if (inside == kStringEnd) {
    if (place.characters >= state.min) enter({state.next, 0}, thread.below);
    return;
  }
  if (place.inside == kStringBody) {
    if (place.characters >= state.max) return;
    // Without an upper bound, characters count only up to the lower one.
    if (state.max != kNoLimit || place.characters < state.min) ++place.characters;
  }
  place.inside = inside;
  add_thread({{thread.top.state, place.value()}, thread.below});
}

void Reader::step_key(Thread thread, uint8_t byte) {
  const KeyNode& node = automaton_.keys[automaton_.states[thread.top.state].first];
  const ObjectKeys& object = automaton_.objects[node.object];
  const uint32_t first = thread.top.value, frames = pool_[thread.below].frames;
  if (node.edges.size() >= kComparedPerStep) work_.spend(node.edges.size() / kComparedPerStep);
  for (const ByteEdge& edge : node.edges) {
    if (edge.low != byte) continue;
    const KeyNode& child = automaton_.keys[automaton_.states[edge.target].first];
    const KeyOutlook outlook = key_outlook(automaton_, child, first, frames, work_);
    if (child.leaf && outlook.property) {
      enter({object.complete[child.properties[0]], 0}, thread.below);
    } else if (outlook.property || outlook.other) {
      add_thread({{edge.target, first}, thread.below});
    }
    return;
  }
  if (!key_outlook(automaton_, node, first, frames, work_).other) return;
  const StringState inside = string_step(StringKind::key, node.inside, byte);
  if (inside == kStringFail) return;
  if (inside == kStringEnd) {
    enter({object.other_complete, 0}, thread.below);
  } else {
    const StringPlace place{0, inside};
    add_thread({{object.other_inside, place.value()}, thread.below});
  }
}

void Reader::step(Thread thread, uint8_t byte) {
  const State& state = automaton_.states[thread.top.state];
  switch (state.kind) {
    case StateKind::bytes:
      for (uint32_t i = 0; i < state.count; ++i) {
        const ByteEdge& edge = automaton_.edges[state.first + i];
        if (byte >= edge.low && byte <= edge.high) {
          enter({edge.target, thread.top.value}, thread.below);
        }
      }
      break;
    case StateKind::string:
      step_string(thread, byte);
      break;
    case StateKind::keys:
      step_key(thread, byte);
      break;
    default:
      break;  // the end of the document
  }
}

Matcher::Matcher(const Automaton& automaton, WorkLimit& work) {
  Reader reader(automaton, pool_, work);
  reader.begin_byte(1, threads_);
  reader.enter({automaton.start, 0}, 0);
}

bool Matcher::accept(const Automaton& automaton, std::string_view bytes, WorkLimit& work) {
  StackPool pool = pool_;
  Reader reader(automaton, pool, work);
  Threads now = threads_, next;
  for (char byte : bytes) {
    next.clear();
    reader.begin_byte(now.size(), next);
    for (const Thread& thread : now) reader.step(thread, static_cast<uint8_t>(byte));
    std::swap(now, next);
    if (now.empty()) return false;
  }
  pool_ = std::move(pool);
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
  PlaceTable known;
  place[0] = 0;
  for (uint32_t node = 1; node < pool_.size(); ++node) {
    if (place[node] == 0) continue;
    const uint32_t below = place[pool_[node].below];
    const auto [number, is_new] = known.insert(pool_[node].frame, below, kept.size());
    place[node] = is_new ? kept.add(pool_[node].frame, below) : number;
  }
  for (Thread& thread : threads_) thread.below = place[thread.below];
  pool_ = std::move(kept);
}

}  // namespace ridge::grammar
