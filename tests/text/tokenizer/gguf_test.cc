#include <gtest/gtest.h>

#include "../../fuzz/sample_files.h"
#include "base/error.h"
#include "support.h"
#include "text/tokenizer/byte_level.h"

namespace ridge {
namespace {

using sample::Gguf;

Strings bytes_and(std::initializer_list<const char*> more) {
  Strings pieces(byte_characters().begin(), byte_characters().end());
  pieces.insert(pieces.end(), more.begin(), more.end());
  return pieces;
}

std::unique_ptr<Tokenizer> read(const Gguf& file) {
  return tokenizer_from_gguf(file.bytes(), "test");
}

TEST(GgufTokenizer, ByteLevelWithItsPreTokeniser) {
  Gguf file;
  file.text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "llama-bpe")
      .texts("tokenizer.ggml.tokens", bytes_and({"Ġa", "<|end|>", "abc"}))
      .texts("tokenizer.ggml.merges", {"Ġ a"})
      .number("tokenizer.ggml.bos_token_id", 257);
  std::vector<uint32_t> kinds(259, 1);
  kinds[257] = 3;
  file.numbers("tokenizer.ggml.token_type", kinds);
  const auto tokenizer = read(file);
  EXPECT_EQ(pieces(*tokenizer, "a a"), (Strings{"a", "Ġa"}));
  EXPECT_EQ(pieces(*tokenizer, "abc"), (Strings{"abc"}));  // Llama 3 skips merges for whole words
  EXPECT_EQ(pieces(*tokenizer, "a<|end|>", true), (Strings{"a", "<|end|>"}));
  EXPECT_EQ(tokenizer->encode("<|end|>").size(), 7u);
  EXPECT_TRUE(tokenizer->adds_bos);  // its default
  EXPECT_EQ(tokenizer->ends, (std::vector<Token>{257}));
  EXPECT_EQ(decoded(*tokenizer, tokenizer->encode("é a\xFF")), "é a\xFF");
}

Gguf scored() {
  Gguf file;
  file.text("tokenizer.ggml.model", "llama")
      .texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "▁", "a", "b", "ab", "▁a", "<0x0A>",
                                       "ba", "s", "<", ">", "<s"})
      // Higher is merged first: "ab" before "ba" before "▁a".
      .numbers("tokenizer.ggml.scores", {0, 0, 0, 0, 0, 0, 9, 5, 0, 7, 0, 0, 0, 3})
      .numbers("tokenizer.ggml.token_type", {2, 3, 3, 1, 1, 1, 1, 1, 6, 1, 1, 1, 1, 1})
      .number("tokenizer.ggml.bos_token_id", 1)
      .number("tokenizer.ggml.eos_token_id", 2);
  return file;
}

TEST(GgufTokenizer, ScoresDecideWhichNeighboursMerge) {
  const auto tokenizer = read(scored());
  EXPECT_EQ(pieces(*tokenizer, "ab"), (Strings{"▁", "ab"}));
  EXPECT_EQ(pieces(*tokenizer, "bab"), (Strings{"▁", "b", "ab"}));
  EXPECT_EQ(pieces(*tokenizer, "aa a"), (Strings{"▁a", "a", "▁a"}));
  EXPECT_EQ(pieces(*tokenizer, "a\nx"), (Strings{"▁a", "<0x0A>", "<unk>"}));
  EXPECT_EQ(decoded(*tokenizer, tokenizer->encode("ab\na")), "ab\na");
  EXPECT_TRUE(tokenizer->adds_bos);
}

TEST(GgufTokenizer, TextNeverMergesIntoControlTokens) {
  const auto tokenizer = read(scored());
  EXPECT_EQ(pieces(*tokenizer, "<s>"), (Strings{"▁", "<s", ">"}));
  EXPECT_EQ(pieces(*tokenizer, "<s>a", true), (Strings{"<s>", "▁a"}));
}

TEST(GgufTokenizer, UnigramMarksWords) {
  Gguf file;
  file.text("tokenizer.ggml.model", "t5")
      .texts("tokenizer.ggml.tokens", {"<pad>", "</s>", "<unk>", "▁", "a", "▁a", "b"})
      .numbers("tokenizer.ggml.scores", {0, 0, 0, 1, 1, 3, 1})
      .numbers("tokenizer.ggml.token_type", {3, 3, 2, 1, 1, 1, 1})
      .number("tokenizer.ggml.eos_token_id", 1)
      .number("tokenizer.ggml.unknown_token_id", 2);
  const auto tokenizer = read(file);
  EXPECT_EQ(pieces(*tokenizer, "ab a"), (Strings{"▁a", "b", "▁a"}));
  EXPECT_EQ(pieces(*tokenizer, "axya"), (Strings{"▁a", "<unk>", "a"}));
  EXPECT_TRUE(tokenizer->adds_eos);
}

TEST(GgufTokenizer, RefusesWhatItDoesNotUnderstand) {
  EXPECT_THROW(read(Gguf()), Error);
  EXPECT_THROW(read(Gguf().text("tokenizer.ggml.model", "bert")), Error);
  EXPECT_THROW(read(Gguf().text("tokenizer.ggml.model", "llama")), Error);  // no tokens
  Gguf unknown;
  unknown.text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "sorcery")
      .texts("tokenizer.ggml.tokens", {"a", "b", "ab"})
      .texts("tokenizer.ggml.merges", {"a b"});
  EXPECT_THROW(read(unknown), Error);
  Gguf merges;
  merges.text("tokenizer.ggml.model", "gpt2")
      .texts("tokenizer.ggml.tokens", {"a", "b"})
      .texts("tokenizer.ggml.merges", {"a b"});
  EXPECT_THROW(read(merges), Error);
  Gguf scores;
  scores.text("tokenizer.ggml.model", "llama")
      .texts("tokenizer.ggml.tokens", {"a", "b"})
      .numbers("tokenizer.ggml.scores", {1});
  EXPECT_THROW(read(scores), Error);
}

}  // namespace
}  // namespace ridge
