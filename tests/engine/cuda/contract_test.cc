// The runner's contract on CUDA: copied pages, steps in flight, bounds, memory. Skipped where no
// device is (ctest label gpu).
#include <gtest/gtest.h>

#include <numeric>

#include "base/error.h"
#include "engine/cuda/families.h"
#include "engine/cuda/host/device_model.h"
#include "engine/cuda/on_device.h"
#include "engine/sampling/gumbel.h"

namespace ridge {
namespace {

struct Forked {
  KvStorage kv;
  int page_tokens;
  const char* family = "llama";
};
class GpuPages : public testing::TestWithParam<Forked> {};

// A fork copies the partial page: equal steps on both give equal bits, and neither changes the
// other.
TEST_P(GpuPages, CopiedPagesGiveTheSameLogits) {
  const Config config(family_of(GetParam().family).config);
  std::string why;
  RunnerOptions options;
  options.page_tokens = GetParam().page_tokens;
  const auto runner = cuda_runner(config, why, options, GetParam().kv);
  if (!runner) GTEST_SKIP() << why;
  const int vocab = runner->weights().architecture.vocab;
  const std::vector<Token> first = prompt(53, 1, vocab);  // ends inside a page of 16 and of 32
  // A single token by the decode kernel, a prompt layer by layer.
  for (const int count : {1, 40}) {
    const std::vector<Token> same = prompt(count, 2, vocab), other = prompt(count, 3, vocab);
    const std::vector<Token> last = prompt(1, 4, vocab);
    PagePool pool = pool_of(*runner);
    KvSequence original(pool);
    logits_of(*runner, original, first, 0);
    KvSequence fork = original.fork(), different = original.fork();

    StepOf step(*runner);
    step.add(fork, same, 1);
    ASSERT_EQ(step.copies().size(), 1u);
    EXPECT_EQ(step.copies()[0].tokens, 53 % GetParam().page_tokens);
    const std::vector<float> of_fork = step.logits();
    logits_of(*runner, different, other, 1);
    const std::vector<float> of_original = logits_of(*runner, original, same, 1);
    EXPECT_EQ(of_fork, of_original);
    EXPECT_EQ(logits_of(*runner, fork, last, 1), logits_of(*runner, original, last, 1));

    KvSequence alone(pool);
    logits_of(*runner, alone, first, 0);
    EXPECT_EQ(logits_of(*runner, alone, same, 1), of_original) << "without forks";
    EXPECT_NE(logits_of(*runner, different, last, 1), logits_of(*runner, alone, last, 1));
  }
}

std::string fork_name(const testing::TestParamInfo<Forked>& each) {
  constexpr const char* kNames[] = {"f32", "f16", "bf16", "int8", "fp8"};  // as KvStorage
  return fmt::format("{}_{}_{}", each.param.family, kNames[size_t(each.param.kv)],
                     each.param.page_tokens);
}

const Forked kForked[] = {{KvStorage::bf16, 16},
                          {KvStorage::f16, 16},
                          {KvStorage::fp8, 16},
                          {KvStorage::int8, 16},
                          {KvStorage::bf16, 32},
                          {KvStorage::int8, 32},
                          {KvStorage::bf16, 32, "deepseek_v2"}};
INSTANTIATE_TEST_SUITE_P(Gpu, GpuPages, testing::ValuesIn(kForked), fork_name);

// Tokens of `steps` steps of `sequences` sequences. In flight: step n + 1 is queued with the tokens
// that step n left on the device before step n is fetched.
std::vector<Token> generate_tokens(Runner& runner, int sequences, int steps, bool draw,
                                   bool in_flight) {
  const int vocab = runner.weights().architecture.vocab;
  PagePool pool = pool_of(runner);
  std::vector<KvSequence> held;
  std::vector<std::vector<Token>> prompts;
  for (int i = 0; i < sequences; ++i) {
    held.emplace_back(pool);
    prompts.push_back(prompt(1 + i % 5, i, vocab));
  }
  std::vector<Token> next(size_t(sequences), 0), all;
  std::vector<TopLogitsRequest> requests(size_t(sequences), TopLogitsRequest{});
  StepOf step(runner);
  const auto queue = [&](int n) {
    for (int i = 0; i < sequences; ++i) {
      const std::span<const Token> tokens = n == 0 ? std::span<const Token>(prompts[size_t(i)])
                                                   : std::span<const Token>(&next[size_t(i)], 1);
      step.add(held[size_t(i)], tokens, 1);
      requests[size_t(i)].draw = draw;
      requests[size_t(i)].key = gumbel_key(uint64_t(i), n);
    }
    step.run();
    runner.sample(requests);
  };
  const auto fetch = [&] {
    const std::span<const TopLogits> found = runner.fetch();
    EXPECT_EQ(found.size(), size_t(sequences));
    for (size_t i = 0; i < found.size(); ++i) {
      EXPECT_FALSE(found[i].broken);
      all.push_back(found[i].chosen.token);
      if (!in_flight) next[i] = found[i].chosen.token;
    }
  };
  if (in_flight) {
    for (int i = 0; i < sequences; ++i) next[size_t(i)] = sampled_row(i);
  }
  queue(0);
  for (int n = 1; n < steps; ++n) {
    if (!in_flight) fetch();
    queue(n);
    if (in_flight) fetch();
  }
  fetch();
  return all;
}

// By the decode kernel (8 sequences and fewer, prompts of several tokens too), layer by layer fused
// (40) and, with experts, per operator.
TEST(GpuInFlight, SampledRowsAreTheFetchedTokens) {
  for (const char* family : {"llama", "mixtral", "gemma2"}) {
    const Config config(family_of(family).config);
    std::string why;
    const auto runner = cuda_runner(config, why);
    if (!runner) GTEST_SKIP() << why;
    for (const int sequences : {1, 3, 8, 40}) {
      for (const bool draw : {false, true}) {
        SCOPED_TRACE(fmt::format("{}, {} sequences, draw {}", family, sequences, draw));
        const std::vector<Token> fetched = generate_tokens(*runner, sequences, 30, draw, false);
        EXPECT_EQ(generate_tokens(*runner, sequences, 30, draw, true), fetched);
      }
    }
  }
}

TEST(GpuBounds, ExceededOnesThrowAndLeaveTheRunnerUsable) {
  const Config config(family_of("llama").config);
  std::string why;
  RunnerOptions options;
  options.max_tokens = 20, options.max_sequences = 3, options.max_logit_rows = 4;
  options.cache_tokens = 256;
  const auto runner = cuda_runner(config, why, options);
  if (!runner) GTEST_SKIP() << why;
  const int vocab = runner->weights().architecture.vocab;
  const std::vector<Token> tokens = prompt(21, 1, vocab);
  PagePool pool = pool_of(*runner);
  KvSequence sequence(pool);
  std::vector<PageCopy> copies;
  ASSERT_TRUE(sequence.reserve(48, copies));
  const auto run = [&](const std::vector<Slice>& batch) { runner->run(batch); };
  const Slice usual{std::span(tokens).first(20), 0, sequence.pages(), 4};
  run({usual});
  const std::span<const float> found = runner->logits();
  const std::vector<float> wanted(found.begin(), found.end());

  EXPECT_THROW(run({{tokens, 0, sequence.pages(), 1}}), Error) << "tokens";
  EXPECT_THROW(run({{std::span(tokens).first(20), 0, sequence.pages(), 5}}), Error) << "rows";
  const Slice one{std::span(tokens).first(1), 0, sequence.pages(), 1};
  EXPECT_THROW(run({one, one, one, one}), Error) << "sequences";
  const Token outside[] = {Token(vocab)}, no_row[] = {sampled_row(4)};
  EXPECT_THROW(run({{outside, 0, sequence.pages(), 1}}), Error);
  EXPECT_THROW(run({{no_row, 0, sequence.pages(), 1}}), Error);
  EXPECT_THROW(runner->fetch(), Error) << "nothing is in flight";
  EXPECT_THROW(runner->copy_pages(std::vector<PageCopy>{{0, runner->page_count(), 1}}), Error);

  run({usual});
  const std::vector<TopLogitsRequest> requests(4);
  runner->sample(requests);
  runner->sample(requests);
  EXPECT_THROW(runner->sample(requests), Error) << "three in flight";
  EXPECT_EQ(runner->fetch().size(), 4u);
  EXPECT_EQ(runner->fetch().size(), 4u);
  const std::span<const float> again = runner->logits();
  EXPECT_EQ(std::vector<float>(again.begin(), again.end()), wanted);
}

// Steps of every path and size: prompts, single tokens, both, forks, draws and candidates.
void run_mixed_steps(Runner& runner, int rounds) {
  const int vocab = runner.weights().architecture.vocab;
  for (int round = 0; round < rounds; ++round) {
    PagePool pool = pool_of(runner);
    std::vector<KvSequence> sequences;
    std::vector<std::vector<Token>> tokens;
    StepOf step(runner);
    for (int i = 0; i < 12; ++i) {
      sequences.emplace_back(pool);
      tokens.push_back(prompt(1 + i * 7, i + round, vocab));
    }
    for (int i = 0; i < 12; ++i) step.add(sequences[size_t(i)], tokens[size_t(i)], i % 2);
    step.run();
    sequences.push_back(sequences[5].fork());
    const Token token = Token(round % vocab);
    for (const size_t count : {13u, 3u, 9u}) {
      for (size_t i = 0; i < count; ++i) {
        step.add(sequences[sequences.size() - 1 - i], {&token, 1}, 1);
      }
      step.run();
      std::vector<TopLogitsRequest> requests(count);
      requests[0].count = 256, requests[1].draw = true;
      runner.top_logits(requests);
      runner.top_logits(std::vector<TopLogitsRequest>(count));
      runner.logits();
    }
  }
}

// The first round loads the kernels' code, which takes device memory.
TEST(GpuMemory, StepsAllocateNothing) {
  for (const char* family : {"llama", "qwen3_moe", "gemma3", "llama4", "deepseek_v2"}) {
    const Config config(family_of(family).config);
    std::string why;
    const bool latent = std::string_view(family) == "deepseek_v2";
    const auto runner = cuda_runner(config, why, {}, latent ? KvStorage::bf16 : KvStorage::int8);
    if (!runner) GTEST_SKIP() << why;
    run_mixed_steps(*runner, 1);
    const double before = cuda::find_device().free_bytes;
    run_mixed_steps(*runner, 13);
    EXPECT_EQ(cuda::find_device().free_bytes, before) << family;
  }
}

}  // namespace
}  // namespace ridge
