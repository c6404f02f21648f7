// Masks against the definition, walks through the shipped model's vocabulary, prefixes against a
// plain parser.
#include "text/grammar/grammar.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "text/grammar/grammars.h"
#include "text/grammar/random_schemas.h"
#include "text/grammar/validator.h"

namespace ridge {
namespace {

using sample::allows;
using sample::byte_vocabulary;
using sample::grammar_of;
using sample::mask_of;
using sample::RandomSchemas;

std::shared_ptr<const VocabularyTrie> shipped_vocabulary() {
  static const auto vocabulary = std::make_shared<const VocabularyTrie>(
      *load_tokenizer(RIDGE_SOURCE_DIR "/models/ridge-7m.gguf"));
  return vocabulary;
}

// Bytes and pieces as real vocabularies have them, over many borders of JSON.
std::shared_ptr<const VocabularyTrie> structural_vocabulary() {
  return byte_vocabulary({"{\"",   "\":",     "\": ",     "\",",      "\", \"",   "\"}",
                          "}]",    "]}",      "},{\"",    "[[",       "[{\"",     "  ",
                          "\n  ",  ",\n    ", "name",     "na",       "me\":",    "null",
                          "true}", "123",     "0.5",      "1,2",      "e-1",      "\\n",
                          "\\u00", "\\\"",    "\xC3\xA9", "\xE2\x82", "\x9F\x98", "a\xF0",
                          "\"\"",  "\":\"\"", "a\"",      "\\",       "bb\",\"",  "\\ud83d\\u"});
}

// Draws allowed tokens until the end. Past `free` tokens it takes the shortest way out that it
// sees.
std::string random_document(const std::shared_ptr<const Grammar>& grammar, RandomSchemas& random,
                            int free, bool compare) {
  const VocabularyTrie& vocabulary = grammar->vocabulary();
  GrammarState state(grammar);
  std::string text;
  for (int drawn = 0; drawn < 5000; ++drawn) {
    const std::vector<uint32_t> mask = mask_of(state, vocabulary.size());
    std::vector<Token> tokens;
    for (Token token = 0; token < vocabulary.size(); ++token) {
      const bool allowed = allows(mask, token);
      if (allowed) tokens.push_back(token);
      if (compare) {
        GrammarState copy = state;
        EXPECT_EQ(copy.accept(token), allowed) << text << " then " << vocabulary.bytes(token);
      }
    }
    const bool ends = allows(mask, vocabulary.ends()[0]);
    EXPECT_EQ(ends, state.may_end());
    EXPECT_EQ(state.finished(), ends && tokens.size() == vocabulary.ends().size()) << text;
    if (tokens.empty()) {
      ADD_FAILURE() << "dead end after " << text;
      return text;
    }
    if (ends && (drawn > free || random.below(2) == 0 || state.finished())) return text;
    Token token = tokens[random.below(tokens.size())];
    if (drawn > free) {
      for (std::string_view wanted : {"\"", "}", "]", "0", "n"}) {
        const auto found = std::find_if(tokens.begin(), tokens.end(), [&](Token candidate) {
          return vocabulary.bytes(candidate) == wanted;
        });
        if (found == tokens.end()) continue;
        token = *found;
        break;
      }
    }
    if (!vocabulary.bytes(token).empty()) {
      EXPECT_TRUE(state.accept(token));
      text += vocabulary.bytes(token);
    }
  }
  ADD_FAILURE() << "no end: " << text.substr(0, 200);
  return text;
}

void walk_schemas(uint64_t seed, int schemas, int walks,
                  const std::shared_ptr<const VocabularyTrie>& vocabulary, bool compare) {
  RandomSchemas random(seed);
  int compiled = 0;
  for (int i = 0; i < schemas; ++i) {
    const Json schema = random.root();
    SCOPED_TRACE(schema.dump());
    std::shared_ptr<const Grammar> grammar;
    try {
      grammar = std::make_shared<Grammar>(schema, vocabulary);
    } catch (const OptionError&) {
      continue;  // bounds that exclude each other
    }
    ++compiled;
    for (int walk = 0; walk < walks; ++walk) {
      const std::string text = random_document(grammar, random, 40, compare);
      const Json value = Json::parse(text, nullptr, false);
      ASSERT_FALSE(value.is_discarded()) << text;
      ASSERT_TRUE(sample::valid(schema, schema, value)) << text;
      if (testing::Test::HasFailure()) return;
    }
  }
  EXPECT_GT(compiled, schemas / 2);
}

TEST(Grammar, RandomWalksGiveValidDocuments) {
  walk_schemas(1, 80, 2, shipped_vocabulary(), false);
  walk_schemas(2, 200, 2, structural_vocabulary(), false);
}

TEST(Grammar, MasksAreWhatIsAccepted) {
  walk_schemas(3, 50, 1, structural_vocabulary(), true);
  walk_schemas(4, 3, 1, shipped_vocabulary(), true);
}

TEST(Grammar, EveryTokenisationIsReadAlike) {
  RandomSchemas random(5);
  const auto vocabulary = structural_vocabulary();
  for (int i = 0; i < 100; ++i) {
    const Json schema = random.root();
    SCOPED_TRACE(schema.dump());
    std::shared_ptr<const Grammar> grammar;
    try {
      grammar = std::make_shared<Grammar>(schema, vocabulary);
    } catch (const OptionError&) {
      continue;
    }
    std::string text = random_document(grammar, random, 20, false);
    if (random.below(3) == 0 && !text.empty()) {
      text[random.below(text.size())] = static_cast<char>(random.below(256));
    }
    GrammarState bytes(grammar), pieces(grammar);
    size_t read = 0;
    while (read < text.size() && bytes.accept(text.substr(read, 1))) ++read;
    for (size_t at = 0; at < read;) {
      const size_t length = std::min(read - at, 1 + random.below(6));
      ASSERT_TRUE(pieces.accept(text.substr(at, length))) << text;
      at += length;
    }
    EXPECT_EQ(bytes.may_end(), pieces.may_end());
    EXPECT_EQ(mask_of(bytes, vocabulary->size()), mask_of(pieces, vocabulary->size())) << text;
    if (read < text.size()) {
      // A refused text leaves the state as it was.
      EXPECT_FALSE(pieces.accept(text.substr(read)));
      EXPECT_EQ(mask_of(bytes, vocabulary->size()), mask_of(pieces, vocabulary->size())) << text;
    }
  }
}

TEST(Grammar, AgreesWithAParserOnEveryPrefix) {
  RandomSchemas random(6);
  const auto any = grammar_of("true");
  for (int i = 0; i < 300; ++i) {
    const Json value = random.value(4);
    for (std::string text : {value.dump(), value.dump(2), value.dump(-1, ' ', true)}) {
      GrammarState state(any);
      for (size_t at = 0; at < text.size(); ++at) {
        ASSERT_TRUE(state.accept(text.substr(at, 1))) << text;
        ASSERT_EQ(state.may_end(), Json::accept(text.substr(0, at + 1))) << text.substr(0, at + 1);
      }
      text[random.below(text.size())] = static_cast<char>(random.below(256));
      GrammarState mutated(any);
      const bool accepted = mutated.accept(text) && mutated.may_end();
      ASSERT_TRUE(!accepted || Json::accept(text)) << text;
    }
  }
}

TEST(Grammar, OnlyEndsAndTextAreAllowed) {
  // Token 0 is a control token; 1 and 2 end; 3 has the text of an end token.
  const auto vocabulary = std::make_shared<const VocabularyTrie>(
      std::vector<std::string>{"", "</s>", "<eot>", "{", "}", "{}"}, std::vector<Token>{1, 2});
  GrammarState state(grammar_of(any_object_schema().dump(), vocabulary));
  std::vector<uint32_t> mask(3, ~0u);  // longer than the vocabulary needs
  state.allowed(mask);
  EXPECT_EQ(mask, (std::vector<uint32_t>{1u << 3 | 1u << 5, 0, 0}));
  for (Token refused : {0, 1, 2, 4, -1, 6}) EXPECT_FALSE(state.accept(refused));
  GrammarState before = state;
  EXPECT_TRUE(state.accept(3));
  EXPECT_TRUE(state.accept(4));
  EXPECT_TRUE(state.finished());
  state.allowed(mask);
  EXPECT_EQ(mask, (std::vector<uint32_t>{1u << 1 | 1u << 2, 0, 0}));
  EXPECT_TRUE(state.accept(2));
  EXPECT_FALSE(before.may_end());
  EXPECT_TRUE(before.accept(5));
  EXPECT_TRUE(before.finished());
}

TEST(Grammar, AmbiguousRecursionIsBounded) {
  const auto grammar = grammar_of(
      R"({"$defs":{"x":{"anyOf":[{"type":"array","items":{"$ref":"#/$defs/x"}},
          {"type":"array","items":{"$ref":"#/$defs/x"},"minItems":2},
          {"type":"array","prefixItems":[{"$ref":"#/$defs/x"}]}]}},"$ref":"#/$defs/x"})",
      structural_vocabulary());
  const auto start = std::chrono::steady_clock::now();
  GrammarState state(grammar);
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(state.accept("["));
  mask_of(state, grammar->vocabulary().size());
  for (int i = 0; i < 40; ++i) {
    ASSERT_FALSE(state.may_end());
    ASSERT_TRUE(state.accept("]"));
  }
  EXPECT_TRUE(state.may_end());
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

TEST(Grammar, ThreadsShareAGrammar) {
  const auto grammar = grammar_of(any_object_schema().dump(), structural_vocabulary());
  const std::string text = R"({"name": [1, "bb", {"a": null}], "x": "\u00e9"})";
  const auto read = [&] {
    std::vector<std::vector<uint32_t>> masks;
    GrammarState state(grammar);
    for (char c : text) {
      masks.push_back(mask_of(state, grammar->vocabulary().size()));
      state.accept(std::string_view(&c, 1));
    }
    return masks;
  };
  std::vector<std::vector<std::vector<uint32_t>>> results(4);
  std::vector<std::thread> threads;
  for (auto& result : results) threads.emplace_back([&] { result = read(); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

}  // namespace
}  // namespace ridge
