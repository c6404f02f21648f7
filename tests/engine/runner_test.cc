// The same tokens whatever the chunks, the batch, the threads and the pages; and the same logits as
// the specification, for every family the engine executes.
#include "engine/runner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "engine/generate.h"
#include "engine/reference/forward.h"
#include "engine/tiny_families.h"

namespace ridge {
namespace {

class RunnerOf : public testing::TestWithParam<TinyFamily> {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            fmt::format("ridge-{}-{}.json", GetParam().name, ::getpid());
    std::ofstream(path_) << GetParam().config;
  }
  void TearDown() override { std::filesystem::remove(path_); }

  std::unique_ptr<Runner> runner(Storage storage, RunnerOptions options = {}) const {
    options.cache_tokens = 1024;
    options.max_sequences = 8;
    options.max_logit_rows = options.max_tokens;
    if (options.threads == 0) options.threads = 2;
    return make_cpu_runner(random_weights(path_.string(), storage, 7, 1), options);
  }
  static std::vector<Token> prompt(int count, uint32_t seed = 1) {
    std::mt19937 random(seed);
    std::vector<Token> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(Token(random() % 300));
    return tokens;
  }
  // Logits of every token, given in chunks of `chunk`.
  static std::vector<float> logits(Runner& runner, std::span<const Token> tokens, size_t chunk) {
    std::vector<float> all;
    PagePool pool(runner.page_count(), runner.options().page_tokens);
    KvSequence sequence(pool);
    Ledger ledger;
    for (size_t at = 0; at < tokens.size(); at += chunk) {
      const auto part = tokens.subspan(at, std::min(chunk, tokens.size() - at));
      prefill(runner, sequence, part, int(part.size()), ledger);
      const auto rows = runner.logits();
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }

  std::filesystem::path path_;
};

void expect_same_bits(std::span<const float> a, std::span<const float> b) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size_bytes()), 0);
}

TEST_P(RunnerOf, ChunksThreadsAndPagesChangeNothing) {
  for (Storage storage : {Storage::bf16, Storage::f32, Storage::q8_0, Storage::q4_0}) {
    const std::vector<Token> tokens = prompt(70);
    const auto whole = runner(storage);
    const std::vector<float> expected = logits(*whole, tokens, 512);
    for (size_t chunk : {size_t{1}, size_t{7}, size_t{33}}) {
      expect_same_bits(logits(*whole, tokens, chunk), expected);
    }
    expect_same_bits(logits(*runner(storage, {.threads = 1}), tokens, 512), expected);
    expect_same_bits(logits(*runner(storage, {.page_tokens = 1024}), tokens, 9), expected);
    expect_same_bits(logits(*runner(storage, {.page_tokens = 48}), tokens, 512), expected);
  }
}

TEST_P(RunnerOf, ABatchOfEightGivesWhatEachGivesAlone) {
  const auto shared = runner(Storage::bf16);
  std::vector<std::vector<Token>> prompts;
  std::vector<std::vector<float>> alone;
  for (int s = 0; s < 8; ++s) {
    prompts.push_back(prompt(3 + 5 * s, uint32_t(s) + 10));
    alone.push_back(logits(*shared, prompts.back(), 512));
  }
  PagePool pool(shared->page_count(), shared->options().page_tokens);
  std::vector<KvSequence> sequences;
  std::vector<PageCopy> copies;
  std::vector<Slice> batch;
  for (const auto& tokens : prompts) {
    sequences.emplace_back(pool);
    ASSERT_TRUE(sequences.back().reserve(int(tokens.size()), copies));
    batch.push_back({tokens, 0, sequences.back().pages(), int(tokens.size())});
  }
  shared->run(batch);
  std::span<const float> together = shared->logits();
  for (const auto& expected : alone) {
    expect_same_bits(together.first(expected.size()), expected);
    together = together.subspan(expected.size());
  }
}

// A step of a scheduler: a chunk of one prompt, decode rows of other sequences and the first chunk
// of a new prompt. Each sequence gets the bits that it gets alone.
TEST_P(RunnerOf, PrefillChunksAndDecodeRowsOfOneStepGiveWhatEachGivesAlone) {
  struct Part {
    int past, fresh, logits;
  };
  constexpr Part kParts[] = {{0, 19, 2}, {21, 1, 1}, {16, 33, 33},
                             {1, 1, 1},  {70, 1, 1}, {5, 2, 0}};
  for (const Storage storage : {Storage::bf16, Storage::q4_0}) {
    // A runner of its own for the sequences alone: two pools over one cache would share pages.
    const auto engine = runner(storage), single = runner(storage);
    const size_t vocab = size_t(engine->weights().architecture.vocab);
    std::vector<std::vector<Token>> texts;
    PagePool pool(engine->page_count(), engine->options().page_tokens);
    std::vector<KvSequence> sequences;
    std::vector<PageCopy> copies;
    std::vector<Slice> batch;
    std::vector<float> alone;
    Ledger ledger;
    for (const Part& part : kParts) {
      texts.push_back(prompt(part.past + part.fresh, uint32_t(texts.size()) + 30));
      const std::span<const Token> tokens = texts.back();
      const std::vector<float> rows = logits(*single, tokens, 512);
      alone.insert(alone.end(), rows.end() - std::ptrdiff_t(size_t(part.logits) * vocab),
                   rows.end());
      sequences.emplace_back(pool);
      KvSequence& sequence = sequences.back();
      const auto past = size_t(part.past);
      if (past > 0) prefill(*engine, sequence, tokens.first(past), 0, ledger);
      ASSERT_TRUE(sequence.reserve(part.fresh, copies));
      batch.push_back({tokens.subspan(past), part.past, sequence.pages(), part.logits});
    }
    engine->run(batch);
    expect_same_bits(engine->logits(), alone);
  }
}

// Against double arithmetic over the same stored weights. Every layer adds a relative error of a
// few roundings of what it stores (f16 cache: 2^-11) and of its activations (bf16 weights may run
// on bf16 activations: 2^-9; int8 blocks: half of 1/127), and random signs make them grow with the
// square root of the layers.
TEST_P(RunnerOf, LogitsAreTheSpecifications) {
  struct Case {
    Storage storage;
    double epsilon;
  };
  for (const Case& c :
       {Case{Storage::f32, std::ldexp(1, -11)}, Case{Storage::f16, std::ldexp(1, -11)},
        Case{Storage::bf16, std::ldexp(1, -8)}, Case{Storage::q8_0, 1.0 / 127},
        Case{Storage::q4_0, 1.0 / 127}, Case{Storage::q4_k, 1.0 / 127},
        Case{Storage::q6_k, 1.0 / 127}}) {
    const auto one = runner(c.storage);
    const std::vector<Token> tokens = prompt(40, 3);
    const std::vector<float> got = logits(*one, tokens, 512);
    const std::vector<double> expected = reference::forward(one->weights(), tokens);
    ASSERT_EQ(got.size(), expected.size());
    double error = 0, norm = 0;
    for (size_t i = 0; i < got.size(); ++i) {
      error += (got[i] - expected[i]) * (got[i] - expected[i]);
      norm += expected[i] * expected[i];
    }
    const double layers = one->weights().architecture.layer_count();
    EXPECT_LT(std::sqrt(error / norm), 3 * c.epsilon * std::sqrt(layers + 1))
        << storage_info(c.storage).name;
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RunnerOf, testing::ValuesIn(kTinyFamilies),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace ridge
