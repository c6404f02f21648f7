#include "engine/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "base/error.h"

namespace ridge {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Token one(const SamplerOptions& options, const std::vector<float>& logits,
          const std::vector<Token>& recent = {}) {
  return Sampler(options, int(logits.size())).sample(logits, recent).token;
}

// How often each token is drawn.
std::map<Token, int> counts(const SamplerOptions& options, const std::vector<float>& logits,
                            int draws) {
  Sampler sampler(options, int(logits.size()));
  std::map<Token, int> seen;
  for (int i = 0; i < draws; ++i) ++seen[sampler.sample(logits, {}).token];
  return seen;
}

std::set<Token> drawn(const SamplerOptions& options, const std::vector<float>& logits) {
  std::set<Token> tokens;
  for (const auto& [token, count] : counts(options, logits, 3000)) tokens.insert(token);
  return tokens;
}

std::vector<float> random_logits(size_t count, uint32_t seed, float deviation = 3) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(random);
  return logits;
}

// Logits of given probabilities.
std::vector<float> with_probabilities(const std::vector<double>& p) {
  std::vector<float> logits;
  for (const double x : p) logits.push_back(float(std::log(x)));
  return logits;
}

TEST(Sampler, GreedyTakesTheLowestIdAmongEquals) {
  EXPECT_EQ(one({}, {1, 5, 5, 2}), 1);
  EXPECT_EQ(one({}, {-kInfinity, -3, -3}), 1);
  EXPECT_EQ(one({}, {7}), 0);
}

TEST(Sampler, LogprobsAreTheModelsOwn) {
  SamplerOptions options;
  options.logprobs = 3;
  options.logit_bias = {{0, 100}};
  const auto logits = with_probabilities({0.1, 0.4, 0.3, 0.2});
  Sampler sampler(options, 4);
  const Sampled& sampled = sampler.sample(logits, {});
  EXPECT_EQ(sampled.token, 0);  // by the bias
  EXPECT_NEAR(sampled.logprob, std::log(0.1), 1e-6);
  ASSERT_EQ(sampled.best.size(), 3u);
  EXPECT_EQ(sampled.best[0].first, 1);
  EXPECT_EQ(sampled.best[1].first, 2);
  EXPECT_EQ(sampled.best[2].first, 3);
  EXPECT_NEAR(sampled.best[0].second, std::log(0.4), 1e-6);
  EXPECT_NEAR(sampled.best[2].second, std::log(0.2), 1e-6);
}

TEST(Sampler, BestAmongEqualsComeByTheirIds) {
  SamplerOptions options;
  options.logprobs = 3;
  Sampler sampler(options, 6);
  const auto& best = sampler.sample(std::vector<float>{0, 2, 1, 2, 1, 1}, {}).best;
  EXPECT_EQ(best[0].first, 1);
  EXPECT_EQ(best[1].first, 3);
  EXPECT_EQ(best[2].first, 2);
}

TEST(Sampler, LogprobsOfALargeVocabularyAreExact) {
  const auto logits = random_logits(256000, 4);
  double total = 0;
  for (const float logit : logits) total += std::exp(double(logit));
  SamplerOptions options;
  options.temperature = 1;
  options.logprobs = 5;
  Sampler sampler(options, int(logits.size()));
  auto sorted = logits;
  std::partial_sort(sorted.begin(), sorted.begin() + 5, sorted.end(), std::greater<>());
  const Sampled& sampled = sampler.sample(logits, {});
  EXPECT_NEAR(sampled.logprob, double(logits[size_t(sampled.token)]) - std::log(total), 2e-6);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(sampled.best[i].second, double(sorted[i]) - std::log(total), 2e-6);
  }
}

