// Any bytes as a JSON schema: an OptionError, or a grammar whose masks never lead into a dead end
// and whose documents are JSON.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "../text/grammar/validator.h"
#include "base/error.h"
#include "base/json.h"
#include "base/random.h"
#include "replay.h"
#include "text/grammar/grammar.h"

namespace {

using ridge::Token;

void require(bool holds) {
  if (!holds) std::abort();
}

std::shared_ptr<const ridge::VocabularyTrie> vocabulary() {
  static const auto made = [] {
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte)
      tokens.push_back(std::string(1, static_cast<char>(byte)));
    for (const char* piece :
         {"{\"", "\":", "\",\"", "\"}", "],", "[[", "\n  ", "null", "a\"", "12"}) {
      tokens.push_back(piece);
    }
    tokens.push_back("");
    const auto end = static_cast<Token>(tokens.size()) - 1;
    return std::make_shared<const ridge::VocabularyTrie>(std::move(tokens), std::vector{end});
  }();
  return made;
}

// A short walk at random, then the shortest way out that is seen. Gives up after many tokens: a
// schema may ask for a long document.
void walk(const std::shared_ptr<const ridge::Grammar>& grammar, const ridge::Json& schema,
          uint64_t seed) {
  ridge::SplitMix64 random(seed);
  ridge::GrammarState state(grammar);
  const Token size = vocabulary()->size();
  std::vector<uint32_t> mask((static_cast<size_t>(size) + 31) / 32);
  std::string text;
  const auto allowed = [&](Token token) {
    return (mask[static_cast<size_t>(token) / 32] >> (token % 32) & 1) != 0;
  };
  for (int drawn = 0; drawn < 300; ++drawn) {
    state.allowed(mask);
    require(allowed(size - 1) == state.may_end());
    if (state.may_end() && drawn > 20) break;
    Token token = -1;
    for (char wanted : std::string_view("\"}]0n")) {
      if (drawn > 20 && token < 0 && allowed(wanted)) token = wanted;
    }
    const auto first = static_cast<Token>(random.next() % static_cast<uint64_t>(size));
    for (Token i = 0; i < size && token < 0; ++i) {
      if (allowed((first + i) % size)) token = (first + i) % size;
    }
    require(token >= 0);  // else a dead end
    require(state.accept(token));
    if (token == size - 1) break;
    text += vocabulary()->bytes(token);
  }
  if (!state.may_end()) return;
  const ridge::Json value = ridge::Json::parse(text, nullptr, false);
  require(!value.is_discarded() && ridge::sample::valid(schema, schema, value));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  try {
    ridge::parse_json(bytes, "fuzz");  // bounds the depth
    const ridge::Json schema = ridge::Json::parse(bytes);
    const auto grammar = std::make_shared<const ridge::Grammar>(schema, vocabulary());
    for (uint64_t seed = 0; seed < 3; ++seed) walk(grammar, schema, seed);
  } catch (const ridge::Error&) {
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      R"({"type":"object","properties":{"a":{"type":"integer","minimum":-3,"maximum":120},
          "b":{"enum":["x","xy",1,null]}},"required":["a"],"additionalProperties":false})",
      R"({"type":"array","items":{"type":"string","minLength":1,"maxLength":3},"minItems":1,
          "maxItems":2})",
      R"({"$defs":{"n":{"type":"object","properties":{"v":{"type":["number","null"]},
          "next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v"]}},
          "$ref":"#/$defs/n"})",
      R"({"prefixItems":[{"const":{"a":[1]}},true],"items":false})",
      R"({"type":"object","additionalProperties":{"type":"boolean","nullable":true}})",
  };
}
