#include <gtest/gtest.h>

#include "support.h"
#include "vocabularies.h"

namespace ridge {
namespace {

std::unique_ptr<Tokenizer> with(std::vector<nlohmann::json> tokens) {
  nlohmann::json json = sample::byte_level_json({});
  json["added_tokens"] = tokens;
  return from_json(json);
}

TEST(AddedTokens, UsersTokensAreFoundBeforeWords) {
  const auto tokenizer = with({sample::added_token(256, "<tool>", false)});
  EXPECT_EQ(pieces(*tokenizer, "a<tool>b"), (Strings{"a", "<tool>", "b"}));
  EXPECT_EQ(decoded(*tokenizer, tokenizer->encode("a<tool>b")), "a<tool>b");
}

TEST(AddedTokens, TheLongestAtAPlaceWins) {
  const auto tokenizer =
      with({sample::added_token(256, "\n\n", false), sample::added_token(257, "\n\n\n\n", false),
            sample::added_token(258, "xy", false)});
  EXPECT_EQ(tokenizer->encode("\n\n\n\n\n\nxy"), (std::vector<Token>{257, 256, 258}));
}

TEST(AddedTokens, StripTakesTheWhiteSpaceBeside) {
  nlohmann::json left = sample::added_token(256, "<mask>", true);
  left["lstrip"] = true;
  EXPECT_EQ(pieces(*with({left}), "a \u00a0<mask> b", true), (Strings{"a", "<mask>", "Ġ", "b"}));
  nlohmann::json right = sample::added_token(256, "<|user|>", true);
  right["rstrip"] = true;
  EXPECT_EQ(pieces(*with({right}), "a <|user|> \nb", true), (Strings{"a", "Ġ", "<|user|>", "b"}));
}

TEST(AddedTokens, SingleWordsStandAlone) {
  nlohmann::json token = sample::added_token(256, "cat", false);
  token["single_word"] = true;
  const auto tokenizer = with({token});
  EXPECT_EQ(tokenizer->encode("cat"), (std::vector<Token>{256}));
  EXPECT_EQ(tokenizer->encode("(cat)"), (std::vector<Token>{'(', 256, ')'}));
  EXPECT_EQ(pieces(*tokenizer, "cats"), (Strings{"c", "a", "t", "s"}));
  EXPECT_EQ(tokenizer->encode("écat").size(), 5u);
}

TEST(AddedTokens, NormalizedOnesAreFoundInNormalizedText) {
  nlohmann::json json = sample::byte_level_json({});
  json["normalizer"] = {{"type", "Lowercase"}};
  nlohmann::json raw = sample::added_token(256, "RAW", false),
                 lower = sample::added_token(257, "Low", false);
  lower["normalized"] = true;
  json["added_tokens"] = {raw, lower};
  const auto tokenizer = from_json(json);
  EXPECT_EQ(tokenizer->encode("LOWRAW"), (std::vector<Token>{257, 256}));
  EXPECT_EQ(pieces(*tokenizer, "raw"), (Strings{"r", "a", "w"}));
}

}  // namespace
}  // namespace ridge
