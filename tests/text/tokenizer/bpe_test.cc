#include <gtest/gtest.h>

#include <random>

#include "support.h"
#include "vocabularies.h"

namespace ridge {
namespace {

const sample::Merges kMerges = {{"l", "o"}, {"lo", "w"}, {"e", "r"}, {"Ġ", "low"},
                                {"n", "e"}, {"ne", "w"}, {"a", "a"}, {"aa", "aa"}};

TEST(ByteLevelBpe, MergesInOrderOfRank) {
  const auto tokenizer = from_json(sample::byte_level_json(kMerges));
  EXPECT_EQ(pieces(*tokenizer, "lower low"), (Strings{"low", "er", "Ġlow"}));
  EXPECT_EQ(pieces(*tokenizer, "newer"), (Strings{"new", "er"}));
  // Leftmost first among equals.
  EXPECT_EQ(pieces(*tokenizer, "aaaaa"), (Strings{"aaaa", "a"}));
  EXPECT_EQ(tokenizer->encode(""), std::vector<Token>());
}

TEST(ByteLevelBpe, MergesMayBePairs) {
  nlohmann::json json = sample::byte_level_json(kMerges);
  nlohmann::json pairs = nlohmann::json::array();
  for (const auto& [left, right] : kMerges) pairs.push_back({left, right});
  json["model"]["merges"] = pairs;
  EXPECT_EQ(pieces(*from_json(json), "lower"), (Strings{"low", "er"}));
}

TEST(ByteLevelBpe, WholeWordsSkipMergesWhereAsked) {
  nlohmann::json json = sample::byte_level_json(kMerges);
  json["model"]["vocab"]["ower"] = 300;
  EXPECT_EQ(pieces(*from_json(json), "ower"), (Strings{"o", "w", "er"}));
  json["model"]["ignore_merges"] = true;
  EXPECT_EQ(pieces(*from_json(json), "ower"), (Strings{"ower"}));
}

TEST(ByteLevelBpe, PrefixSpaceGoesBeforeTheFirstWord) {
  nlohmann::json json = sample::byte_level_json(kMerges);
  json["pre_tokenizer"]["add_prefix_space"] = true;
  const auto tokenizer = from_json(json);
  EXPECT_EQ(pieces(*tokenizer, "low"), (Strings{"Ġlow"}));
  EXPECT_EQ(pieces(*tokenizer, " low"), (Strings{"Ġlow"}));
}

TEST(ByteLevelBpe, BytesThatAreNoTextComeBack) {
  const auto tokenizer = from_json(sample::byte_level_json(kMerges));
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text(random() % 60, ' ');
    for (char& c : text) c = static_cast<char>(random() % 2 ? random() : "low er\n'"[random() % 8]);
    EXPECT_EQ(decoded(*tokenizer, tokenizer->encode(text)), text);
  }
}

TEST(ByteLevelBpe, LongWordsAreNotQuadratic) {
  const auto tokenizer = from_json(sample::byte_level_json(kMerges));
  // A quadratic merge would take hours for this.
  const std::vector<Token> tokens = tokenizer->encode(std::string(2'000'000, 'a'));
  EXPECT_EQ(tokens.size(), 500'000u);
  std::string spaces(500'000, ' ');
  EXPECT_EQ(decoded(*tokenizer, tokenizer->encode(spaces + "x")), spaces + "x");
}

TEST(ByteLevelBpe, ByteLevelBeforeOtherStepsShowsThemItsAlphabet) {
  // Falcon: digits are cut after bytes became characters, of which ² ³ ¹ ¼ ½ ¾ are numbers.
  nlohmann::json json = sample::byte_level_json({{"Ã", "²"}, {"1", "2"}});
  EXPECT_EQ(pieces(*from_json(json), "ò"), (Strings{"Ã²"}));
  json["pre_tokenizer"] = {
      {"type", "Sequence"},
      {"pretokenizers",
       {json["pre_tokenizer"], {{"type", "Digits"}, {"individual_digits", false}}}}};
  EXPECT_EQ(pieces(*from_json(json), "ò"), (Strings{"Ã", "²"}));
  EXPECT_EQ(pieces(*from_json(json), "a12"), (Strings{"a", "12"}));
}

TEST(ByteLevelBpe, SuffixMarksTheWordsEnd) {  // CLIP
  nlohmann::json json = sample::byte_level_json({});
  for (const char* piece : {"a</w>", "b</w>", "ab</w>"}) {
    json["model"]["vocab"][piece] = json["model"]["vocab"].size();
  }
  json["model"]["merges"] = {"a b</w>"};
  json["model"]["end_of_word_suffix"] = "</w>";
  EXPECT_EQ(pieces(*from_json(json), "ab"), (Strings{"ab</w>"}));
  EXPECT_EQ(pieces(*from_json(json), "ba"), (Strings{"b", "a</w>"}));
}

const Strings kPieces = {"▁", "h", "e", "l", "o", "▁h", "▁he", "ll", "▁hell", "▁hello", "é"};
const sample::Merges kSpaceMerges = {
    {"▁", "h"}, {"▁h", "e"}, {"l", "l"}, {"▁he", "ll"}, {"▁hell", "o"}};

TEST(SentencePieceJson, SpacesAreMarksAndUnknownCharactersBytes) {
  const auto tokenizer = from_json(sample::llama2_json(kPieces, kSpaceMerges));
  EXPECT_EQ(pieces(*tokenizer, "hello hello"), (Strings{"▁hello", "▁hello"}));
  EXPECT_EQ(pieces(*tokenizer, " hello"), (Strings{"▁", "▁hello"}));
  EXPECT_EQ(pieces(*tokenizer, "é"), (Strings{"▁", "é"}));
  EXPECT_EQ(pieces(*tokenizer, "ß\n"), (Strings{"▁", "<0xC3>", "<0x9F>", "<0x0A>"}));
  EXPECT_TRUE(tokenizer->adds_bos);
  EXPECT_EQ(tokenizer->bos, 1);
}

TEST(SentencePieceJson, AnyBytesComeBack) {
  const auto tokenizer = from_json(sample::llama2_json(kPieces, kSpaceMerges));
  std::mt19937 random(8);
  for (int round = 0; round < 300; ++round) {
    std::string text(random() % 60, ' ');
    for (char& c : text)
      c = static_cast<char>(random() % 2 ? random() : "hello \n\t"[random() % 8]);
    EXPECT_EQ(decoded(*tokenizer, tokenizer->encode(text)), text);
  }
}

TEST(SentencePieceJson, SpecialTokensAreTextUnlessParsed) {
  const auto tokenizer = from_json(sample::llama2_json(kPieces, kSpaceMerges));
  for (Token token : tokenizer->encode("<s>hello</s>")) EXPECT_FALSE(tokenizer->is_special(token));
  EXPECT_EQ(pieces(*tokenizer, "<s>hello</s>", true), (Strings{"<s>", "▁hello", "</s>"}));
  EXPECT_EQ(decoded(*tokenizer, {1, 268, 2}), "hello");
  EXPECT_EQ(decoded(*tokenizer, {1, 268, 2}, true), "<s> hello</s>");
}

TEST(SentencePieceJson, PartsDecideWhereSpecialTokensCount) {
  const auto tokenizer = from_json(sample::llama2_json(kPieces, kSpaceMerges));
  const TextPart parts[] = {{"<s>", true}, {"<s>", false}, {"</s>", true}};
  const std::vector<Token> tokens = tokenizer->encode(parts, {});
  ASSERT_GT(tokens.size(), 3u);
  EXPECT_EQ(tokens.front(), 1);
  EXPECT_EQ(tokens.back(), 2);
  for (size_t i = 1; i + 1 < tokens.size(); ++i) EXPECT_FALSE(tokenizer->is_special(tokens[i]));
}

TEST(SentencePieceJson, UnknownCharactersFuseWhereThereAreNoBytes) {
  nlohmann::json json = sample::llama2_json(kPieces, kSpaceMerges);
  json["model"]["byte_fallback"] = false;
  EXPECT_EQ(pieces(*from_json(json), "xyzh"), (Strings{"▁", "<unk>", "h"}));
  json["model"]["fuse_unk"] = false;
  EXPECT_EQ(pieces(*from_json(json), "xyh"), (Strings{"▁", "<unk>", "<unk>", "h"}));
}

TEST(SentencePieceJson, MetaspacePrefixes) {
  nlohmann::json json = sample::llama2_json(kPieces, kSpaceMerges);
  json["normalizer"] = nullptr;
  json["pre_tokenizer"] = {
      {"type", "Metaspace"}, {"replacement", "▁"}, {"prepend_scheme", "first"}, {"split", false}};
  const auto first = from_json(json);
  EXPECT_EQ(pieces(*first, "hello</s>hello", true),
            (Strings{"▁hello", "</s>", "h", "e", "ll", "o"}));
  EXPECT_EQ(pieces(*first, " hello"), (Strings{"▁hello"}));  // a mark is there already
  json["pre_tokenizer"]["prepend_scheme"] = "always";
  EXPECT_EQ(pieces(*from_json(json), "hello</s>hello", true),
            (Strings{"▁hello", "</s>", "▁hello"}));
  json["pre_tokenizer"]["prepend_scheme"] = "never";
  EXPECT_EQ(pieces(*from_json(json), "hello"), (Strings{"h", "e", "ll", "o"}));
}

}  // namespace
}  // namespace ridge
