#include "engine/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "base/error.h"
#include "engine/sampling/infinity.h"

namespace ridge {
namespace {

Sampled sampled(const SamplerOptions& options, const std::vector<float>& logits,
                const SampleContext& context = {}) {
  SamplerWorkspace workspace;
  Sampled to;
  Sampler(options, int(logits.size())).sample(logits, context, workspace, to);
  return to;
}

// All of `recent` is the prompt.
Token one(const SamplerOptions& options, const std::vector<float>& logits,
          const std::vector<Token>& recent = {}) {
  return sampled(options, logits, {recent, recent.size()}).token;
}

// How often each token is drawn at the positions 0 .. draws - 1.
std::map<Token, int> counts(const SamplerOptions& options, const std::vector<float>& logits,
                            int draws) {
  const Sampler sampler(options, int(logits.size()));
  const std::vector<Token> before(size_t(draws), 0);
  SamplerWorkspace workspace;
  Sampled to;
  std::map<Token, int> seen;
  for (size_t i = 0; i < before.size(); ++i) {
    sampler.sample(logits, {std::span(before).first(i), i}, workspace, to);
    ++seen[to.token];
  }
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
  const Sampled got = sampled(options, logits);
  EXPECT_EQ(got.token, 0);  // by the bias
  EXPECT_NEAR(got.logprob, std::log(0.1), 1e-6);
  ASSERT_EQ(got.top_logprobs.size(), 3u);
  EXPECT_EQ(got.top_logprobs[0].first, 1);
  EXPECT_EQ(got.top_logprobs[1].first, 2);
  EXPECT_EQ(got.top_logprobs[2].first, 3);
  EXPECT_NEAR(got.top_logprobs[0].second, std::log(0.4), 1e-6);
  EXPECT_NEAR(got.top_logprobs[2].second, std::log(0.2), 1e-6);
  options.logprobs = 0;
  EXPECT_NEAR(sampled(options, logits).logprob, std::log(0.1), 1e-6);
  EXPECT_TRUE(sampled(options, logits).top_logprobs.empty());
  options.logprobs = kNoLogprobs;
  EXPECT_EQ(sampled(options, logits).logprob, 0);
}

TEST(Sampler, BestAmongEqualsComeByTheirIds) {
  SamplerOptions options;
  options.logprobs = 3;
  const auto best = sampled(options, {0, 2, 1, 2, 1, 1}).top_logprobs;
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
  auto sorted = logits;
  std::partial_sort(sorted.begin(), sorted.begin() + 5, sorted.end(), std::greater<>());
  const Sampled got = sampled(options, logits);
  EXPECT_NEAR(got.logprob, double(logits[size_t(got.token)]) - std::log(total), 2e-6);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(got.top_logprobs[i].second, double(sorted[i]) - std::log(total), 2e-6);
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

TEST(Sampler, PresenceAndFrequencyCountTheOutputOnly) {
  const std::vector<Token> tokens{0, 0, 0, 1, 1, 2};
  const auto after = [&](const SamplerOptions& options, size_t prompt) {
    return sampled(options, {5, 4.5f, 3, 2.8f}, {tokens, prompt}).token;
  };
  EXPECT_EQ(after({.presence_penalty = 1}, 6), 0);     // all is prompt
  EXPECT_EQ(after({.presence_penalty = 1}, 0), 0);     // 4, 3.5, 2, 2.8
  EXPECT_EQ(after({.frequency_penalty = 1}, 0), 3);    // 2, 2.5, 2, 2.8
  EXPECT_EQ(after({.frequency_penalty = 1}, 3), 0);    // 5, 2.5, 2, 2.8
  EXPECT_EQ(after({.frequency_penalty = 0.3}, 0), 0);  // 4.1, 3.9, ...
  EXPECT_EQ(after({.presence_penalty = 2, .frequency_penalty = 0.3}, 0), 3);
  EXPECT_EQ(after({.presence_penalty = -2}, 5), 0);  // 5, 4.5, 5, 2.8: the lower id
  EXPECT_EQ(after({.presence_penalty = -2, .frequency_penalty = -0.1}, 5), 2);
  // After the repetition penalty: (5 / 2 - 2, 4.5 / 2 - 2, 3 / 2 - 2, 2.8).
  EXPECT_EQ(after({.repetition_penalty = 2, .presence_penalty = 2}, 0), 3);
  // A workspace that served another request leaves nothing behind.
  SamplerWorkspace workspace;
  Sampled to;
  const std::vector<float> logits{5, 4.5f, 3, 2.8f};
  Sampler({.frequency_penalty = 2}, 4).sample(logits, {tokens, 0}, workspace, to);
  Sampler({.presence_penalty = 0.1}, 4).sample(logits, {tokens, 5}, workspace, to);
  EXPECT_EQ(to.token, 0);
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

// Chi-square with fixed seeds. An honest sampler exceeds the bound with one of 10 000 seeds; the
// tests here try fewer than 20.
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
  const double df = cells - 1;  // Wilson and Hilferty's approximation of the 99.99 % point
  const double bound = df * std::pow(1 - 2 / (9 * df) + 3.719 * std::sqrt(2 / (9 * df)), 3);
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

// The distribution for speculation is the one that draws follow.
TEST(Sampler, DrawsFollowTheDistribution) {
  std::mt19937 random(21);
  for (int round = 0; round < 6; ++round) {
    const auto logits = random_logits(30, uint32_t(round) + 50, 1.2f);
    SamplerOptions options{.temperature = 0.6 + 0.3 * round, .seed = uint64_t(round)};
    if (round % 2 == 1) options.top_p = 0.8;
    if (round % 3 == 1) options.top_k = 12;
    if (round % 3 == 2) options.min_p = 0.1;
    if (round > 3) options.logit_bias = {{3, 1.5f}, {4, -kInfinity}};
    SamplerWorkspace workspace;
    std::vector<std::pair<Token, double>> distribution;
    Sampler(options, 30).distribution(logits, {}, workspace, distribution);
    std::vector<double> p(30, 0.0);
    double total = 0;
    for (size_t i = 0; i < distribution.size(); ++i) {
      if (i > 0) {
        EXPECT_GE(distribution[i - 1].second, distribution[i].second);
      }
      p[size_t(distribution[i].first)] = distribution[i].second;
      total += distribution[i].second;
    }
    EXPECT_NEAR(total, 1, 1e-12);
    expect_distribution(options, logits, p);
  }
  SamplerWorkspace workspace;
  std::vector<std::pair<Token, double>> greedy;
  Sampler({.logit_bias = {{2, 9}}}, 3)
      .distribution(std::vector<float>{1, 5, 0}, {}, workspace, greedy);
  EXPECT_EQ(greedy, (std::vector<std::pair<Token, double>>{{2, 1.0}}));
}

// Tokens of probability 1e-4 and less come as often as they should: the tail of the Gumbel numbers.
TEST(Sampler, DrawsRareTokens) {
  std::vector<float> logits(3000, 0.0f);
  logits[1234] = float(std::log(1e5));  // the others: 3 % together, 1e-5 each
  const auto seen = counts({.temperature = 1, .seed = 77}, logits, 20000);
  const double p = 2999 / (2999 + 1e5);
  const double others = 20000 - seen.at(1234);
  // Binomial; 4 standard deviations: a false alarm in 16 000 seeds, and this one is fixed.
  EXPECT_NEAR(others, 20000 * p, 4 * std::sqrt(20000 * p * (1 - p)));
  EXPECT_GT(seen.size(), 300u);  // spread: 565 expected draws over 2999 tokens
}

TEST(Sampler, ADrawIsAFunctionOfSeedAndPosition) {
  const auto logits = random_logits(1000, 1);
  const std::vector<Token> before(50, 3);
  const auto draws = [&](uint64_t seed, bool backwards) {
    const Sampler sampler({.temperature = 1, .top_p = 0.9, .seed = seed}, 1000);
    SamplerWorkspace workspace;
    Sampled to;
    std::vector<Token> tokens(before.size());
    for (size_t i = 0; i < before.size(); ++i) {
      const size_t position = backwards ? before.size() - 1 - i : i;
      const SampleContext context{std::span(before).first(position), 0};
      for (int times = 0; times < 2; ++times) sampler.sample(logits, context, workspace, to);
      tokens[position] = to.token;
    }
    return tokens;
  };
  const std::vector<Token> drawn_tokens = draws(7, false);
  EXPECT_EQ(drawn_tokens, draws(7, true));
  EXPECT_NE(drawn_tokens, draws(8, false));
  EXPECT_GT(std::set<Token>(drawn_tokens.begin(), drawn_tokens.end()).size(), 5u);
}

// Restricting the candidates restricts the same draw: the token stays unless it was cut.
TEST(Sampler, ACutChangesOnlyDrawsOfCutTokens) {
  const auto logits = random_logits(500, 2, 2);
  const std::vector<Token> before(400, 0);
  const Sampler all({.temperature = 1, .seed = 5}, 500);
  const Sampler cut({.temperature = 1, .top_p = 0.7, .seed = 5}, 500);
  SamplerWorkspace workspace;
  std::vector<std::pair<Token, double>> kept;
  cut.distribution(logits, {}, workspace, kept);
  int same = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const SampleContext context{std::span(before).first(i), i};
    Sampled from_all, from_cut;
    all.sample(logits, context, workspace, from_all);
    cut.sample(logits, context, workspace, from_cut);
    const bool was_kept = std::any_of(
        kept.begin(), kept.end(), [&](const auto& each) { return each.first == from_all.token; });
    if (was_kept) {
      EXPECT_EQ(from_cut.token, from_all.token);
    }
    same += was_kept;
  }
  EXPECT_NEAR(same / 400.0, 0.7, 0.1);  // 4 standard deviations of 0.023
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
  EXPECT_EQ(refused({.logprobs = -2}), "logprobs");
  EXPECT_EQ(refused({.presence_penalty = 2.1}), "presence-penalty");
  EXPECT_EQ(refused({.presence_penalty = nan}), "presence-penalty");
  EXPECT_EQ(refused({.frequency_penalty = -2.1}), "frequency-penalty");
}

}  // namespace
}  // namespace ridge