TEST(Sampler, BiasIsAddedAndCanBan) {
  EXPECT_EQ(one({.logit_bias = {{2, 3.5f}}}, {1, 3, 0}), 2);
  EXPECT_EQ(one({.logit_bias = {{1, -kInfinity}}}, {1, 3, 0}), 0);
  EXPECT_EQ(one({.logit_bias = {{0, 1}, {0, 1.5f}}}, {1, 3, 0}), 0);  // both count
  const SamplerOptions banned{.temperature = 1, .logit_bias = {{1, -kInfinity}}};
  EXPECT_EQ(drawn(banned, {1, 3, 0}), (std::set<Token>{0, 2}));
}

TEST(Sampler, PenaltyCountsEachRecentTokenOnce) {
  SamplerOptions options{.repetition_penalty = 2};
  EXPECT_EQ(one(options, {3, 2, -4}, {0, 0, 0}), 1);  // 3 / 2 < 2
  EXPECT_EQ(one(options, {5, 2, -4}, {0, 0, 0}), 0);  // once only: 5 / 2 > 2
  EXPECT_EQ(one(options, {-3, -2, -9}, {1}), 0);      // -2 x 2 < -3
  options.repeat_last_n = 2;
  EXPECT_EQ(one(options, {3, 2, -4}, {0, 2, 2}), 0);  // too long ago
  options.repeat_last_n = 0;
  EXPECT_EQ(one(options, {3, 2, -4}, {0}), 0);
  options.repeat_last_n = -1;
  std::vector<Token> many(1000, 2);
  many[0] = 0;
  EXPECT_EQ(one(options, {3, 2, -4}, many), 1);
  EXPECT_EQ(one(options, {3, 2, -4}, {99, -1}), 0);  // ids outside are not penalised
}

TEST(Sampler, TopKKeepsTheLargest) {
  const std::vector<float> logits{1, 2, 2.5f, 2, 0};
  EXPECT_EQ(drawn({.temperature = 5, .top_k = 1}, logits), (std::set<Token>{2}));
  EXPECT_EQ(drawn({.temperature = 5, .top_k = 2}, logits), (std::set<Token>{1, 2}));  // lower id
  EXPECT_EQ(drawn({.temperature = 5, .top_k = 3}, logits), (std::set<Token>{1, 2, 3}));
  EXPECT_EQ(drawn({.temperature = 5, .top_k = 99}, logits).size(), 5u);
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  const auto logits = with_probabilities({0.1, 0.5, 0.05, 0.35});
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.01}, logits), (std::set<Token>{1}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.49}, logits), (std::set<Token>{1}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.6}, logits), (std::set<Token>{1, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.86}, logits), (std::set<Token>{0, 1, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .top_p = 0.99}, logits).size(), 4u);
  // Of what top_k left: 0.5 / 0.85 = 0.59.
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 2, .top_p = 0.55}, logits), (std::set<Token>{1}));
  EXPECT_EQ(drawn({.temperature = 1, .top_k = 2, .top_p = 0.62}, logits), (std::set<Token>{1, 3}));
}

TEST(Sampler, MinPIsRelativeToTheFirst) {
  const auto logits = with_probabilities({0.1, 0.5, 0.05, 0.35});
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 1}, logits), (std::set<Token>{1}));
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.69}, logits), (std::set<Token>{1, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.15}, logits), (std::set<Token>{0, 1, 3}));
  EXPECT_EQ(drawn({.temperature = 1, .min_p = 0.01}, logits).size(), 4u);
}

// Flat distributions over many tokens need the slow ways in: more than the first candidates.
TEST(Sampler, CutsFlatDistributionsToo) {
  const std::vector<float> flat(5000, 1.0f);
  for (const auto& [token, count] : counts({.temperature = 1, .top_p = 0.5}, flat, 3000)) {
    EXPECT_LT(token, 2501);
  }
  for (const auto& [token, count] : counts({.temperature = 1, .top_k = 700}, flat, 3000)) {
    EXPECT_LT(token, 700);
  }
  std::vector<float> steep(5000);
  for (size_t i = 0; i < steep.size(); ++i) steep[i] = -float(i);
  const auto seen = counts({.temperature = 500, .top_k = 3000}, steep, 1500);
  EXPECT_LT(seen.rbegin()->first, 3000);
  EXPECT_GT(seen.rbegin()->first, 2000);
}

