#include "cost/moe.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace ridge {
namespace {

// Top-k of popularity plus Gumbel noise: k distinct experts per token with weights r^-skew.
// Popular ones can only be picked once a token, as in the model.
double simulate_distinct(int experts, int top_k, double skew, int tokens, int trials) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> uniform(1e-12, 1);
  double sum = 0;
  std::vector<std::pair<double, int>> score(experts);
  for (int t = 0; t < trials; ++t) {
    std::vector<bool> awake(experts, false);
    for (int token = 0; token < tokens; ++token) {
      for (int e = 0; e < experts; ++e) {
        score[e] = {-skew * std::log(e + 1.0) - std::log(-std::log(uniform(random))), e};
      }
      std::partial_sort(score.begin(), score.begin() + top_k, score.end(), std::greater<>());
      for (int i = 0; i < top_k; ++i) awake[score[i].second] = true;
    }
    sum += double(std::count(awake.begin(), awake.end(), true));
  }
  return sum / trials;
}

TEST(Moe, DistinctExpertsMatchSimulation) {
  // Uniform routing has an exact formula; 200 trials of at most 64 experts leave a standard error
  // below sqrt(64 / 4 / 200) = 0.28 (each expert a coin at worst); 4 of them.
  for (int tokens : {1, 2, 8, 32, 128}) {
    const double simulated = simulate_distinct(64, 6, 0, tokens, 200);
    EXPECT_NEAR(distinct_experts({64, 6, 0}, tokens), simulated, 1.1) << tokens;
  }
  // With skew, drawing without replacement flattens the picks a little more than capping does:
  // 10 % bounds the difference over this range.
  for (int tokens : {1, 4, 16, 64}) {
    const double simulated = simulate_distinct(32, 4, 0.8, tokens, 200);
    EXPECT_NEAR(distinct_experts({32, 4, 0.8}, tokens), simulated, 0.1 * simulated) << tokens;
  }
}

TEST(Moe, DistinctExpertsLimits) {
  for (double skew : {0.0, 0.5, 1.0, 4.0}) {
    const Routing routing{128, 8, skew};
    EXPECT_EQ(distinct_experts(routing, 0), 0);
    EXPECT_NEAR(distinct_experts(routing, 1), 8, 1e-9);  // one token wakes exactly its top-k
    double last = 0;
    for (double tokens = 1; tokens < 1e6; tokens *= 2) {
      const double now = distinct_experts(routing, tokens);
      EXPECT_GE(now, last);
      EXPECT_LE(now, 128 + 1e-9);
      EXPECT_LE(now, 8 * tokens + 1e-9);
      last = now;
    }
    if (skew <= 1) {
      EXPECT_NEAR(last, 128, 0.01);
    }
  }
  // All experts chosen by every token.
  EXPECT_EQ(distinct_experts({8, 8, 0}, 1), 8);
  EXPECT_NEAR(distinct_experts({8, 8, 1.5}, 1), 8, 1e-12);
}

TEST(Moe, SkewWakesFewerExperts) {
  for (double tokens : {2.0, 8.0, 64.0}) {
    const double uniform = distinct_experts({64, 4, 0}, tokens);
    const double mild = distinct_experts({64, 4, 0.5}, tokens);
    const double strong = distinct_experts({64, 4, 2}, tokens);
    EXPECT_LT(mild, uniform);
    EXPECT_LT(strong, mild);
  }
  // A vanishing skew is the uniform case.
  EXPECT_NEAR(distinct_experts({64, 4, 1e-9}, 16), distinct_experts({64, 4, 0}, 16), 1e-6);
}

TEST(Moe, BusiestRankIsAtLeastTheMeanAndEvensOut) {
  EXPECT_EQ(busiest_rank({256, 8, 0}, 100, 1), 1);
  double last = 1e9;
  for (double tokens : {1.0, 8.0, 64.0, 4096.0, 1e6}) {
    const double load = busiest_rank({256, 8, 0}, tokens, 16);
    EXPECT_GE(load, 1);
    EXPECT_LE(load, last);
    last = load;
  }
  EXPECT_NEAR(last, 1, 0.01);  // sqrt(2 ln 16 / 5e5) = 0.3 %
  EXPECT_GT(busiest_rank({256, 8, 1}, 1e6, 16), 1.5);
}

TEST(Moe, BusiestRankStaysPossible) {
  for (double skew : {0.0, 1.0, 4.0}) {
    for (double ranks : {2.0, 8.0, 64.0, 256.0}) {
      for (double tokens : {1.0, 3.0, 100.0}) {
        const double load = busiest_rank({256, 8, skew}, tokens, ranks);
        const double pairs = load * tokens * 8 / ranks;
        EXPECT_LE(pairs, tokens * 8 * (1 + 1e-12));
        EXPECT_LE(pairs, tokens * std::ceil(256 / ranks) * (1 + 1e-12));
      }
    }
  }
}

}  // namespace
}  // namespace ridge
