#include "text/grammar/mask.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

namespace ridge::grammar {

namespace {

using StringTokens = VocabularyTrie::StringTokens;

constexpr size_t kTokensPerStep = 8, kWordsPerStep = 32;

void set_bit(std::span<uint32_t> mask, Token token) {
  mask[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
}

class MaskWalk {
 public:
  MaskWalk(const Automaton& automaton, const VocabularyTrie& vocabulary, const Matcher& place,
           std::span<uint32_t> mask, WorkLimit& work)
      : automaton_(automaton),
        vocabulary_(vocabulary),
        work_(work),
        pool_(place.pool()),
        reader_(automaton, pool_, work),
        mask_(mask),
        levels_(vocabulary.longest() + 1),
        path_(vocabulary.longest() + 1) {}

  // All tokens below `root`, to which `threads` have come.
  void walk(uint32_t root, const Threads& threads);
  // All tokens from inside a string, between two characters.
  void walk_string(Thread thread);

 private:
  void finish_strings(uint32_t node, Threads& threads);
  bool continues_string(uint32_t node, Thread thread) const;
  void close_string_below(uint32_t node, Thread thread);
  void close_string(std::span<const StringTokens::Closing> closings, Thread thread, uint32_t fewest,
                    uint32_t most);
  void set_tokens(uint32_t node) {
    for (Token token : vocabulary_.tokens(node)) set_bit(mask_, token);
  }

  const Automaton& automaton_;
  const VocabularyTrie& vocabulary_;
  WorkLimit& work_;
  StackPool pool_;
  Reader reader_;
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
    reader_.begin_byte(before.threads.size(), level.threads);
    for (const Thread& thread : before.threads) {
      reader_.step(thread, path_[depth]);
    }
    if (level.threads.empty()) {
      node = vocabulary_.end(node);
      continue;
    }
    level.pool_size = pool_.size();
    set_tokens(node);
    const auto in_string = [&](const Thread& t) { return between_characters(automaton_, t); };
    // A quote would have ended the string in which a table begins.
    if (root == 0 && path_[1] != '"' &&
        std::any_of(level.threads.begin(), level.threads.end(), in_string)) {
      finish_strings(node, level.threads);
    }
    node = level.threads.empty() ? vocabulary_.end(node) : node + 1;
  }
  pool_.shrink(mark);
}

// Takes out the threads for which the tables of string tokens say what becomes of the tokens below
// the node. These are most threads where keys start that may have any name but the properties'.
void MaskWalk::finish_strings(uint32_t node, Threads& threads) {
  std::array<bool, kStringKinds> marked{};
  std::erase_if(threads, [&](const Thread& thread) {
    if (!continues_string(node, thread)) return false;
    const StringKind kind = automaton_.states[thread.top.state].string_kind;
    if (!std::exchange(marked[static_cast<size_t>(kind)], true)) {
      const std::span<const Token> below = vocabulary_.tokens_below(node);
      work_.spend(below.size() / kTokensPerStep);
      for (Token token : below) {
        const auto word = static_cast<size_t>(token) / 32;
        mask_[word] |= vocabulary_.string_tokens(kind).mask[word] & 1u << (token % 32);
      }
    }
    close_string_below(node, thread);
    return true;
  });
}

// True if the thread is in a string without bounds, and so would it be had the whole path been read
// in that string.
bool MaskWalk::continues_string(uint32_t node, Thread thread) const {
  if (!between_characters(automaton_, thread)) return false;
  const State& state = automaton_.states[thread.top.state];
  if (state.min > 0 || state.max != kNoLimit) return false;
  StringState inside = kStringBody;
  for (uint32_t depth = 1; depth <= vocabulary_.depth(node) && inside < kStringEnd; ++depth) {
    inside = string_step(state.string_kind, inside, path_[depth]);
  }
  return inside == kStringBody;
}

void MaskWalk::close_string_below(uint32_t node, Thread thread) {
  const StringTokens& tokens =
      vocabulary_.string_tokens(automaton_.states[thread.top.state].string_kind);
  const auto at = [&](uint32_t bound) {
    return std::partition_point(
        tokens.closing.begin(), tokens.closing.end(),
        [&](const StringTokens::Closing& closing) { return closing.node < bound; });
  };
  close_string({at(node), at(vocabulary_.end(node))}, thread, 0, kNoLimit);
}

// The tokens that begin at most `room` characters.
void add_inside(const StringTokens& tokens, uint32_t room, std::span<uint32_t> mask,
                WorkLimit& work) {
  const auto past = std::partition_point(
      tokens.inside.begin(), tokens.inside.end(),
      [&](const StringTokens::Inside& inside) { return inside.characters <= room; });
  if (past == tokens.inside.end()) {
    work.spend(tokens.mask.size() / kWordsPerStep);
    for (size_t i = 0; i < tokens.mask.size(); ++i) mask[i] |= tokens.mask[i];
  } else {
    work.spend(static_cast<size_t>(past - tokens.inside.begin()) / kTokensPerStep);
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
  add_inside(tokens, room, mask_, work_);
  close_string(tokens.closing, thread, missing, room);
}

void MaskWalk::close_string(std::span<const StringTokens::Closing> closings, Thread thread,
                            uint32_t fewest, uint32_t most) {
  const uint32_t mark = pool_.size();
  Threads closed;
  reader_.begin_byte(1, closed);
  reader_.enter({automaton_.states[thread.top.state].next, 0}, thread.below);
  work_.spend(closings.size());
  for (const StringTokens::Closing& closing : closings) {
    if (closing.characters < fewest || closing.characters > most) continue;
    set_tokens(closing.node);
    if (vocabulary_.end(closing.node) > closing.node + 1) walk(closing.node, closed);
  }
  pool_.shrink(mark);
}

}  // namespace

void fill_mask(const Automaton& automaton, const VocabularyTrie& vocabulary, const Matcher& place,
               std::span<uint32_t> mask, WorkLimit& work) {
  MaskWalk walk(automaton, vocabulary, place, mask, work);
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
