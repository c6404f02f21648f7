#include "engine/grammar/grammar.h"

#include <algorithm>
#include <utility>

#include "engine/grammar/json_schema.h"
#include "engine/grammar/mask.h"

namespace ridge {

namespace {

// 4 MiB of masks for a vocabulary of 128 k.
constexpr size_t kCachedMasks = 256;

}  // namespace

Grammar::Grammar(const Json& schema, std::shared_ptr<const VocabularyTrie> vocabulary)
    : automaton_(grammar::compile_schema(schema)), vocabulary_(std::move(vocabulary)) {}

void Grammar::allowed(const grammar::Matcher& place, std::span<uint32_t> mask) const {
  std::u32string key = mask_key(automaton_, *vocabulary_, place);
  std::shared_ptr<const Mask> known;
  {
    std::lock_guard lock(mutex_);
    const auto found = masks_.find(key);
    if (found != masks_.end()) known = found->second;
  }
  if (!known) {
    auto computed = std::make_shared<Mask>((static_cast<size_t>(vocabulary_->size()) + 31) / 32);
    fill_mask(automaton_, *vocabulary_, place, *computed);
    if (place.may_end()) {
      for (Token token : vocabulary_->ends()) {
        (*computed)[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
      }
    }
    known = std::move(computed);
    std::lock_guard lock(mutex_);
    if (masks_.size() >= kCachedMasks) masks_.clear();
    masks_.emplace(std::move(key), known);
  }
  // A model's logits may be fewer than the tokenizer's tokens.
  const auto words = static_cast<long>(std::min(known->size(), mask.size()));
  std::fill(std::copy_n(known->begin(), words, mask.begin()), mask.end(), 0);
}

GrammarState::GrammarState(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)), place_(grammar_->automaton()) {}

void GrammarState::allowed(std::span<uint32_t> mask) const { grammar_->allowed(place_, mask); }

bool GrammarState::accept(Token token) {
  const VocabularyTrie& vocabulary = grammar_->vocabulary();
  if (token < 0 || token >= vocabulary.size()) return false;
  const std::span<const Token> ends = vocabulary.ends();
  if (std::find(ends.begin(), ends.end(), token) != ends.end()) return may_end();
  const std::string_view bytes = vocabulary.bytes(token);
  return !bytes.empty() && accept(bytes);
}

bool GrammarState::accept(std::string_view bytes) {
  return place_.accept(grammar_->automaton(), bytes);
}

}  // namespace ridge
