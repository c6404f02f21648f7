// Structured output: which tokens may come next so that the text stays a prefix of a JSON document
// that satisfies a schema.
//
//   Tokenizer --VocabularyTrie--\.
//   JSON schema --compile_schema--> Grammar --> GrammarState, one for each sequence
//
// A sampler asks the state for a mask before each draw and tells it the token afterwards.
//
// Schemas are strangers' text. Compiling one and making its first mask spends at most
// kMaxGrammarSteps of a WorkLimit (about 50 ms, 45 MiB), each further mask and each token at most
// kMaxTokenSteps (about 50 ms: all sequences of an engine wait while a mask is made). For
// comparison: 32 alternatives of objects with open keys take 1.2 ms a mask at 128 k tokens.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/json.h"
#include "text/grammar/automaton.h"
#include "text/grammar/matcher.h"
#include "text/grammar/vocabulary_trie.h"

namespace ridge {

inline constexpr uint64_t kMaxGrammarSteps = uint64_t{1} << 23;
inline constexpr uint64_t kMaxTokenSteps = uint64_t{1} << 23;

// What response_format {"type": "json_object"} means.
inline Json any_object_schema() { return Json{{"type", "object"}}; }

inline constexpr size_t kMaxCachedMaskBytes = 6 << 20;  // 256 masks of 128 k tokens and their keys

// A compiled schema with a vocabulary. Immutable but for a cache of at most kMaxCachedMaskBytes of
// masks, which is locked: many requests on many threads share one.
class Grammar {
 public:
  // Throws OptionError("response_format", ...) that names the keyword which is malformed or not
  // supported (json_schema.h lists them). Properties are written in the order of `schema`, so it
  // must be parsed as ordered JSON. Makes the first mask, too, so that a schema whose masks cost
  // too much is refused here: throws WorkLimitError.
  Grammar(const Json& schema, std::shared_ptr<const VocabularyTrie> vocabulary, WorkLimit& work);
  Grammar(const Json& schema, std::shared_ptr<const VocabularyTrie> vocabulary);  // no time limit

  const grammar::Automaton& automaton() const { return automaton_; }
  const VocabularyTrie& vocabulary() const { return *vocabulary_; }

  // The mask of a place in the automaton, as GrammarState::allowed() documents it.
  void allowed(const grammar::Matcher& place, std::span<uint32_t> mask) const;
  size_t bytes() const;  // of the automaton and the masks, about

 private:
  using Mask = std::vector<uint32_t>;
  // `work` null: kMaxTokenSteps.
  std::shared_ptr<const Mask> mask_of(const grammar::Matcher& place, WorkLimit* work) const;

  grammar::Automaton automaton_;
  std::shared_ptr<const VocabularyTrie> vocabulary_;
  mutable std::mutex mutex_;
  mutable std::unordered_map<std::u32string, std::shared_ptr<const Mask>> masks_;
  mutable size_t mask_bytes_ = 0;  // with the keys
};

// One sequence's place in its document. Copies are cheap and independent: to roll back, keep a
// copy. Different states may be used by different threads at once.
class GrammarState {
 public:
  explicit GrammarState(std::shared_ptr<const Grammar> grammar);

  // Bit t % 32 of mask[t / 32] is set exactly where token t may come next: tokens of text that keep
  // the document completable, and the tokenizer's end tokens where may_end(). Other control tokens
  // and tokens without text are never allowed; words past the vocabulary are cleared. The span
  // holds at least (vocabulary + 31) / 32 words. At least one bit is set if every byte is a token.
  // This and accept() throw WorkLimitError beyond kMaxTokenSteps; then nothing has changed.
  void allowed(std::span<uint32_t> mask) const;
  // Moves past the token. False, and nothing has changed, where it is not allowed. An end token is
  // accepted where may_end() and changes nothing.
  bool accept(Token token);
  // The same for text that need not be a token.
  bool accept(std::string_view bytes);

  bool may_end() const { return place_.may_end(); }    // the text so far is a whole document
  bool finished() const { return place_.finished(); }  // and nothing can follow it

 private:
  std::shared_ptr<const Grammar> grammar_;
  grammar::Matcher place_;
};

}  // namespace ridge
