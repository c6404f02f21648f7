// Time of one mask over a vocabulary of 128 k tokens, in the states in which documents are written:
// first (the walk through the vocabulary) and again (from the grammar's cache). Beside it, the copy
// of a mask, below which no mask can be.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "text/grammar/grammar.h"

namespace {

using ridge::Grammar;
using ridge::GrammarState;
using ridge::Json;
using ridge::Token;
using ridge::VocabularyTrie;

constexpr size_t kTokens = 128000;

// Bytes, then random pieces as byte-level BPE has them: words with and without a space before,
// digits, punctuation runs with the quotes and brackets of JSON among them, UTF-8.
std::shared_ptr<const VocabularyTrie> vocabulary() {
  static const auto made = [] {
    ridge::SplitMix64 random(1);
    const auto below = [&](uint64_t count) { return random.next() % count; };
    std::vector<std::string> tokens;
    for (int byte = 0; byte < 256; ++byte)
      tokens.push_back(std::string(1, static_cast<char>(byte)));
    const std::string_view marks = "\"\"\"{}[]:,.!?-_/\\()<>=;' \n";
    while (tokens.size() + 1 < kTokens) {
      std::string token = below(2) == 0 ? " " : "";
      const uint64_t kind = below(20);
      const uint64_t length = 1 + below(5) + below(5);
      for (uint64_t i = 0; i < length; ++i) {
        if (kind == 0) token += marks[below(marks.size())];
        if (kind == 1) token += static_cast<char>('0' + below(10));
        if (kind == 2) token += "\xD0", token += static_cast<char>(0x80 + below(64));
        if (kind > 2) token += "etaoinshrdlucmfwypvbgkjqxz"[std::min(below(26), below(26))];
      }
      tokens.push_back(std::move(token));
    }
    tokens.push_back("");
    return std::make_shared<const VocabularyTrie>(std::move(tokens),
                                                  std::vector<Token>{Token{kTokens} - 1});
  }();
  return made;
}

struct Place {
  const char *name, *schema, *text;
};
constexpr const char* kPerson =
    R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},
        "bio":{"type":"string","maxLength":100},"tags":{"type":"array","items":{"type":"string"}}},
        "required":["name","age","bio","tags"],"additionalProperties":false})";
constexpr const char* kOpen = R"({"type":"object","properties":{"name":{"type":"string"}}})";
constexpr const char* kObject = R"({"type":"object"})";
constexpr Place kPlaces[] = {
    {"start", kPerson, ""},
    {"key", kPerson, "{\"na"},
    {"string", kPerson, R"({"name": "An)"},
    {"bounded_string", kPerson, R"({"name": "Ann", "age": 3, "bio": "She is)"},
    {"integer", kPerson, R"({"name": "Ann", "age": 3)"},
    {"list_item", kPerson, R"({"name": "Ann", "age": 3, "bio": "", "tags": ["a", )"},
    {"other_key", kOpen, "{\"x"},
    {"key_start_beside_names", kOpen, "{\""},
    {"any_value", kObject, "{\"x\": "},
    {"any_nested", kObject, R"({"x": [[{"y": [1, {"z": "abc)"},
    {"inside_character", kObject, "{\"x\": \"\xE2\x82"},
};

GrammarState state_at(const Place& place) {
  GrammarState state(std::make_shared<const Grammar>(Json::parse(place.schema), vocabulary()));
  if (!state.accept(place.text)) std::abort();
  return state;
}

void mask_first(benchmark::State& bench, const Place& place) {
  std::vector<uint32_t> mask((kTokens + 31) / 32);
  for (auto _ : bench) {
    bench.PauseTiming();
    const GrammarState state = state_at(place);  // a grammar without cached masks
    bench.ResumeTiming();
    state.allowed(mask);
  }
}

void mask_cached(benchmark::State& bench, const Place& place) {
  std::vector<uint32_t> mask((kTokens + 31) / 32);
  const GrammarState state = state_at(place);
  state.allowed(mask);
  for (auto _ : bench) {
    state.allowed(mask);
    benchmark::DoNotOptimize(mask.data());
  }
}

void mask_copy(benchmark::State& bench) {
  std::vector<uint32_t> mask((kTokens + 31) / 32), copy(mask.size());
  for (auto _ : bench) {
    std::copy(mask.begin(), mask.end(), copy.begin());
    benchmark::DoNotOptimize(copy.data());
  }
}
BENCHMARK(mask_copy);

void compile_person(benchmark::State& bench) {
  const Json schema = Json::parse(kPerson);
  vocabulary();  // not timed
  for (auto _ : bench) benchmark::DoNotOptimize(Grammar(schema, vocabulary()).automaton().start);
}
BENCHMARK(compile_person);

const bool registered = [] {
  for (const Place& place : kPlaces) {
    const std::string name = place.name;
    benchmark::RegisterBenchmark(("mask_first/" + name).c_str(), mask_first, place);
    benchmark::RegisterBenchmark(("mask_cached/" + name).c_str(), mask_cached, place);
  }
  return true;
}();

}  // namespace
