// What a schema may cost, at the bounds and beyond.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"
#include "engine/generate/generation.h"
#include "text/grammar/grammar.h"
#include "text/grammar/grammars.h"

namespace ridge {
namespace {

using sample::byte_vocabulary;
using sample::mask_of;

uint64_t steps_of(const Json& schema) {
  WorkLimit work("the schema", kMaxGrammarSteps);
  Grammar(schema, byte_vocabulary(), work);
  return work.spent();
}

// Each rule is one of the next one and the next one: 2^levels ways, and one place.
Json doubling(int levels, int alternatives) {
  const auto rule = [](int level) { return "a" + std::to_string(level); };
  Json schema{{"$ref", "#/$defs/" + rule(0)}, {"$defs", Json::object()}};
  for (int level = 0; level < levels; ++level) {
    Json& ways = schema["$defs"][rule(level)]["anyOf"];
    for (int i = 0; i < alternatives; ++i) {
      ways.push_back({{"$ref", "#/$defs/" + rule(level + 1)}});
      if (i % 2 == 1) ways.push_back({{"type", "array"}, {"items", ways[0]}, {"minItems", i}});
    }
  }
  schema["$defs"][rule(levels)] = {{"type", "null"}};
  return schema;
}

TEST(GrammarWork, WaysThatMeetAreFollowedOnce) {
  const uint64_t one = steps_of(doubling(20, 2)), two = steps_of(doubling(40, 2));
  EXPECT_LT(two, 6 * one);  // 2^20 times as many without a memory of places
  EXPECT_LT(two, 1'000'000u);
  EXPECT_LT(steps_of(doubling(20, 16)), 4'000'000u);
  const auto grammar = sample::grammar_of(doubling(40, 2).dump());
  EXPECT_TRUE(sample::is_document(grammar, "null"));
  EXPECT_TRUE(sample::is_document(grammar, "[null]"));
}

TEST(GrammarWork, TheLastStepIsAllowedAndTheNextIsNot) {
  const Json schema = doubling(10, 4);
  const uint64_t steps = steps_of(schema);
  WorkLimit enough("the schema", steps);
  Grammar(schema, byte_vocabulary(), enough);
  WorkLimit short_of("the schema", steps - 1);
  EXPECT_THROW(Grammar(schema, byte_vocabulary(), short_of), WorkLimitError);
}

TEST(GrammarWork, WhatASchemaAsksForIsBounded) {
  // A long constant for each of many keys, keys that are asked for again and again, a long chain.
  Json constants{{"additionalProperties", {{"const", std::string(40'000, 'x')}}}};
  for (int i = 0; i < 990; ++i) constants["required"].push_back(std::to_string(i));
  EXPECT_THROW(steps_of(constants), WorkLimitError);
  Json keys;
  for (int i = 0; i < 900; ++i) keys["properties"][std::to_string(i)] = Json::object();
  const uint64_t without = steps_of(keys);
  for (int i = 0; i < 8000; ++i) keys["required"].push_back("899");
  EXPECT_LT(steps_of(keys), without + 50'000);
  Json chain{{"anyOf", {{{"type", "null"}}, {{"$ref", "#/$defs/a0"}}}}};
  for (int i = 0; i < 300; ++i) {
    chain["$defs"]["a" + std::to_string(i)] = {
        {"type", "array"},
        {"prefixItems", {{{"$ref", "#/$defs/a" + std::to_string((i + 1) % 300)}}}},
        {"minItems", 1}};
  }
  EXPECT_LT(steps_of(chain), 2'000'000u);
  // A thousand numbers are a schema like others.
  Json numbers;
  for (int i = 0; i < 990; ++i) {
    numbers["properties"]["abcdefgh" + std::to_string(i)] = {{"type", "number"}};
  }
  EXPECT_LT(steps_of(numbers), kMaxGrammarSteps / 2);
}

// Objects of which each has any key, in each other: everything may be in 32 readings.
Json many_readings() {
  Json ways;
  for (int i = 0; i < 32; ++i) {
    ways.push_back({{"properties", {{"p" + std::to_string(i), {{"$ref", "#/$defs/x"}}}}}});
  }
  return {{"$ref", "#/$defs/x"}, {"$defs", {{"x", {{"anyOf", ways}}}}}};
}

std::shared_ptr<const VocabularyTrie> long_tokens() {
  std::vector<std::string> tokens;
  for (int i = 0; i < 20'000; ++i) {
    tokens.push_back("\"" + std::to_string(i) + "\": 1, \"a\": [1], \"b\": 2, \"c\": 3, \"");
  }
  return byte_vocabulary(std::move(tokens));
}

TEST(GrammarWork, AMaskIsBounded) {
  const auto grammar = std::make_shared<const Grammar>(many_readings(), long_tokens());
  GrammarState state(grammar);
  ASSERT_TRUE(state.accept("{\"p\": {\"p\": {"));
  EXPECT_THROW(mask_of(state, grammar->vocabulary().size()), WorkLimitError);
  ASSERT_TRUE(state.accept("}"));  // nothing has changed
}

TEST(GrammarWork, AMaskThatCostsTooMuchEndsItsGenerationAlone) {
  Weights weights;
  weights.architecture.vocab = 256;
  const std::vector<Token> prompt{1};
  GenerateOptions options;
  Generation generation(weights, options, {}, prompt,
                        std::make_shared<const Grammar>(many_readings(), long_tokens()));
  for (const char c : std::string_view("{\"p\": {\"p\": {")) {
    generation.update_mask();
    if (generation.ended()) break;
    generation.push(static_cast<unsigned char>(c));
  }
  generation.update_mask();
  EXPECT_EQ(generation.ended(), EndReason::failed);
  EXPECT_NE(generation.failure().find("the schema: more than"), std::string::npos);
}

TEST(GrammarWork, CachedMasksAreBoundedByBytes) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 100'000; ++i) tokens.push_back("t" + std::to_string(i));
  const auto grammar = std::make_shared<const Grammar>(
      Json{{"type", "array"}, {"items", {{"type", "integer"}}}, {"minItems", 2000}},
      byte_vocabulary(std::move(tokens)));
  GrammarState state(grammar);
  std::vector<uint32_t> mask(4000);
  ASSERT_TRUE(state.accept("[1"));
  for (int i = 0; i < 1500; ++i) {  // a mask for each count, 12.5 KB each
    ASSERT_TRUE(state.accept(",1"));
    state.allowed(mask);
  }
  EXPECT_LT(grammar->bytes(), kMaxCachedMaskBytes + (1 << 20));
}

}  // namespace
}  // namespace ridge
