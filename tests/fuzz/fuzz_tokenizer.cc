// Any bytes as a tokenizer.json or a GGUF: an Error, or a tokenizer whose tokens make sense.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "../text/tokenizer/vocabularies.h"
#include "base/error.h"
#include "replay.h"
#include "sample_files.h"
#include "text/chat/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void check(const ridge::Tokenizer& tokenizer) {
  using ridge::Token;
  for (std::string_view text : {"", " hello  world\n", "a\xFF\xC3\xA9 \xE2\x96\x81<s>12345",
                                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"}) {
    for (bool special : {false, true}) {
      const std::vector<Token> tokens = tokenizer.encode(text, special);
      for (Token token : tokens) require(token >= 0 && token < tokenizer.size());
      tokenizer.decode(std::span(tokens), true);
    }
  }
  for (Token token : tokenizer.ends) require(token >= 0 && token < tokenizer.size());
  require(!tokenizer.adds_bos || tokenizer.bos.has_value());
  const ridge::ChatMessage message{"user", "hi"};
  chat_tokens(tokenizer, {&message, 1});
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    check(bytes.starts_with("GGUF") ? *ridge::tokenizer_from_gguf(bytes, "fuzz")
                                    : *ridge::tokenizer_from_json(bytes, "fuzz"));
  } catch (const ridge::Error&) {
  }
  return 0;
}

// Short: the replay cuts short seeds at every byte and mutates any of them.
std::vector<std::string> fuzz_seeds() {
  using namespace ridge::sample;
  Gguf scored;
  scored.text("tokenizer.ggml.model", "llama")
      .texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "▁", "a", "▁a", "<0x0A>"})
      .numbers("tokenizer.ggml.scores", {0, 0, 1, 2, 3, 0})
      .numbers("tokenizer.ggml.token_type", {2, 3, 1, 1, 1, 6})
      .number("tokenizer.ggml.bos_token_id", 1);
  Gguf merged;
  merged.text("tokenizer.ggml.model", "gpt2")
      .text("tokenizer.ggml.pre", "qwen2")
      .texts("tokenizer.ggml.tokens", {"a", "l", "o", "lo", "Ġ"})
      .texts("tokenizer.ggml.merges", {"l o"});
  nlohmann::json small = {
      {"model",
       {{"type", "BPE"},
        {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}, {"<unk>", 3}}},
        {"merges", {"a b"}},
        {"unk_token", "<unk>"}}},
      {"normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", " +"}}}, {"content", "a"}}},
      {"pre_tokenizer",
       {{"type", "Split"}, {"pattern", {{"Regex", "\\s?[a-z]+"}}}, {"behavior", "Isolated"}}},
      {"added_tokens", {added_token(4, "<s>", true)}}};
  return {scored.bytes(),
          merged.bytes(),
          small.dump(),
          unigram_json({{"<unk>", 0}, {"a", -1}, {"▁", -2}, {"▁a", -2.5}}).dump(),
          llama2_json({"▁", "a", "▁a"}, {{"▁", "a"}}).dump(),
          byte_level_json({{"h", "e"}, {"Ġ", "he"}}).dump()};
}
