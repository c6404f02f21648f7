// Draws under a mask: those of the row whose other tokens are banned, from either input.
#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "engine/sampling/logits.h"
#include "engine/sampling/sampler.h"

namespace ridge {
namespace {

SamplerOptions random_options(std::mt19937& random) {
  SamplerOptions options;
  options.temperature = random() % 3 == 0 ? 0 : 0.7;
  options.seed = random();
  if (random() % 3 == 0) options.top_p = 0.9;
  if (random() % 4 == 0) options.top_k = 5;
  if (random() % 3 == 0) options.frequency_penalty = 0.5;
  if (random() % 4 == 0) options.logit_bias = {{3, 2}, {7, -1}};
  if (random() % 3 == 0) options.logprobs = 2;
  return options;
}

TEST(MaskedSampler, DrawsFromTheAllowedTokensAlone) {
  constexpr int kVocab = 300;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  SamplerWorkspace workspace;
  int settled = 0, asked = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<float> row(kVocab);
    for (float& logit : row) logit = normal(random);
    std::vector<uint32_t> mask((kVocab + 31) / 32, 0);
    std::vector<float> banned(kVocab, kBanned);
    const unsigned rarity = 1 + random() % 20;
    for (size_t token = 0; token < row.size(); ++token) {
      if (random() % rarity != 0 && token != 11) continue;  // at least one is allowed
      mask[token / 32] |= uint32_t{1} << (token % 32);
      banned[token] = row[token];
    }
    const Sampler sampler(random_options(random), kVocab);
    const std::vector<Token> tokens = {1, 2, 3, 3, 11, 5};
    const SampleContext masked{tokens, 2, mask}, plain{tokens, 2};
    Sampled wanted, got;
    sampler.sample(banned, plain, workspace, wanted);
    sampler.sample(row, masked, workspace, got);
    ASSERT_EQ(got.token, wanted.token);
    TopLogitsRequest request;
    if (!sampler.request(masked, workspace, request)) continue;
    ++asked;
    TopLogits top;
    find_top_logits(row, request, top);
    Sampled from_top;
    if (!sampler.sample(top, request, masked, workspace, from_top)) continue;
    ++settled;
    ASSERT_EQ(from_top.token, wanted.token);
    EXPECT_NEAR(from_top.logprob, got.logprob, 1e-4);  // the model's own, before the mask
  }
  EXPECT_GT(asked, 500);
  EXPECT_GT(settled, asked / 5);
}

TEST(MaskedSampler, KnowsWhereTheDeviceDraws) {
  const auto draws = [](const SamplerOptions& options) {
    return Sampler(options, 10).device_draws();
  };
  EXPECT_TRUE(draws({}));
  EXPECT_TRUE(draws({.temperature = 1}));
  EXPECT_TRUE(draws({.top_p = 0.5}));  // greedy: cuts do nothing
  EXPECT_FALSE(draws({.temperature = 1, .top_p = 0.5}));
  EXPECT_FALSE(draws({.temperature = 1, .top_k = 4}));
  EXPECT_FALSE(draws({.frequency_penalty = 1}));
  EXPECT_FALSE(draws({.logit_bias = {{1, 1.0f}}}));
}

// A draw whose predecessors are not known yet is the one that is made once they are.
TEST(MaskedSampler, CountsUnknownTokensInThePosition) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> row(100);
  for (float& logit : row) logit = normal(random);
  const Sampler sampler({.temperature = 1, .seed = 9}, 100);
  SamplerWorkspace workspace;
  const std::vector<Token> tokens = {1, 2, 3, 4};
  TopLogitsRequest known, ahead;
  ASSERT_TRUE(sampler.request({tokens, 2}, workspace, known));
  SampleContext before{std::span(tokens).first(3), 2};
  before.unknown = 1;
  ASSERT_TRUE(sampler.request(before, workspace, ahead));
  EXPECT_EQ(known.key, ahead.key);
}

}  // namespace
}  // namespace ridge
