#include "text/grammar/grammar.h"

#include <algorithm>
#include <utility>

#include "text/grammar/mask.h"

namespace ridge {

namespace {

WorkLimit token_work() { return WorkLimit("the schema", kMaxTokenSteps); }
WorkLimit grammar_work() { return WorkLimit("the schema", kMaxGrammarSteps); }

template <typename T>
size_t bytes_of(const std::vector<T>& list) {
  return list.size() * sizeof(T);
}

size_t bytes_of(const grammar::Automaton& automaton) {
  size_t bytes = bytes_of(automaton.states) + bytes_of(automaton.edges) +
                 bytes_of(automaton.targets) + bytes_of(automaton.heights) +
                 bytes_of(automaton.keys) + bytes_of(automaton.objects);
  for (const grammar::KeyNode& node : automaton.keys) {
    bytes += bytes_of(node.edges) + bytes_of(node.properties);
  }
  for (const grammar::ObjectKeys& object : automaton.objects) {
    bytes += bytes_of(object.complete) + bytes_of(object.required);
  }
  return bytes;
}

}  // namespace

Grammar::Grammar(const Json& schema, std::shared_ptr<const VocabularyTrie> vocabulary,
                 WorkLimit& work)
    : automaton_(grammar::compile_schema(schema, work)), vocabulary_(std::move(vocabulary)) {
  mask_of(grammar::Matcher(automaton_, work), &work);
}

Grammar::Grammar(const Json& schema, std::shared_ptr<const VocabularyTrie> vocabulary)
    : Grammar(schema, std::move(vocabulary), *std::make_unique<WorkLimit>(grammar_work())) {}

size_t Grammar::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_of(automaton_) + mask_bytes_;
}

std::shared_ptr<const Grammar::Mask> Grammar::mask_of(const grammar::Matcher& place,
                                                      WorkLimit* work) const {
  std::u32string key = mask_key(automaton_, *vocabulary_, place);
  {
    const std::lock_guard lock(mutex_);
    const auto found = masks_.find(key);
    if (found != masks_.end()) return found->second;
  }
  auto made = std::make_shared<Mask>((static_cast<size_t>(vocabulary_->size()) + 31) / 32);
  WorkLimit own = token_work();
  fill_mask(automaton_, *vocabulary_, place, *made, work != nullptr ? *work : own);
  if (place.may_end()) {
    for (Token token : vocabulary_->ends()) {
      (*made)[static_cast<size_t>(token) / 32] |= 1u << (token % 32);
    }
  }
  const size_t bytes = bytes_of(*made) + key.size() * sizeof(char32_t);
  const std::lock_guard lock(mutex_);
  if (mask_bytes_ + bytes > kMaxCachedMaskBytes) {
    masks_.clear();
    mask_bytes_ = 0;
  }
  if (masks_.emplace(std::move(key), made).second) mask_bytes_ += bytes;
  return made;
}

void Grammar::allowed(const grammar::Matcher& place, std::span<uint32_t> mask) const {
  const std::shared_ptr<const Mask> known = mask_of(place, nullptr);
  // A model's logits may be fewer than the tokenizer's tokens.
  const auto words = static_cast<long>(std::min(known->size(), mask.size()));
  std::fill(std::copy_n(known->begin(), words, mask.begin()), mask.end(), 0);
}

GrammarState::GrammarState(std::shared_ptr<const Grammar> grammar)
    : grammar_(std::move(grammar)),
      place_(grammar_->automaton(), *std::make_unique<WorkLimit>(token_work())) {}

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
  WorkLimit work = token_work();
  return place_.accept(grammar_->automaton(), bytes, work);
}

}  // namespace ridge
