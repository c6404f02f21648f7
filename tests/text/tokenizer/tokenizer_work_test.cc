// What a text may cost with the worst vocabularies, at the bounds and beyond.
#include <gtest/gtest.h>

#include <ctime>
#include <string>
#include <vector>

#include "base/error.h"
#include "support.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/json_steps.h"
#include "vocabularies.h"

namespace ridge {
namespace {

using Value = nlohmann::json;

uint64_t steps_of(const Tokenizer& tokenizer, std::string_view text) {
  WorkLimit work("the tokenizer", encode_steps(text.size()));
  const TextPart part{text};
  tokenizer.encode_parts({&part, 1}, work);
  return work.spent();
}

std::string repeated(std::string_view part, size_t times) {
  std::string text;
  for (size_t i = 0; i < times; ++i) text += part;
  return text;
}

std::string normalized_by(const Value& steps, std::string_view text) {
  Normalizer normalizer;
  read_normalizer({{"type", "Sequence"}, {"normalizers", steps}}, "test", normalizer);
  WorkLimit work("the tokenizer", encode_steps(text.size()));
  return normalizer.apply(text, {grown_bytes(text.size()), work});
}

TEST(TokenizerWork, AChainOfReplacementsGrowsATextByABoundedFactor) {
  const Value twice{{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", "aa"}};
  const std::string text(10'000, 'a');
  EXPECT_EQ(normalized_by(std::vector<Value>(5, twice), text).size(), 32 * text.size());
  EXPECT_THROW(normalized_by(std::vector<Value>(6, twice), text), Error);
  EXPECT_EQ(normalized_by(std::vector<Value>(12, twice), "a").size(), 4096u);
  EXPECT_THROW(normalized_by(std::vector<Value>(13, twice), "a"), Error);
  EXPECT_THROW(normalized_by(std::vector<Value>(40, twice), "a"), Error);
  const Value by_pattern{{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", "aa"}};
  EXPECT_THROW(normalized_by(std::vector<Value>(40, by_pattern), "a"), Error);
}

TEST(TokenizerWork, AChainOfAlphabetsGrowsATextByABoundedFactor) {
  Value json = sample::byte_level_json({});
  const Value bytes{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const Value marks{{"type", "Metaspace"},
                    {"replacement", "        "},
                    {"prepend_scheme", "never"},
                    {"split", false}};
  for (const Value& step : {bytes, marks}) {
    json["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", std::vector<Value>(40, step)}};
    EXPECT_THROW(from_json(json)->encode("\u00e9 \u00e9"), Error);
  }
}

TEST(TokenizerWork, AnAddedTokenHasABoundedLength) {
  Value json = sample::byte_level_json({});
  json["added_tokens"] =
      Value::array({sample::added_token(300, std::string(kMaxAddedToken, 'x'), false)});
  EXPECT_EQ(from_json(json)->encode(std::string(kMaxAddedToken, 'x')), std::vector<Token>{300});
  json["added_tokens"] =
      Value::array({sample::added_token(300, std::string(kMaxAddedToken + 1, 'x'), false)});
  EXPECT_THROW(from_json(json), Error);
}

TEST(TokenizerWork, AddedTokensWithACommonPrefixAreLookedForInLinearTime) {
  Value json = sample::byte_level_json({});
  const std::string prefix(kMaxAddedToken - 1, 'x');
  json["added_tokens"] = {sample::added_token(300, prefix + "y", false),
                          sample::added_token(301, prefix + "z", false)};
  const auto tokenizer = from_json(json);
  const std::string text(100'000, 'x');
  EXPECT_EQ(tokenizer->encode(text).size(), text.size());
  EXPECT_LT(steps_of(*tokenizer, text), 64 * text.size());
  // Where tokens part at every byte, none of them counts, and the text goes on after each.
  for (int i = 2; i < 1000; ++i) {
    json["added_tokens"].push_back(sample::added_token(300 + i, std::string(size_t(i), 'x'), true));
  }
  EXPECT_THROW(from_json(json)->encode(text), WorkLimitError);
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

TEST(TokenizerWork, ManyPartsOfAChatTakeLinearTime) {
  Value json = sample::byte_level_json({});
  json["added_tokens"] = Value::array({sample::added_token(300, "<x>", true)});
  const auto tokenizer = from_json(json);
  std::vector<TextPart> parts;
  for (int i = 0; i < 200'000; ++i) {
    parts.push_back({"<x>", true});
    parts.push_back({"<x>", false});
  }
  const double start = cpu_seconds();
  EXPECT_EQ(tokenizer->encode(parts, {}).size(), 200'000u * 4);
  EXPECT_LT(cpu_seconds() - start, 5);  // 0.05 s; looking at each part for each token took 40 s
}

// The last step is allowed and the next is not; a text of twice the length takes twice the steps.
void check_linear(const Tokenizer& tokenizer, const std::string& part) {
  const std::string text = repeated(part, 50'000);
  const uint64_t steps = steps_of(tokenizer, text);
  EXPECT_LT(steps, 40 * text.size()) << part;
  EXPECT_LT(steps_of(tokenizer, text + text), 2 * steps + 1000) << part;
  const TextPart whole{text};
  WorkLimit enough("the tokenizer", steps), short_of("the tokenizer", steps - 1);
  tokenizer.encode_parts({&whole, 1}, enough);
  EXPECT_THROW(tokenizer.encode_parts({&whole, 1}, short_of), WorkLimitError) << part;
}

TEST(TokenizerWork, OneWordOfAnyLengthTakesLinearTime) {
  const auto bytes = from_json(
      sample::byte_level_json({{"a", "a"}, {"aa", "aa"}, {"a", "b"}, {"ab", "ab"}, {"aa", "a"}}));
  const auto merged =
      from_json(sample::llama2_json({"▁", "a", "b", "aa", "ab", "aaa"}, {{"a", "a"}, {"a", "b"}}));
  const auto unigram = from_json(sample::unigram_json(
      {{"<unk>", 0}, {"a", -1}, {"b", -1.5}, {"ab", -2}, {"aaaa", -3}, {"▁", -2}}));
  for (const auto* tokenizer : {bytes.get(), merged.get(), unigram.get()}) {
    for (const char* part : {"a", "ab", "ba", "c", "\u00e9"}) check_linear(*tokenizer, part);
  }
}

TEST(TokenizerWork, LongPiecesAreBounded) {
  const auto tokenizer = from_json(sample::unigram_json(
      {{"<unk>", 0}, {"a", -1}, {"▁", -1}, {std::string(20'000, 'a') + "b", -1}}));
  EXPECT_EQ(tokenizer->encode(std::string(1000, 'a')).size(), 1001u);
  EXPECT_THROW(tokenizer->encode(std::string(40'000, 'a')), WorkLimitError);
}

TEST(TokenizerWork, AClientWhoLeavesEndsTheWork) {
  const auto tokenizer = from_json(sample::byte_level_json({{"a", "a"}}));
  const std::string text(1 << 20, 'a');
  const TextPart part{text};
  int asked = 0;
  EXPECT_THROW(tokenizer->encode({&part, 1}, [&] { return ++asked > 3; }), WorkLimitError);
  EXPECT_EQ(asked, 4);
}

}  // namespace
}  // namespace ridge