// Against the definition, sorted in full, over random distributions.
TEST(Sampler, KeepsWhatTheDefinitionKeeps) {
  std::mt19937 random(9);
  for (int round = 0; round < 30; ++round) {
    const auto logits = random_logits(40 + random() % 300, uint32_t(round), 2);
    SamplerOptions options{.temperature = 0.3 + double(random() % 20) / 10};
    if (random() % 2) options.top_k = int(1 + random() % 50);
    if (random() % 2) options.top_p = 0.2 + double(random() % 80) / 100;
    if (random() % 2) options.min_p = double(random() % 50) / 200;
    std::vector<std::pair<double, Token>> all;
    for (size_t i = 0; i < logits.size(); ++i) {
      all.push_back({-double(logits[i]) / options.temperature, Token(i)});
    }
    std::sort(all.begin(), all.end());
    if (options.top_k > 0) all.resize(std::min(all.size(), size_t(options.top_k)));
    double total = 0;
    for (const auto& [x, token] : all) total += std::exp(-x);
    std::set<Token> kept;
    double mass = 0;
    for (const auto& [x, token] : all) {
      if (mass >= options.top_p * total) break;
      mass += std::exp(-x);
      if (std::exp(all[0].first - x) >= options.min_p) kept.insert(token);
    }
    for (const Token token : drawn(options, logits)) EXPECT_TRUE(kept.count(token)) << round;
  }
}

// Chi-square with a fixed seed: 99.9 % of honest samplers stay below the bound.
void expect_distribution(const SamplerOptions& options, const std::vector<float>& logits,
                         const std::vector<double>& p) {
  constexpr int kDraws = 100000;
  auto seen = counts(options, logits, kDraws);
  double chi = 0;
  int cells = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    if (p[i] == 0) {
      EXPECT_EQ(seen[Token(i)], 0);
      continue;
    }
    chi += std::pow(seen[Token(i)] - kDraws * p[i], 2) / (kDraws * p[i]);
    ++cells;
  }
  const double df = cells - 1;  // Wilson and Hilferty's approximation of the 99.9 % point
  const double bound = df * std::pow(1 - 2 / (9 * df) + 3.09 * std::sqrt(2 / (9 * df)), 3);
  EXPECT_LT(chi, bound);
}

TEST(Sampler, DrawsInProportion) {
  const std::vector<double> p{0.05, 0.3, 0.02, 0.4, 0.13, 0.1};
  const auto logits = with_probabilities(p);
  expect_distribution({.temperature = 1, .seed = 1}, logits, p);
  expect_distribution({.temperature = 1, .top_k = 6, .seed = 2}, logits, p);
  expect_distribution({.temperature = 1, .min_p = 0.01, .seed = 3}, logits, p);
  expect_distribution({.temperature = 1, .top_k = 2, .seed = 4}, logits,
                      {0, 0.3 / 0.7, 0, 0.4 / 0.7, 0, 0});
  double total = 0;
  std::vector<double> warmer;
  for (const double x : p) total += std::sqrt(x);
  for (const double x : p) warmer.push_back(std::sqrt(x) / total);
  expect_distribution({.temperature = 2, .seed = 5}, logits, warmer);
}

TEST(Sampler, EqualSeedsDrawEqually) {
  const auto logits = random_logits(1000, 1);
  const auto stream = [&](uint64_t seed) {
    Sampler sampler({.temperature = 1, .top_p = 0.9, .seed = seed}, 1000);
    std::vector<Token> tokens;
    for (int i = 0; i < 50; ++i) tokens.push_back(sampler.sample(logits, {}).token);
    return tokens;
  };
  EXPECT_EQ(stream(7), stream(7));
  EXPECT_NE(stream(7), stream(8));
  // SplitMix64 of seed 0 begins 0xe220a8397b1dcdaf: 0.8833; then 0x6e789e6aa1b965f4: 0.4315.
  Sampler sampler({.temperature = 1}, 4);
  const auto quarters = with_probabilities({0.25, 0.25, 0.25, 0.25});
  EXPECT_EQ(sampler.sample(quarters, {}).token, 3);
  EXPECT_EQ(sampler.sample(quarters, {}).token, 1);
}

