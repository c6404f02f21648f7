// Ranks that share a model give what one rank gives, for every family and cut.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/error.h"
#include "engine/generate/generate.h"
#include "engine/tiny_families.h"
#include "ranks/rank_threads.h"

namespace ridge {
namespace {

constexpr RankGrid kGrids[] = {{.tp = 2},
                               {.tp = 4},
                               {.pp = 2},
                               {.tp = 2, .pp = 2},
                               {.tp = 2, .whole_experts = true},
                               {.tp = 2, .pp = 2, .whole_experts = true}};

std::string name_of(const RankGrid& grid) {
  return fmt::format("tp{}pp{}{}", grid.tp, grid.pp, grid.whole_experts ? "ep" : "");
}

RunnerOptions options_for_ranks() {
  RunnerOptions options;
  options.kv = KvStorage::f32;
  options.cache_tokens = 1024;
  options.max_sequences = 8;
  options.max_logit_rows = options.max_tokens;
  options.invariant = true;  // stages take parts of a step
  return options;
}

class RankedRunnerOf : public testing::TestWithParam<TinyFamily> {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            fmt::format("ridge-ranks-{}-{}.json", GetParam().name, ::getpid());
    std::ofstream(path_) << GetParam().config;
  }
  void TearDown() override { std::filesystem::remove(path_); }

  Weights weights(Storage storage) const { return random_weights(path_.string(), storage, 7, 1); }
  std::unique_ptr<Runner> alone(Storage storage) const {
    RunnerOptions options = options_for_ranks();
    options.threads = 1;
    return make_cpu_runner(weights(storage), options);
  }
  bool can_cut(Storage storage, const RankGrid& grid) const {
    if (mpi_processes() > 1 && mpi_processes() != grid.ranks()) return false;
    const Weights whole = weights(storage);
    if (grid.whole_experts && whole.architecture.experts == 0) return false;
    try {
      check_cut(whole, grid);
    } catch (const Error&) {
      return false;
    }
    return true;
  }

  static std::vector<Token> some_prompt(int count, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<Token> tokens;
    for (int i = 0; i < count; ++i) tokens.push_back(Token(random() % 300));
    return tokens;
  }
  // Logits of a mixed step: three prompts of different lengths side by side.
  static std::vector<float> mixed_logits(Runner& runner) {
    PagePool pool(runner.page_count(), runner.options().page_tokens);
    std::vector<std::vector<Token>> prompts;
    std::vector<KvSequence> sequences;
    std::vector<PageCopy> copies;
    std::vector<Slice> batch;
    for (int s = 0; s < 3; ++s) prompts.push_back(some_prompt(5 + 19 * s, uint32_t(s)));
    for (const std::vector<Token>& prompt : prompts) {
      sequences.emplace_back(pool);
      EXPECT_TRUE(sequences.back().reserve(int(prompt.size()), copies));
      batch.push_back({prompt, 0, sequences.back().pages(), int(prompt.size())});
    }
    runner.run(batch);
    const std::span<const float> rows = runner.logits();
    return {rows.begin(), rows.end()};
  }
  static std::vector<Token> generated(Runner& runner, double temperature) {
    PagePool pool(runner.page_count(), runner.options().page_tokens);
    KvSequence sequence(pool);
    GenerateOptions options;
    options.max_tokens = 24;
    options.ignore_end = true;
    options.sampler.temperature = temperature;
    options.sampler.top_k = temperature > 0 ? 20 : 0;
    return generate(runner, sequence, some_prompt(17, 3), options, {}).tokens;
  }

