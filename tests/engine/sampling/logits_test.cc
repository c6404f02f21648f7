#include "engine/sampling/logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "engine/sampling/gumbel.h"
#include "engine/sampling/infinity.h"

namespace ridge {
namespace {

// Normal ones, or with ties, zeros of both signs and -inf.
std::vector<float> some_logits(size_t count, uint32_t seed, bool rough) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(count);
  for (float& logit : logits) {
    logit = normal(random);
    if (rough) logit = random() % 3 == 0 ? -kInfinity : std::round(logit);
  }
  return logits;
}

TEST(FindTopLogits, IsTheHeadOfASort) {
  uint32_t seed = 0;
  for (const size_t vocab : {1, 2, 40, 256, 257, 5000, 50257}) {
    for (const int count : {1, 2, 100, 256}) {
      for (const bool rough : {false, true}) {
        const std::vector<float> logits = some_logits(vocab, ++seed, rough);
        std::vector<Candidate> wanted;
        for (size_t i = 0; i < vocab; ++i) wanted.push_back({logits[i], int32_t(i)});
        std::sort(wanted.begin(), wanted.end());
        wanted.resize(std::min(vocab, size_t(count)));
        TopLogits top;
        const TopLogitsRequest request{
            .count = count, .scale = 0.7f, .tokens = {int32_t(vocab) - 1, 0}};
        find_top_logits(logits, request, top);
        ASSERT_EQ(top.candidates.size(), wanted.size());
        for (size_t i = 0; i < wanted.size(); ++i) {
          EXPECT_EQ(top.candidates[i].token, wanted[i].token) << vocab << ' ' << count << ' ' << i;
          EXPECT_EQ(top.candidates[i].logit, wanted[i].logit);
        }
        EXPECT_EQ(top.requested, (std::vector<float>{logits[vocab - 1], logits[0]}));
        EXPECT_EQ(top.chosen.token, wanted[0].token);
        if (wanted[0].logit == -kInfinity) continue;
        double sum = 0, scaled = 0;
        for (const float logit : logits) {
          sum += std::exp(double(logit));
          scaled += std::exp((double(logit) - double(wanted[0].logit)) * double(0.7f));
        }
        EXPECT_NEAR(top.log_sum, std::log(sum), kSumError);
        EXPECT_NEAR(top.scaled_sum / scaled, 1, kSumError);
      }
    }
  }
}

TEST(FindTopLogits, SaysWhatIsNotANumber) {
  for (const float bad : {std::nanf(""), -std::nanf(""), kInfinity}) {
    std::vector<float> logits = some_logits(1000, 1, false);
    TopLogits top;
    find_top_logits(logits, {}, top);
    EXPECT_FALSE(top.broken);
    logits[777] = bad;
    find_top_logits(logits, {}, top);
    EXPECT_TRUE(top.broken);
  }
}

TEST(FindTopLogits, WithoutACountGivesTheChoiceAndTheRequestedOnly) {
  const std::vector<float> logits{1, 4, 2, 4};
  TopLogits top;
  find_top_logits(logits, {.tokens = {2}}, top);
  EXPECT_EQ(top.chosen.token, 1);
  EXPECT_EQ(top.chosen.logit, 4);
  EXPECT_EQ(top.requested, (std::vector<float>{2}));
  EXPECT_TRUE(top.candidates.empty());
  EXPECT_EQ(top.log_sum, 0);
  find_top_logits(std::vector<float>(3, -kInfinity), {.tokens = {}, .draw = true}, top);
  EXPECT_EQ(top.chosen.token, 0);
  EXPECT_EQ(top.chosen.logit, -kInfinity);
}

// The pruned search against every score.
TEST(DrawToken, IsTheArgmaxOfAllScores) {
  std::mt19937 random(5);
  for (int round = 0; round < 400; ++round) {
    const size_t vocabs[] = {1, 2, 7, 300, 5000};
    const std::vector<float> logits =
        some_logits(vocabs[random() % 5], uint32_t(round), round % 3 == 0);
    const float scales[] = {1, 0.5f, 3, 1e-30f, 1e30f};
    const float scale = scales[random() % 5];
    const uint64_t key = gumbel_key(uint64_t(round), round);
    Candidate best{-kInfinity, 0};
    float best_score = -kInfinity;
    for (size_t i = 0; i < logits.size(); ++i) {
      const float score = gumbel_score(logits[i], scale, key, int32_t(i));
      if (score > best_score) best_score = score, best = {logits[i], int32_t(i)};
    }
    const Candidate drawn = draw_token(logits, scale, key);
    ASSERT_EQ(drawn.token, best.token) << round;
    ASSERT_EQ(drawn.logit, best.logit);
  }
}

}  // namespace
}  // namespace ridge
