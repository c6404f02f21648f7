#include <gtest/gtest.h>

#include "support.h"
#include "vocabularies.h"

namespace ridge {
namespace {

const std::vector<std::pair<std::string, double>> kPieces = {
    {"<unk>", 0}, {"▁", -3}, {"a", -2}, {"b", -2}, {"ab", -3.5}, {"▁a", -2.5}, {"abab", -7.1}};

TEST(Unigram, TakesTheMostProbablePieces) {
  const auto tokenizer = from_json(sample::unigram_json(kPieces));
  // ▁a b: -4.5 against ▁ ab: -6.5
  EXPECT_EQ(pieces(*tokenizer, "ab"), (Strings{"▁a", "b"}));
  // ▁a b ab: -8 against ▁ abab: -10.1
  EXPECT_EQ(pieces(*tokenizer, "abab"), (Strings{"▁a", "b", "ab"}));
  EXPECT_EQ(pieces(*tokenizer, "b ab"), (Strings{"▁", "b", "▁a", "b"}));
}

TEST(Unigram, NeighbouringUnknownCharactersAreOne) {
  const auto tokenizer = from_json(sample::unigram_json(kPieces));
  EXPECT_EQ(tokenizer->encode("bxyéb"), (std::vector<Token>{1, 3, 0, 3}));
}

TEST(Unigram, FallsBackToBytesWhereAsked) {
  auto pieces_with_bytes = kPieces;
  for (int byte = 0; byte < 256; ++byte) {
    char name[8];
    std::snprintf(name, sizeof(name), "<0x%02X>", unsigned(byte));
    pieces_with_bytes.emplace_back(name, -20);
  }
  nlohmann::json json = sample::unigram_json(pieces_with_bytes);
  json["model"]["byte_fallback"] = true;
  const auto tokenizer = from_json(json);
  EXPECT_EQ(pieces(*tokenizer, "bé"), (Strings{"▁", "b", "<0xC3>", "<0xA9>"}));
  EXPECT_EQ(decoded(*tokenizer, tokenizer->encode("bé\xFF")), "bé\xFF");
}

TEST(Unigram, LongTextsAreLinear) {
  const auto tokenizer = from_json(sample::unigram_json(kPieces));
  EXPECT_EQ(tokenizer->encode(std::string(1'000'000, 'b')).size(), 1'000'001u);
}

}  // namespace
}  // namespace ridge
