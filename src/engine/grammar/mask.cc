#include "engine/grammar/mask.h"

#include <algorithm>
#include <vector>

namespace ridge::grammar {

namespace {

using StringTokens = VocabularyTrie::StringTokens;

void set_bit(std::span<uint32_t> mask, Token token) {
  mask[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
}

class MaskWalk {
 public:
  MaskWalk(const Automaton& automaton, const VocabularyTrie& vocabulary, const Matcher& place,
           std::span<uint32_t> mask)
      : automaton_(automaton),
        vocabulary_(vocabulary),
        pool_(place.pool()),
        mask_(mask),
        levels_(vocabulary.longest() + 1),
        path_(vocabulary.longest() + 1) {}

  // All tokens below `root`, to which `threads` have come.
  void walk(uint32_t root, const Threads& threads);
  // All tokens from inside a string, between two characters.
  void walk_string(Thread thread);

 private:
  bool continues_string(uint32_t node, const Threads& threads) const;
  void walk_rest_of_string(uint32_t node, Thread thread);
  void close_string(std::span<const StringTokens::Closing> closings, Thread thread, uint32_t fewest,
                    uint32_t most);
  void set_tokens(uint32_t node) {
    for (Token token : vocabulary_.tokens(node)) set_bit(mask_, token);
  }

  const Automaton& automaton_;
  const VocabularyTrie& vocabulary_;
  StackPool pool_;
  std::span<uint32_t> mask_;
  struct Level {
    Threads threads;
    uint32_t pool_size = 0;  // with these threads' frames
  };
  std::vector<Level> levels_;  // by depth
  std::vector<uint8_t> path_;  // by depth: bytes from the root of the trie
};

bool between_characters(const Automaton& automaton, const Thread& thread) {
  return automaton.states[thread.top.state].kind == StateKind::string &&
         StringPlace::of(thread.top.value).inside == kStringBody;
}

void MaskWalk::walk(uint32_t root, const Threads& threads) {
  const uint32_t mark = pool_.size(), end = vocabulary_.end(root);
  levels_[vocabulary_.depth(root)].threads = threads;
  levels_[vocabulary_.depth(root)].pool_size = mark;
  for (uint32_t node = root + 1; node < end;) {
    const uint32_t depth = vocabulary_.depth(node);
    const Level& before = levels_[depth - 1];
    Level& level = levels_[depth];
    path_[depth] = vocabulary_.byte(node);
    level.threads.clear();
    pool_.shrink(before.pool_size);
    for (const Thread& thread : before.threads) {
      step(automaton_, pool_, thread, path_[depth], level.threads);
    }
    if (level.threads.empty()) {
      node = vocabulary_.end(node);
      continue;
    }
    level.pool_size = pool_.size();
    set_tokens(node);
    if (root == 0 && continues_string(node, level.threads)) {
      walk_rest_of_string(node, level.threads[0]);
      node = vocabulary_.end(node);
    } else {
      ++node;
    }
  }
  pool_.shrink(mark);
}

// True if the table of string tokens says what becomes of the tokens below the node: the place is
// in a string without bounds, and so would it be had the whole path been read in that string. This
// is so for most tokens where a key starts that may have any name but those of the properties.
bool MaskWalk::continues_string(uint32_t node, const Threads& threads) const {
  if (threads.size() != 1 || !between_characters(automaton_, threads[0])) return false;
  const State& state = automaton_.states[threads[0].top.state];
  if (state.min > 0 || state.max != kNoLimit) return false;
  StringState inside = kStringBody;
  for (uint32_t depth = 1; depth <= vocabulary_.depth(node) && inside < kStringEnd; ++depth) {
    inside = string_step(state.string_kind, inside, path_[depth]);
  }
  return inside == kStringBody;
}

void MaskWalk::walk_rest_of_string(uint32_t node, Thread thread) {
  const StringTokens& tokens =
      vocabulary_.string_tokens(automaton_.states[thread.top.state].string_kind);
  for (Token token : vocabulary_.tokens_below(node)) {
    const auto word = static_cast<size_t>(token) / 32;
    mask_[word] |= tokens.mask[word] & 1u << (token % 32);
  }
  const auto at = [&](uint32_t bound) {
    return std::partition_point(
        tokens.closing.begin(), tokens.closing.end(),
        [&](const StringTokens::Closing& closing) { return closing.node < bound; });
  };
  close_string({at(node), at(vocabulary_.end(node))}, thread, 0, kNoLimit);
}

// The tokens that begin at most `room` characters.
void add_inside(const StringTokens& tokens, uint32_t room, std::span<uint32_t> mask) {
  const auto past = std::partition_point(
      tokens.inside.begin(), tokens.inside.end(),
      [&](const StringTokens::Inside& inside) { return inside.characters <= room; });
  if (past == tokens.inside.end()) {
    for (size_t i = 0; i < tokens.mask.size(); ++i) mask[i] |= tokens.mask[i];
  } else {
    for (auto inside = tokens.inside.begin(); inside != past; ++inside) {
      set_bit(mask, inside->token);
    }
  }
}

void MaskWalk::walk_string(Thread thread) {
  const State& state = automaton_.states[thread.top.state];
  const StringTokens& tokens = vocabulary_.string_tokens(state.string_kind);
  const uint32_t characters = StringPlace::of(thread.top.value).characters;
  const uint32_t room = state.max == kNoLimit ? kNoLimit : state.max - characters;
  const uint32_t missing = state.min > characters ? state.min - characters : 0;
  add_inside(tokens, room, mask_);
  close_string(tokens.closing, thread, missing, room);
}

void MaskWalk::close_string(std::span<const StringTokens::Closing> closings, Thread thread,
                            uint32_t fewest, uint32_t most) {
  const uint32_t mark = pool_.size();
  Threads closed;
  enter(automaton_, pool_, {automaton_.states[thread.top.state].next, 0}, thread.below, closed);
  for (const StringTokens::Closing& closing : closings) {
    if (closing.characters < fewest || closing.characters > most) continue;
    set_tokens(closing.node);
    if (vocabulary_.end(closing.node) > closing.node + 1) walk(closing.node, closed);
  }
  pool_.shrink(mark);
}

}  // namespace

void fill_mask(const Automaton& automaton, const VocabularyTrie& vocabulary, const Matcher& place,
               std::span<uint32_t> mask) {
  MaskWalk walk(automaton, vocabulary, place, mask);
  Threads others;
  for (const Thread& thread : place.threads()) {
    if (between_characters(automaton, thread)) {
      walk.walk_string(thread);
    } else {
      others.push_back(thread);
    }
  }
  if (!others.empty()) walk.walk(0, others);
}

std::u32string mask_key(const Automaton& automaton, const VocabularyTrie& vocabulary,
                        const Matcher& place) {
  std::u32string key;
  const StackPool& pool = place.pool();
  key.reserve(4 * (pool.size() + place.threads().size()));
  const auto add = [&](std::initializer_list<uint32_t> words) {
    for (uint32_t word : words) key.push_back(static_cast<char32_t>(word));
  };
  add({pool.size()});
  for (uint32_t node = 1; node < pool.size(); ++node) {
    add({pool[node].frame.state, pool[node].frame.value, pool[node].below});
  }
  for (const Thread& thread : place.threads()) {
    const State& state = automaton.states[thread.top.state];
    uint32_t value = thread.top.value, room = 0;
    if (state.kind == StateKind::string) {
      // A bound that no token reaches might as well be farther away.
      const StringPlace string = StringPlace::of(value);
      const uint32_t reach = vocabulary.longest();
      const uint32_t missing = state.min - std::min(state.min, string.characters);
      value = string.inside | std::min(missing, reach) << 8;
      room = std::min(state.max - std::min(state.max, string.characters), reach);
    }
    add({thread.top.state, value, room, thread.below});
  }
  return key;
}

}  // namespace ridge::grammar
