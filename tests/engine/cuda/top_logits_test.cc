// What the device finds of its logits against what the host finds of the same, and text sampled
// from it against text sampled from all logits. Skipped where no device is (ctest label gpu).
#include "engine/sampling/top_logits.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/cuda/on_device.h"
#include "engine/generate.h"
#include "engine/sampling/logits.h"
#include "engine/weights/weights.h"

namespace ridge {
namespace {

std::unique_ptr<Runner> small_model(std::string& why) {
  RunnerOptions options;
  options.kv = KvStorage::bf16;
  return on_device(load_weights("ridge-1m"), options, why);
}

std::vector<Token> prompt_of(const Runner& runner) {
  return runner.weights().tokenizer->encode("The memory of a computer is where it keeps");
}

// Rows of one launch of the decode kernel and of the forward path.
TEST(GpuBest, IsTheHosts) {
  std::string why;
  const auto runner = small_model(why);
  if (!runner) GTEST_SKIP() << why;
  const int vocab = runner->weights().architecture.vocab;
  std::vector<Token> tokens;
  for (int i = 0; i < 40; ++i) tokens.push_back(Token(i * 37 % vocab));
  for (const int count : {1, 5, 8, 40}) {
    CachedSequence sequence(runner->pool());
    sequence.extend(count);
    const Slice slice{std::span(tokens).first(size_t(count)), 0, sequence.pages(), count};
    runner->run({&slice, 1});
    std::vector<TopLogitsRequest> requests;
    for (int row = 0; row < count; ++row) {
      requests.push_back(
          {1 + row * 50 % kMaxCandidates, 0.5f + float(row), {Token(row), vocab - 1}});
    }
    const auto found = runner->top_logits(requests);
    const std::span<const float> logits = runner->logits();
    ASSERT_EQ(found.size(), size_t(count));
    for (size_t row = 0; row < found.size(); ++row) {
      TopLogits wanted;
      find_top_logits(logits.subspan(row * size_t(vocab), size_t(vocab)), requests[row], wanted);
      ASSERT_EQ(found[row].candidates.size(), wanted.candidates.size());
      for (size_t i = 0; i < wanted.candidates.size(); ++i) {
        EXPECT_EQ(found[row].candidates[i].token, wanted.candidates[i].token)
            << count << ' ' << row << ' ' << i;
        EXPECT_EQ(found[row].candidates[i].logit, wanted.candidates[i].logit);
      }
      EXPECT_EQ(found[row].requested, wanted.requested);
      EXPECT_FALSE(found[row].broken);
      EXPECT_NEAR(found[row].log_sum, wanted.log_sum, kSumError);
      EXPECT_NEAR(found[row].scaled / wanted.scaled, 1, kSumError);
    }
  }
}

TEST(GpuBest, GivesTheTextOfAllLogits) {
  std::string why;
  const auto runner = small_model(why);
  if (!runner) GTEST_SKIP() << why;
  const std::vector<Token> prompt = prompt_of(*runner);
  const SamplerOptions cases[] = {
      {.logprobs = 5},
      {.repetition_penalty = 1.3},
      {.temperature = 0.8, .top_k = 40, .seed = 1},
      {.temperature = 0.7, .top_p = 0.95, .repetition_penalty = 1.1, .seed = 2},  // ridge run's
      {.temperature = 1, .min_p = 0.05, .logit_bias = {{17, 4}}, .seed = 3},
      {.temperature = 1.5, .top_p = 0.99, .seed = 4},
  };
  for (const SamplerOptions& options : cases) {
    constexpr int kTokens = 100;
    CachedSequence sequence(runner->pool());
    GenerateOptions with;
    with.sampler = options, with.max_tokens = kTokens, with.ignore_end = true;
    const Generated made = generate(*runner, sequence, prompt, with, {});

    CachedSequence other(runner->pool());
    Sampler sampler(options, runner->weights().architecture.vocab);
    std::vector<Token> all = prompt;
    std::span<const Token> next = all;
    Ledger ledger;
    for (int i = 0; i < kTokens; ++i) {
      prefill(*runner, other, next, 1, ledger);
      const Sampled& sampled = sampler.sample(runner->logits(), all);
      ASSERT_EQ(made.tokens[size_t(i)], sampled.token) << options.seed << ' ' << i;
      EXPECT_NEAR(made.sampled[size_t(i)].logprob, sampled.logprob, 5e-5);
      all.push_back(sampled.token);
      next = std::span(all).last(1);
    }
  }
}

}  // namespace
}  // namespace ridge