  std::filesystem::path path_;
};

// A sum cut into parts is added in another order: a rounding of 2^-24 in each of a few dozen
// operators, which grows as the square root of the few hundred terms. Quantized activations round
// at the same block boundaries on every rank, but a value that lies on the edge may round the other
// way, by 1/127 of the block's largest; bf16 ones by 2^-8. Such errors grow with the square root of
// the layers.
TEST_P(RankedRunnerOf, LogitsAreThoseOfOneRank) {
  struct Case {
    Storage storage;
    double epsilon;
  };
  for (const Case& c :
       {Case{Storage::f32, std::ldexp(1, -24) * 160}, Case{Storage::bf16, 1.0 / 256},
        Case{Storage::q8_0, 1.0 / 127}, Case{Storage::q4_0, 1.0 / 127},
        Case{Storage::q4_k, 1.0 / 127}, Case{Storage::q6_k, 1.0 / 127},
        Case{Storage::mxfp4, 1.0 / 127}, Case{Storage::fp8, 1.0 / 256}}) {
    const std::unique_ptr<Runner> one = alone(c.storage);
    const std::vector<float> expected = mixed_logits(*one);
    const double layers = one->weights().architecture.layer_count();
    for (const RankGrid& grid : kGrids) {
      if (!can_cut(c.storage, grid)) continue;
      RankThreads ranks(
          grid, [&] { return weights(c.storage); }, options_for_ranks());
      if (!ranks.leads()) continue;
      const std::vector<float> got = mixed_logits(ranks.leader());
      ASSERT_EQ(got.size(), expected.size());
      double error = 0, norm = 0;
      for (size_t i = 0; i < got.size(); ++i) {
        const double difference = double(got[i]) - double(expected[i]);
        error += difference * difference;
        norm += double(expected[i]) * double(expected[i]);
      }
      // Stages change no sum.
      const double bound = grid.tp == 1 ? 0 : c.epsilon * std::sqrt(layers + 1);
      EXPECT_LE(std::sqrt(error / norm), bound)
          << name_of(grid) << ", " << storage_info(c.storage).name;
    }
  }
}

TEST_P(RankedRunnerOf, TokensAreThoseOfOneRank) {
  const std::unique_ptr<Runner> one = alone(Storage::f32);
  const std::vector<Token> greedy = generated(*one, 0), drawn = generated(*one, 0.8);
  EXPECT_TRUE(mpi_processes() > 1 || can_cut(Storage::f32, {.tp = 2, .pp = 2}));
  for (const RankGrid& grid : kGrids) {
    if (!can_cut(Storage::f32, grid)) continue;
    RankThreads ranks(
        grid, [&] { return weights(Storage::f32); }, options_for_ranks());
    if (!ranks.leads()) continue;
    EXPECT_EQ(generated(ranks.leader(), 0), greedy) << name_of(grid);
    EXPECT_EQ(generated(ranks.leader(), 0.8), drawn) << name_of(grid);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, RankedRunnerOf, testing::ValuesIn(kTinyFamilies),
                         [](const auto& each) { return std::string(each.param.name); });

// The same with processes that talk through MPI, more of them than cores.
TEST(RankedRunnerOverMpi, EveryFamilyAndFormatIsThatOfOneRank) {
  RunningProgram version({"mpirun", "--version"});
  if (version.wait() != 0) GTEST_SKIP() << "mpirun is not here (openmpi-bin)";
  const std::string logits = "Families/RankedRunnerOf.Logits*";
  for (const auto& [processes, filter] :
       {std::pair<std::string, std::string>{"2", logits + ":*RankedRunnerOf.Tokens*/gpt_oss"},
        {"4", logits + ":*RankedRunnerOf.Tokens*/llama"}}) {
    RunningProgram program(this_under_mpi(processes, filter));
    ASSERT_EQ(program.wait(std::chrono::seconds(500)), 0) << program.text();
    const std::string passed = fmt::format("[  PASSED  ] {} tests.", std::size(kTinyFamilies) + 1);
    EXPECT_NE(program.text().find(passed), std::string::npos) << program.text();
  }
}

// Each element of a sum is added in the order of the ranks, whatever else is in the message. So a
// token's logits do not depend on its batch, as on one rank.
TEST(RankedRunner, BatchAndChunksChangeNoBit) {
  RunnerOptions options = options_for_ranks();
  RankThreads ranks(
      {.tp = 2, .pp = 2}, [] { return load_weights("ridge-1m"); }, options);
  Runner& runner = ranks.leader();
  std::vector<Token> prompt;
  for (int i = 0; i < 40; ++i) prompt.push_back(Token(i * 7 + 3));
  const auto last_row = [&](size_t chunk, int beside) {
    PagePool pool(runner.page_count(), runner.options().page_tokens);
    std::vector<KvSequence> sequences;
    for (int s = 0; s <= beside; ++s) sequences.emplace_back(pool);
    std::vector<PageCopy> copies;
    std::vector<float> row;
    for (size_t at = 0; at < prompt.size(); at += chunk) {
      const std::span<const Token> part =
          std::span<const Token>(prompt).subspan(at, std::min(chunk, prompt.size() - at));
      std::vector<Slice> batch;
      for (KvSequence& sequence : sequences) {
        EXPECT_TRUE(sequence.reserve(int(part.size()), copies));
        batch.push_back({part, int(at), sequence.pages(), 1});
        sequence.commit(int(part.size()));
      }
      runner.run(batch);
      const std::span<const float> logits = runner.logits();
      row.assign(logits.begin(), logits.begin() + runner.weights().architecture.vocab);
    }
    return row;
  };
  const std::vector<float> expected = last_row(40, 0);
  EXPECT_EQ(last_row(7, 0), expected);
  EXPECT_EQ(last_row(40, 3), expected);
  EXPECT_EQ(last_row(1, 1), expected);
}

TEST(RankedRunner, AStepThatCannotBeLeavesTheRanksAsTheyWere) {
  RankThreads ranks(
      {.tp = 2}, [] { return load_weights("ridge-1m"); }, options_for_ranks());
  Runner& runner = ranks.leader();
  const std::vector<Token> outside{1 << 28}, fine{1, 2, 3};
  const std::vector<int> pages{0};
  const Slice wrong{outside, 0, pages, 1}, right{fine, 0, pages, 1};
  EXPECT_THROW(runner.run({&wrong, 1}), Error);
  runner.run({&right, 1});
  EXPECT_EQ(runner.logits().size(), size_t(runner.weights().architecture.vocab));
}

TEST(CutWeights, RefusesWhatDoesNotDivide) {
  const Weights whole = load_weights("ridge-7m");
  const Architecture& a = whole.architecture;
  EXPECT_THROW(check_cut(whole, {.pp = a.layer_count() + 1}), Error);
  EXPECT_THROW(check_cut(whole, {.tp = a.heads + 1}), Error);
  EXPECT_THROW(check_cut(whole, {.tp = 2, .whole_experts = true}), Error);
}

// Every row and column of every matrix is on exactly one rank of its stage.
TEST(CutWeights, PartsAddUpToTheWhole) {
  const Weights whole = load_weights("ridge-7m");
  const RankGrid grid{.tp = 2, .pp = 2};
  double rows = 0, columns = 0, layers = 0, head = 0;
  for (int rank = 0; rank < grid.ranks(); ++rank) {
    const Weights part = cut_weights(whole, grid, rank);
    layers += part.architecture.layer_count();
    if (part.head) head += double(part.head.rows);
    for (const LayerWeights& layer : part.layers) {
      rows += double(layer.q.rows + layer.gate.rows);
      columns += double(layer.out.columns + layer.down.columns);
    }
  }
  const Architecture& a = whole.architecture;
  EXPECT_EQ(layers, 2.0 * a.layer_count());
  EXPECT_EQ(head, a.vocab);
  EXPECT_EQ(rows, double(a.layer_count()) * (a.q_columns() + a.ffn));
  EXPECT_EQ(columns, rows);
}

}  // namespace
}  // namespace ridge
