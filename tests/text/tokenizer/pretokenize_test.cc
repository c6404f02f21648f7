#include "text/tokenizer/pretokenize.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "support.h"
#include "text/tokenizer/json_steps.h"
#include "text/tokenizer/pre_patterns.h"

namespace ridge {
namespace {

Strings words(const PreTokenizer& pre, std::string_view text) {
  Words out;
  WorkLimit work("the tokenizer", encode_steps(text.size()));
  pre.apply(text, true, true, grown_bytes(text.size()), out, work);
  return {out.words.begin(), out.words.end()};
}

Strings split(const std::string& pattern, SplitBehaviour behaviour, std::string_view text,
              bool invert = false) {
  PreTokenizer pre;
  pre.split(Regex::pattern(pattern, "test"), behaviour, invert);
  return words(pre, text);
}

Strings named(const char* name, std::string_view text) {
  PreTokenizer pre;
  for (const char* pattern : pre_patterns(name, "test").patterns) {
    pre.split(Regex::pattern(pattern, "test"), SplitBehaviour::isolated);
  }
  return words(pre, text);
}

// The table in Hugging Face's documentation of SplitDelimiterBehavior.
TEST(Split, BehavesAsHuggingFaceDocuments) {
  const char* text = "the-final--countdown";
  using enum SplitBehaviour;
  EXPECT_EQ(split("-", removed, text), (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(split("-", isolated, text), (Strings{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split("-", merged_with_previous, text), (Strings{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split("-", merged_with_next, text), (Strings{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split("-", contiguous, text), (Strings{"the", "-", "final", "--", "countdown"}));
  EXPECT_EQ(split("[a-z]+", removed, text, true), (Strings{"the", "final", "countdown"}));
}

TEST(Split, EmptyMatchesCut) {  // groups of three from the right, as SuperBPE does
  EXPECT_EQ(split("(?=(\\d{3})+(?!\\d))", SplitBehaviour::isolated, "1234567"),
            (Strings{"1", "234", "567"}));
}

TEST(Split, BytesThatAreNotTextStandApart) {
  EXPECT_EQ(split("\\p{L}+", SplitBehaviour::isolated, "ab\xFF\xFE\xC3\xA9z"),
            (Strings{"ab", "\xFF\xFE", "éz"}));
}

TEST(Dialect, SpacesAndWordsAreUnicodes) {
  // U+180E is no White_Space, for all that PCRE2 thinks of it.
  EXPECT_EQ(split("\\s+", SplitBehaviour::removed, "a\u2003\u0085b\u180ec"),
            (Strings{"a", "b\u180ec"}));
  EXPECT_EQ(split("\\w+", SplitBehaviour::isolated, "e\u0301_1-²"), (Strings{"e\u0301_1", "-²"}));
  EXPECT_EQ(split("[^\\s]+", SplitBehaviour::isolated, "a b"), (Strings{"a", " ", "b"}));
  EXPECT_EQ(split("^x", SplitBehaviour::isolated, "x\nxx"), (Strings{"x", "\n", "x", "x"}));
}

TEST(Dialect, ClassesNestAndIntersect) {
  EXPECT_EQ(split(" ?[^(\\s|[.,!?…])]+", SplitBehaviour::isolated, "Hi, you."),
            (Strings{"Hi", ",", " you", "."}));
  EXPECT_EQ(split("[\\p{L}&&[^\\p{Han}]]+", SplitBehaviour::isolated, "ab我们cd"),
            (Strings{"ab", "我们", "cd"}));
  EXPECT_EQ(split("\\p{Han}+", SplitBehaviour::isolated, "我。们"), (Strings{"我", "。", "们"}));
  EXPECT_EQ(split("[^\\p{Letter}]", SplitBehaviour::isolated, "a1b"), (Strings{"a", "1", "b"}));
  for (const char* pattern : {"[a", "[a[^b]]", "(", "a\\", "[^a&&[b]]", "\\C"}) {
    EXPECT_THROW(Regex::pattern(pattern, "test"), Error) << pattern;
  }
}

TEST(Dialect, RunawayPatternsEndWithAnError) {
  EXPECT_THROW(split("(a+)+[bc]", SplitBehaviour::isolated, std::string(64, 'a')), Error);
}

TEST(PrePatterns, CutAsTheirModelsDo) {
  const char* text = "I'VE 12345 it's  fine!\n\n x";
  EXPECT_EQ(named("gpt-2", text),
            (Strings{"I", "'", "VE", " 12345", " it", "'s", " ", " fine", "!", "\n\n", " x"}));
  EXPECT_EQ(named("llama-bpe", text),
            (Strings{"I", "'VE", " ", "123", "45", " it", "'s", " ", " fine", "!\n\n", " x"}));
  EXPECT_EQ(named("qwen2", text), (Strings{"I", "'VE", " ", "1", "2", "3", "4", "5", " it", "'s",
                                           " ", " fine", "!\n\n", " x"}));
  EXPECT_EQ(named("starcoder", "a 12"), (Strings{"a", " ", "1", "2"}));
  EXPECT_EQ(named("gpt-4o", "camelCase HTTPServer's"), (Strings{"camel", "Case", " HTTPServer's"}));
  EXPECT_EQ(named("tekken", "aB12"), (Strings{"a", "B", "1", "2"}));
  EXPECT_EQ(named("deepseek-v3", "x=1234 我"), (Strings{"x", "=", "123", "4", " ", "我"}));
  EXPECT_EQ(named("falcon", "(12345)"), (Strings{"(", "123", "45", ")"}));
  EXPECT_EQ(named("bloom", "Hi, you"), (Strings{"Hi", ",", " you"}));
  EXPECT_EQ(named("kimi-k2", "ab我们c"), (Strings{"ab", "我们", "c"}));
}

TEST(PrePatterns, UnknownNamesAreRefused) {
  EXPECT_THROW(pre_patterns("no-such-model", "test"), Error);
}

TEST(PreTokenizerJson, ReadsEveryKind) {
  const auto cut = [](const char* json, std::string_view text) {
    PreTokenizer pre;
    read_pre_tokenizer(nlohmann::json::parse(json), "test", pre);
    return words(pre, text);
  };
  EXPECT_EQ(cut(R"({"type":"Whitespace"})", "Hey, man!  x"),
            (Strings{"Hey", ",", "man", "!", "x"}));
  EXPECT_EQ(cut(R"({"type":"WhitespaceSplit"})", " Hey, man! "), (Strings{"Hey,", "man!"}));
  EXPECT_EQ(cut(R"({"type":"Digits","individual_digits":true})", "a12"), (Strings{"a", "1", "2"}));
  EXPECT_EQ(cut(R"({"type":"Digits"})", "a12b"), (Strings{"a", "12", "b"}));
  EXPECT_EQ(cut(R"({"type":"Punctuation"})", "a?!b"), (Strings{"a", "?", "!", "b"}));
  EXPECT_EQ(cut(R"({"type":"Punctuation","behavior":"Contiguous"})", "a?!b"),
            (Strings{"a", "?!", "b"}));
  EXPECT_EQ(cut(R"({"type":"Metaspace"})", "a b"), (Strings{"▁a", "▁b"}));
  EXPECT_EQ(cut(R"({"type":"Split","pattern":{"String":"."},"behavior":"Removed"})", "a.b"),
            (Strings{"a", "b"}));
  EXPECT_THROW(cut(R"({"type":"Sorcery"})", ""), Error);
}

}  // namespace
}  // namespace ridge
