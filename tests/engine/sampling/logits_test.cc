#include "engine/sampling/logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace ridge {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

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

TEST(FindBest, IsTheHeadOfASort) {
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
        const TopLogitsRequest ask{count, 0.7f, {int32_t(vocab) - 1, 0}};
        find_top_logits(logits, ask, top);
        ASSERT_EQ(top.candidates.size(), wanted.size());
        for (size_t i = 0; i < wanted.size(); ++i) {
          EXPECT_EQ(top.candidates[i].token, wanted[i].token) << vocab << ' ' << count << ' ' << i;
          EXPECT_EQ(top.candidates[i].logit, wanted[i].logit);
        }
        EXPECT_EQ(top.requested, (std::vector<float>{logits[vocab - 1], logits[0]}));
        if (wanted[0].logit == -kInfinity) continue;
        double sum = 0, scaled = 0;
        for (const float logit : logits) {
          sum += std::exp(double(logit));
          scaled += std::exp((double(logit) - double(wanted[0].logit)) * double(0.7f));
        }
        EXPECT_NEAR(top.log_sum, std::log(sum), kSumError);
        EXPECT_NEAR(top.scaled / scaled, 1, kSumError);
      }
    }
  }
}

TEST(FindBest, SaysWhatIsNotANumber) {
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

}  // namespace
}  // namespace ridge
