// The one tokenizer there is: added tokens, normaliser, pre-tokeniser, model, and back. Readers
// fill in the parts.
#pragma once

#include <memory>
#include <mutex>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/normalize.h"
#include "text/tokenizer/pretokenize.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/vocabulary.h"
#include "text/tokenizer/word_cache.h"
#include "text/tokenizer/word_model.h"

namespace ridge {

// How pieces are written.
enum class Spelling {
  plain,
  bytes,   // GPT-2's alphabet
  spaces,  // ▁ for a space, <0x0A> for bytes
};

class Pipeline : public Tokenizer {
 public:
  Vocabulary vocabulary;
  AddedTokens added;             // looked for in the raw text
  AddedTokens added_normalized;  // looked for in the normalised text
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::unique_ptr<WordModel> model;  // refers to `vocabulary`
  Spelling spelling = Spelling::plain;
  bool strips_first_space = false;  // decoding undoes a space that encoding put first
  std::vector<bool> verbatim;       // by id: added tokens, which no alphabet spells

  std::vector<Token> encode_parts(std::span<const TextPart> parts, WorkLimit& work) const override;
  std::string decode(Token token, bool special) const override;
  std::string decode(std::span<const Token> tokens, bool special) const override;
  Token size() const override { return vocabulary.size(); }
  std::string_view piece(Token token) const override;
  std::optional<Token> find(std::string_view piece) const override {
    return vocabulary.find(piece);
  }
  bool is_special(Token token) const override;

 private:
  struct Encoding;
  // `most`: bytes that the text's words may have.
  void encode_text(std::string_view text, bool first, size_t most, Encoding& work) const;
  void encode_word(std::string_view word, Encoding& work) const;
  mutable std::mutex cache_mutex_;
  mutable WordCache cache_;
};

}  // namespace ridge
