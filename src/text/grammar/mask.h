// The tokens that may come next at a place in an automaton.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "text/grammar/automaton.h"
#include "text/grammar/matcher.h"
#include "text/grammar/vocabulary_trie.h"

namespace ridge::grammar {

// Sets the bits of the tokens of text that may come next; the mask is clear before. The end tokens
// are not set. Spends what reading the tokens spends (matcher.h), a step for each node of the trie
// that is come to, and a step for eight tokens or 32 words of bits that are set from a table.
void fill_mask(const Automaton& automaton, const VocabularyTrie& vocabulary, const Matcher& place,
               std::span<uint32_t> mask, WorkLimit& work);

// Equal for places that have equal masks with this vocabulary. (The reverse need not hold.)
std::u32string mask_key(const Automaton& automaton, const VocabularyTrie& vocabulary,
                        const Matcher& place);

}  // namespace ridge::grammar
