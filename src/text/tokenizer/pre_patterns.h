// How a GGUF's byte-level vocabulary cuts text into words: `tokenizer.ggml.pre` by name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ridge {

struct PrePatterns {
  std::vector<const char*> patterns;  // applied in turn, each match a word of its own
  bool whole_words = false;           // a word that is a piece needs no merges
  bool adds_bos = false;              // unless the file says otherwise
  // Pieces are written as text with ▁ for spaces, not in GPT-2's alphabet.
  bool spaces = false;
};

// Throws Error for names that are not known: guessing would give wrong tokens in silence.
PrePatterns pre_patterns(std::string_view name, const std::string& where);

}  // namespace ridge
