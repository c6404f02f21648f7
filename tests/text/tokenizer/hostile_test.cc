// Files that lie: one clear Error each.
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "support.h"
#include "vocabularies.h"

namespace ridge {
namespace {

using Value = nlohmann::json;

std::string refusal(const std::string& text) {
  try {
    tokenizer_from_json(text, "file");
  } catch (const Error& error) {
    const std::string line = error.what();
    EXPECT_TRUE(line.starts_with("file")) << line;
    EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 0) << line;
    EXPECT_LT(line.size(), 400u);
    return line;
  }
  ADD_FAILURE() << "accepted: " << text.substr(0, 200);
  return {};
}

std::string refused_model(const Value& model) { return refusal(Value{{"model", model}}.dump()); }

TEST(HostileTokenizer, BadShapes) {
  for (const char* text : {"", "{", "[]", "7", "{}", R"({"model":7})", R"({"model":{}})",
                           R"({"model":{"type":"BPE"}})", R"({"model":{"type":"WordPiece"}})",
                           R"({"model":{"type":"BPE","vocab":[],"merges":[]}})",
                           R"({"model":{"type":"BPE","vocab":{},"merges":[]}})",
                           R"({"model":{"type":"Unigram","vocab":[]}})",
                           R"({"model":{"type":"Unigram","vocab":[["a"]]}})",
                           R"({"model":{"type":"Unigram","vocab":[["a",1]],"unk_id":9}})"}) {
    refusal(text);
  }
  refusal(std::string(100'000, '[') + std::string(100'000, ']'));
}

TEST(HostileTokenizer, BadIds) {
  const auto with_ids = [](Value first, Value second) {
    return refused_model(
        {{"type", "BPE"}, {"vocab", {{"a", first}, {"b", second}}}, {"merges", Value::array()}});
  };
  with_ids(0, 0);
  with_ids(0, -1);
  with_ids(0, 2'000'000'000);  // would take gigabytes
  with_ids(0, 1e18);
  with_ids(0, 0.5);
  with_ids(0, "1");
}

TEST(HostileTokenizer, BadMerges) {
  for (const Value& merge : {Value("ab"), Value("a  b"), Value("a c"), Value("a b"), Value(7),
                             Value({"a"}), Value({"a", 1}), Value({"a", "b", "c"}), Value("")}) {
    refused_model({{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}}}, {"merges", {merge}}});
  }
}

TEST(HostileTokenizer, MergesInCirclesEnd) {
  Value model = sample::byte_level_json({{"a", "b"}, {"ab", "a"}, {"b", "a"}, {"a", "b"}});
  EXPECT_EQ(decoded(*from_json(model), from_json(model)->encode("ababab")), "ababab");
}

TEST(HostileTokenizer, BadAddedTokens) {
  Value base = sample::byte_level_json({});
  for (const Value& token : std::vector<Value>{Value(7),
                                               Value::object(),
                                               {{"content", "<x>"}},
                                               {{"id", 0}, {"content", 7}},
                                               {{"id", 2'000'000'000}, {"content", "<x>"}},
                                               {{"id", 0}, {"content", "<x>"}},
                                               {{"id", -1}, {"content", "<x>"}},
                                               {{"id", 300}, {"content", "<x>"}, {"special", 1}}}) {
    base["added_tokens"] = {token};
    refusal(base.dump());
  }
  base["added_tokens"] = {sample::added_token(300, "<x>", true),
                          sample::added_token(300, "<y>", true)};
  refusal(base.dump());
}

TEST(HostileTokenizer, BadPatterns) {
  Value base = sample::byte_level_json({});
  for (const char* pattern : {"(", "[a", "a{99999}", "(?<=a+)b", "\\p{Nonsense}"}) {
    base["pre_tokenizer"] = {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}};
    refusal(base.dump());
  }
  Value deep = {{"type", "ByteLevel"}};
  for (int i = 0; i < 20; ++i) deep = {{"type", "Sequence"}, {"pretokenizers", {deep}}};
  base["pre_tokenizer"] = deep;
  from_json(base);
  base["pre_tokenizer"] = {{"type", "Sequence"},
                           {"pretokenizers", std::vector<Value>(100, {{"type", "Digits"}})}};
  refusal(base.dump());
}

}  // namespace
}  // namespace ridge