TEST(Sampler, SurvivesExtremes) {
  EXPECT_EQ(one({.temperature = 1e-300}, {1, 2, 1.9f}), 1);
  EXPECT_EQ(one({.temperature = 1e-300, .top_p = 0.5}, {1, 2, 1.9f}), 1);
  EXPECT_EQ(one({.temperature = 1e-300, .min_p = 0.5}, {1, 2, 1.9f}), 1);
  EXPECT_EQ(drawn({.temperature = 1e300}, {1, 2, -kInfinity, 3}), (std::set<Token>{0, 1, 3}));
  EXPECT_EQ(one({.temperature = 1}, {-3e38f, 3e38f, 0}), 1);
  EXPECT_EQ(one({.temperature = 1, .top_k = 2}, {-3e38f, 3e38f, 0}), 1);
  EXPECT_EQ(one({.temperature = 1}, {-kInfinity, -kInfinity, -5}), 2);
  EXPECT_EQ(one({.temperature = 1, .top_p = 0.9}, {-kInfinity, -kInfinity, -5}), 2);
}

std::string message(const SamplerOptions& options, const std::vector<float>& logits) {
  try {
    one(options, logits);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Sampler, RefusesWhatIsNotANumber) {
  const float nan = std::nanf("");
  for (const double temperature : {0.0, 1.0}) {
    const SamplerOptions options{.temperature = temperature};
    EXPECT_EQ(message(options, {1, nan, 2}), "the model produced not-a-number");
    std::vector<float> logits(1000, 0.5f);
    EXPECT_EQ(message(options, logits), "");
    logits[999] = nan;
    EXPECT_EQ(message(options, logits), "the model produced not-a-number");
    EXPECT_EQ(message(options, {1, kInfinity}), "the model produced not-a-number");
    EXPECT_NE(message(options, {-kInfinity, -kInfinity}), "");
  }
}

std::string refused(const SamplerOptions& options) {
  try {
    Sampler(options, 10);
  } catch (const OptionError& error) {
    return error.option();
  }
  return "";
}

TEST(Sampler, NamesTheOptionThatMakesNoSense) {
  const double nan = std::nan("");
  EXPECT_EQ(refused({}), "");
  EXPECT_EQ(refused({.temperature = -1}), "temperature");
  EXPECT_EQ(refused({.temperature = nan}), "temperature");
  EXPECT_EQ(refused({.top_k = -1}), "top-k");
  EXPECT_EQ(refused({.top_p = 0}), "top-p");
  EXPECT_EQ(refused({.top_p = 1.1}), "top-p");
  EXPECT_EQ(refused({.top_p = nan}), "top-p");
  EXPECT_EQ(refused({.min_p = -0.1}), "min-p");
  EXPECT_EQ(refused({.min_p = 1.1}), "min-p");
  EXPECT_EQ(refused({.repetition_penalty = 0}), "repetition-penalty");
  EXPECT_EQ(refused({.repeat_last_n = -2}), "repeat-last-n");
  EXPECT_EQ(refused({.logit_bias = {{10, 1}}}), "logit-bias");
  EXPECT_EQ(refused({.logit_bias = {{-1, 1}}}), "logit-bias");
  EXPECT_EQ(refused({.logit_bias = {{1, kInfinity}}}), "logit-bias");
  EXPECT_EQ(refused({.logprobs = 11}), "logprobs");
  EXPECT_EQ(refused({.logprobs = -1}), "logprobs");
}

}  // namespace
}  // namespace ridge
