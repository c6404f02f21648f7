// One request's state: what ends it and which text may be shown.
#include "engine/generate/generation.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace ridge {
namespace {

TEST(StopFilter, HoldsBackWhatMayBecomeAStop) {
  const std::string stops[] = {"END", "\n\n"};
  StopFilter filter(stops);
  EXPECT_EQ(filter.push("the E"), "the ");
  EXPECT_EQ(filter.push("N"), "");
  EXPECT_EQ(filter.push("T"), "ENT");
  EXPECT_EQ(filter.push("\n"), "");
  EXPECT_EQ(filter.push("x\nE"), "\nx\n");
  EXPECT_FALSE(filter.stopped());
  EXPECT_EQ(filter.push("ND more"), "");
  EXPECT_TRUE(filter.stopped());
  EXPECT_EQ(filter.finish(), "");
}

// Tokens are the bytes of a text; 256 is an end token.
class ByteTokenizer : public Tokenizer {
 public:
  ByteTokenizer() { ends = {256}; }
  std::vector<Token> encode_parts(std::span<const TextPart> parts, WorkLimit&) const override {
    std::vector<Token> tokens;
    for (const TextPart& part : parts) {
      for (const char c : part.text) tokens.push_back(static_cast<unsigned char>(c));
    }
    return tokens;
  }
  std::string decode(Token token, bool) const override {
    return token < 256 ? std::string(1, static_cast<char>(token)) : std::string();
  }
  std::string decode(std::span<const Token> tokens, bool special) const override {
    std::string text;
    for (const Token token : tokens) text += decode(token, special);
    return text;
  }
  Token size() const override { return 258; }
  std::string_view piece(Token) const override { return "?"; }
  std::optional<Token> find(std::string_view) const override { return std::nullopt; }
  bool is_special(Token token) const override { return token >= 256; }
};

Weights byte_weights() {
  Weights weights;
  weights.architecture.vocab = 258;
  weights.architecture.ends = {257};
  weights.tokenizer = std::make_unique<ByteTokenizer>();
  return weights;
}

const std::vector<Token> kPrompt{'g', 'o'};

// Pushes the bytes of `text` until something ends the generation; returns what is shown.
std::string push_all(Generation& generation, std::string_view text) {
  std::string shown;
  for (const char c : text) {
    if (generation.ended()) break;
    shown += generation.push(static_cast<unsigned char>(c));
  }
  return shown;
}

TEST(Generation, EndsAtTheLength) {
  const Weights weights = byte_weights();
  GenerateOptions options;
  options.max_tokens = 3;
  Generation generation(weights, options, {}, kPrompt);
  EXPECT_EQ(push_all(generation, "abcdef"), "abc");
  EXPECT_EQ(generation.ended(), EndReason::length);
  EXPECT_EQ(generation.generated().size(), 3u);
}

TEST(Generation, EndsAtEndTokensOfModelAndTokenizer) {
  const Weights weights = byte_weights();
  for (const Token end : {256, 257}) {
    Generation generation(weights, {}, {}, kPrompt);
    EXPECT_EQ(generation.push('a'), "a");
    EXPECT_EQ(generation.push(end), "");
    EXPECT_EQ(generation.ended(), EndReason::end_token);
    EXPECT_EQ(generation.generated().back(), end);
    GenerateOptions on;
    on.ignore_end = true;
    Generation other(weights, on, {}, kPrompt);
    other.push(end);
    EXPECT_EQ(other.ended(), std::nullopt);
  }
}

TEST(Generation, EndsAtAStopStringWithoutShowingIt) {
  const Weights weights = byte_weights();
  GenerateOptions options;
  options.stops = {"STOP"};
  Generation generation(weights, options, {}, kPrompt);
  std::string shown = push_all(generation, "one STREET two STOP three");
  shown += generation.finish();
  EXPECT_EQ(shown, "one STREET two ");
  EXPECT_EQ(generation.ended(), EndReason::stop_string);
}

TEST(Generation, ShowsWholeCharactersAndTheRestAtTheEnd) {
  const Weights weights = byte_weights();
  GenerateOptions options;
  options.stops = {"xyz"};
  Generation generation(weights, options, {}, kPrompt);
  EXPECT_EQ(generation.push(0xc3), "");
  EXPECT_EQ(generation.push(0xa4), "ä");
  EXPECT_EQ(push_all(generation, "xy"), "");  // may become the stop string
  generation.push(0xe2);                      // the beginning of a character
  generation.end(EndReason::cancelled);
  EXPECT_EQ(generation.finish(), "xy\uFFFD");
  EXPECT_EQ(generation.ended(), EndReason::cancelled);
}

TEST(Generation, ShowsAHeldBackStopPrefixAtTheEnd) {
  const Weights weights = byte_weights();
  GenerateOptions options;
  options.stops = {"xyz"};
  Generation generation(weights, options, {}, kPrompt);
  EXPECT_EQ(push_all(generation, "axy"), "a");
  generation.end(EndReason::context);
  EXPECT_EQ(generation.finish(), "xy");
}

TEST(Generation, DrawsContinueHistoryAndPrompt) {
  const Weights weights = byte_weights();
  const std::vector<Token> history{1, 2, 3};
  Generation generation(weights, {}, history, kPrompt);
  generation.push('a');
  EXPECT_EQ(generation.context().tokens.size(), 6u);
  EXPECT_EQ(generation.context().prompt_tokens, 5u);
  EXPECT_EQ(generation.generated().size(), 1u);
  EXPECT_THROW(Generation(weights, {}, history, {}), Error);
}

}  // namespace
}  // namespace ridge
