// The same tokens whatever the chunks, the batch, the threads and the pages; and the same logits as
// the specification, for every family the engine executes.
#include "engine/runner/runner.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/error.h"
#include "engine/cpu/attention.h"
#include "engine/cpu/matmul_amx.h"
#include "engine/cpu/matmul_kernels.h"
#include "engine/generate/generate.h"
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

  // What must be the same bits is invariant.
  std::unique_ptr<Runner> runner(Storage storage, RunnerOptions options = {},
                                 bool invariant = true) const {
    options.invariant = invariant;
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
// on bf16 activations: 2^-9; int8 blocks: half of 1/127, or 2^-9 of both in tiles), and random
// signs make them grow with the square root of the layers.
TEST_P(RunnerOf, LogitsAreTheSpecifications) {
  struct Case {
    Storage storage;
    double epsilon;
  };
  for (const Case& c :
       {Case{Storage::f32, std::ldexp(1, -11)}, Case{Storage::f16, std::ldexp(1, -11)},
        Case{Storage::bf16, std::ldexp(1, -8)}, Case{Storage::q8_0, 1.0 / 127},
        Case{Storage::q4_0, 1.0 / 127}, Case{Storage::q4_k, 1.0 / 127},
        Case{Storage::q6_k, 1.0 / 127}, Case{Storage::mxfp4, 1.0 / 127},
        Case{Storage::fp8, std::ldexp(1, -8)}}) {
    const auto one = runner(c.storage, {}, false);
    const std::vector<Token> tokens = prompt(40, 3);
    const std::vector<float> got = logits(*one, tokens, 512);
    std::vector<double> gaps;
    const std::vector<double> expected = reference::forward(one->weights(), tokens, &gaps);
    ASSERT_EQ(got.size(), expected.size());
    const size_t vocab = got.size() / tokens.size();
    double error = 0, norm = 0;
    size_t tied = 0;
    for (size_t t = 0; t < tokens.size(); ++t) {
      // A near tie of a router may fall to another expert.
      if (gaps[t] < 4 * c.epsilon && ++tied) continue;
      for (size_t i = t * vocab; i < (t + 1) * vocab; ++i) {
        error += (got[i] - expected[i]) * (got[i] - expected[i]);
        norm += expected[i] * expected[i];
      }
    }
    EXPECT_LT(tied, tokens.size() / 2);
    const double layers = one->weights().architecture.layer_count();
    EXPECT_LT(std::sqrt(error / norm), 3 * c.epsilon * std::sqrt(layers + 1))
        << storage_info(c.storage).name;
  }
}

// On modelled tiles, as if the CPU had AMX.
class TiledRunnerOf : public RunnerOf {
 protected:
  void SetUp() override {
    RunnerOf::SetUp();
    cpu::choose_matmul_kernels(kernels_);
    cpu::choose_attention_tiles(cpu::AttentionTiles::modelled);
  }
  void TearDown() override {
    cpu::choose_attention_tiles(usual_);
    cpu::choose_matmul_kernels(cpu::all_matmul_kernels()[0]);
    RunnerOf::TearDown();
  }
  const cpu::AttentionTiles usual_ = cpu::attention_tiles();
  const cpu::MatmulKernels kernels_ =
      cpu::with_tiles(cpu::all_matmul_kernels()[0], cpu::AmxKernel<cpu::ModelTiles>::kernel());
};

// Prompts of 48 tokens whole and in chunks of 7: what is invariant has the same bits, and so has
// bf16 in chunks of 16 and more. Shorter chunks attend in f32. A block format's whole prompt is
// also multiplied in bf16, and differs by what rounding to int8 does.
TEST_P(TiledRunnerOf, InvarianceIsAChoice) {
  const std::vector<Token> tokens = prompt(48);
  const auto plain = runner(Storage::bf16, {}, false), same = runner(Storage::bf16);
  const std::vector<float> at_once = logits(*plain, tokens, 512);
  expect_same_bits(logits(*plain, tokens, 16), at_once);
  const std::vector<float> in_f32 = logits(*same, tokens, 512);
  expect_same_bits(logits(*same, tokens, 7), in_f32);
  expect_same_bits(logits(*plain, tokens, 7), in_f32);
  EXPECT_EQ(at_once == in_f32, bool(plain->weights().architecture.latent));
  for (const Storage storage : {Storage::q8_0, Storage::q4_0}) {
    const auto invariant = runner(storage), fast = runner(storage, {}, false);
    EXPECT_EQ(invariant->plan().activations, DType::int8);
    EXPECT_EQ(fast->plan().activations, std::nullopt);
    EXPECT_NE(fast->device().find("from 24 tokens"), std::string::npos) << fast->device();
    EXPECT_EQ(invariant->device().find("from 24 tokens"), std::string::npos);
    const std::vector<float> expected = logits(*invariant, tokens, 512);
    expect_same_bits(logits(*invariant, tokens, 7), expected);
    expect_same_bits(logits(*fast, tokens, 7), expected);
    const std::vector<float> whole = logits(*fast, tokens, 512);
    EXPECT_NE(whole, expected);
    expect_same_bits(logits(*runner(storage, {.threads = 1}, false), tokens, 512), whole);
    if (fast->weights().architecture.experts > 0) continue;  // a near tie may fall otherwise
    double error = 0, norm = 0;
    for (size_t i = 0; i < whole.size(); ++i) {
      error += std::pow(double(whole[i]) - double(expected[i]), 2);
      norm += std::pow(double(expected[i]), 2);
    }
    const double layers = fast->weights().architecture.layer_count();
    EXPECT_LT(std::sqrt(error / norm), 3 * (1.0 / 127) * std::sqrt(layers + 1));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TiledRunnerOf,
                         testing::Values(kTinyFamilies[0], kTinyFamilies[7],
                                         kTinyFamilies[12]),  // llama, mixtral, deepseek_v2
                         [](const auto& each) { return std::string(each.param.name); });

// The kernels have room for heads of kMaxHeadDim, in vectors of 8.
TEST(CpuRunner, RefusesHeadsThatItsKernelsHaveNoRoomFor) {
  const auto path =
      std::filesystem::temp_directory_path() / fmt::format("ridge-heads-{}.json", ::getpid());
  for (const int head_dim : {4, 10, 1032, 4096, 16}) {
    std::ofstream(path) << fmt::format(
        R"({{"model_type":"llama","hidden_size":64,"num_hidden_layers":1,"num_attention_heads":2,
            "num_key_value_heads":1,"intermediate_size":64,"vocab_size":300,"head_dim":{}}})",
        head_dim);
    const auto make = [&] {
      make_cpu_runner(random_weights(path.string(), Storage::f32, 1, 1), {.threads = 1});
    };
    if (head_dim == 16) {
      EXPECT_NO_THROW(make());
    } else {
      EXPECT_THROW(make(), Error) << head_dim;
    }
  }
  std::filesystem::remove(path);
}

INSTANTIATE_TEST_SUITE_P(Families, RunnerOf, testing::ValuesIn(kTinyFamilies),
                         [](const auto& each) { return std::string(each.param.name); });

}  // namespace
}  // namespace ridge
