// What the device finds of its logits against what the host finds of the same, and text sampled
// from it against text sampled from all logits. Skipped where no device is (ctest label gpu).
#include "engine/sampling/top_logits.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "engine/cuda/families.h"
#include "engine/cuda/on_device.h"
#include "engine/generate/generate.h"
#include "engine/sampling/gumbel.h"
#include "engine/sampling/logits.h"
#include "engine/sampling/sampler.h"
#include "engine/weights/weights.h"

namespace ridge {
namespace {

std::unique_ptr<Runner> small_model(std::string& why) {
  RunnerOptions options;
  options.kv = KvStorage::bf16;
  options.max_logit_rows = 40;
  return on_device(load_weights("ridge-1m"), options, why);
}

std::vector<Token> prompt_of(const Runner& runner) {
  return runner.weights().tokenizer->encode("The memory of a computer is where it keeps");
}

void expect_equal(const TopLogits& found, const TopLogits& wanted) {
  EXPECT_EQ(found.broken, wanted.broken);
  ASSERT_EQ(found.candidates.size(), wanted.candidates.size());
  for (size_t i = 0; i < wanted.candidates.size(); ++i) {
    EXPECT_EQ(found.candidates[i].token, wanted.candidates[i].token) << i;
    EXPECT_EQ(found.candidates[i].logit, wanted.candidates[i].logit) << i;
  }
  EXPECT_EQ(found.requested, wanted.requested);
  EXPECT_EQ(found.chosen.token, wanted.chosen.token);
  EXPECT_EQ(found.chosen.logit, wanted.chosen.logit);
  EXPECT_NEAR(found.log_sum, wanted.log_sum, kSumError);
  EXPECT_NEAR(found.scaled_sum, wanted.scaled_sum, kSumError * wanted.scaled_sum);
}

// Samples all rows of the last step and compares them with the host's search of their logits.
void expect_the_hosts(Runner& runner, const std::vector<TopLogitsRequest>& requests) {
  const auto vocab = size_t(runner.weights().architecture.vocab);
  const std::span<const TopLogits> found = runner.top_logits(requests);
  const std::span<const float> logits = runner.logits();
  ASSERT_EQ(found.size(), requests.size());
  for (size_t row = 0; row < found.size(); ++row) {
    SCOPED_TRACE(fmt::format("row {} of {}", row, found.size()));
    TopLogits wanted;
    find_top_logits(logits.subspan(row * vocab, vocab), requests[row], wanted);
    expect_equal(found[row], wanted);
  }
}

// Rows of one launch of the decode kernel, and of a step layer by layer.
TEST(GpuTopLogits, AreTheHosts) {
  std::string why;
  const auto runner = small_model(why);
  if (!runner) GTEST_SKIP() << why;
  const int vocab = runner->weights().architecture.vocab;
  const std::vector<Token> tokens = prompt(40, 0, vocab);
  for (const int count : {1, 5, 8, 40}) {
    PagePool pool = pool_of(*runner);
    KvSequence sequence(pool);
    logits_of(*runner, sequence, std::span(tokens).first(size_t(count)), count);
    std::vector<TopLogitsRequest> requests(size_t(count), TopLogitsRequest{});
    for (int row = 0; row < count; ++row) {
      requests[size_t(row)].count = 1 + row * 50 % kMaxCandidates;
      requests[size_t(row)].scale = 0.5f + float(row);
      requests[size_t(row)].tokens = {Token(row), vocab - 1};
    }
    expect_the_hosts(*runner, requests);
  }
}

class GpuDraws : public testing::TestWithParam<int> {};

// Whole rows, parts of 8192 logits filled and not; with candidates, without, and beside rows that
// only want the argmax.
TEST_P(GpuDraws, AreTheHostsBitForBit) {
  const Config config(fmt::format(R"({{"model_type":"llama","hidden_size":256,
    "num_hidden_layers":1,"num_attention_heads":4,"num_key_value_heads":2,"intermediate_size":256,
    "vocab_size":{},"max_position_embeddings":512}})",
                                  GetParam()));
  std::string why;
  const auto runner = cuda_runner(config, why);
  if (!runner) GTEST_SKIP() << why;
  const int vocab = runner->weights().architecture.vocab;
  const std::vector<Token> tokens = prompt(40, 2, vocab);
  for (const int count : {1, 7, 40}) {
    PagePool pool = pool_of(*runner);
    KvSequence sequence(pool);
    logits_of(*runner, sequence, std::span(tokens).first(size_t(count)), count);
    for (const float temperature : {0.3f, 1.0f, 1.7f}) {
      SCOPED_TRACE(fmt::format("temperature {}", temperature));
      std::vector<TopLogitsRequest> requests(size_t(count), TopLogitsRequest{});
      for (int row = 0; row < count; ++row) {
        TopLogitsRequest& request = requests[size_t(row)];
        request.scale = 1 / temperature;
        request.draw = row % 4 != 3;
        request.key = gumbel_key(17, row);
        request.count = row % 3 == 1 ? 20 : 0;
      }
      expect_the_hosts(*runner, requests);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuDraws, testing::Values(300, 8192, 8193, 50257, 128256),
                         [](const auto& each) { return fmt::format("{}", each.param); });

// Draws follow the distribution: of 4000 at temperature 1 the number of the most probable token's
// lies within five deviations.
TEST(GpuTopLogits, DrawsFollowTheProbabilities) {
  std::string why;
  const auto runner = small_model(why);
  if (!runner) GTEST_SKIP() << why;
  PagePool pool = pool_of(*runner);
  KvSequence sequence(pool);
  logits_of(*runner, sequence, prompt_of(*runner), 1);
  constexpr int kDraws = 4000;
  TopLogitsRequest request;
  request.count = 1, request.draw = true;
  int first = 0;
  double probability = 0;
  for (int i = 0; i < kDraws; ++i) {
    request.key = gumbel_key(5, i);
    const TopLogits& top = runner->top_logits({&request, 1})[0];
    probability = std::exp(double(top.candidates[0].logit) - top.log_sum);
    first += top.chosen.token == top.candidates[0].token;
  }
  const double deviation = std::sqrt(kDraws * probability * (1 - probability));
  EXPECT_NEAR(first, kDraws * probability, 5 * deviation);
}

TEST(GpuTopLogits, GiveTheTextOfAllLogits) {
  std::string why;
  const auto runner = small_model(why);
  if (!runner) GTEST_SKIP() << why;
  const std::vector<Token> prompt = prompt_of(*runner);
  const SamplerOptions cases[] = {
      {.logprobs = 5},
      {.repetition_penalty = 1.3},
      {.temperature = 1, .seed = 9},  // the API's default
      {.temperature = 0.8, .top_k = 40, .seed = 1},
      {.temperature = 0.7, .top_p = 0.95, .repetition_penalty = 1.1, .seed = 2},  // ridge run's
      {.temperature = 1, .min_p = 0.05, .logit_bias = {{17, 4}}, .seed = 3},
      {.temperature = 1.5, .top_p = 0.99, .seed = 4},
      {.temperature = 0.9, .presence_penalty = 0.5, .frequency_penalty = 0.2, .seed = 6},
  };
  for (const SamplerOptions& options : cases) {
    constexpr int kTokens = 100;
    PagePool pool = pool_of(*runner);
    KvSequence sequence(pool), other(pool);
    GenerateOptions with;
    with.sampler = options, with.max_tokens = kTokens, with.ignore_end = true;
    const Generated made = generate(*runner, sequence, prompt, with, {});
    ASSERT_EQ(made.tokens.size(), size_t(kTokens));

    const Sampler sampler(options, runner->weights().architecture.vocab);
    SamplerWorkspace workspace;
    Sampled sampled;
    std::vector<Token> all = prompt;
    std::vector<float> logits = logits_of(*runner, other, prompt, 1);
    for (int i = 0; i < kTokens; ++i) {
      sampler.sample(logits, {all, prompt.size()}, workspace, sampled);
      ASSERT_EQ(made.tokens[size_t(i)], sampled.token) << options.seed << ' ' << i;
      EXPECT_NEAR(made.sampled[size_t(i)].logprob, sampled.logprob, 5e-5);
      all.push_back(sampled.token);
      logits = logits_of(*runner, other, std::span(all).last(1), 1);
    }
  }
}

}  // namespace
}  // namespace ridge
