// Sampling from the best of a row against sampling from all of it: the same tokens and draws.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "engine/sampling/logits.h"
#include "engine/sampling/sampler.h"

namespace ridge {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Tally {
  int rows = 0, asked = 0, settled = 0;
};

// Two samplers over the same rows. The sums are moved as far as a device's may be.
Tally compare(const SamplerOptions& options, const std::vector<std::vector<float>>& rows) {
  const int vocab = int(rows.front().size());
  Sampler from_all(options, vocab), from_best(options, vocab);
  std::vector<Token> recent;
  std::mt19937 random(3);
  Tally tally;
  for (const std::vector<float>& logits : rows) {
    ++tally.rows;
    const Sampled wanted = from_all.sample(logits, recent);
    const TopLogitsRequest* ask = from_best.ask(recent);
    const Sampled* found = nullptr;
    if (ask != nullptr) {
      ++tally.asked;
      TopLogits top;
      find_top_logits(logits, *ask, top);
      top.scaled *= 1 + (random() % 2 ? 6e-6 : -6e-6);
      found = from_best.sample(top, recent);
      tally.settled += found != nullptr;
    }
    if (found == nullptr) found = &from_best.sample(logits, recent);
    EXPECT_EQ(found->token, wanted.token) << tally.rows;
    EXPECT_NEAR(found->logprob, wanted.logprob, 1e-5 * std::abs(double(wanted.logprob)) + 1e-5);
    EXPECT_EQ(found->best.size(), wanted.best.size());
    for (size_t i = 0; i < std::min(found->best.size(), wanted.best.size()); ++i) {
      EXPECT_EQ(found->best[i].first, wanted.best[i].first);
    }
    recent.push_back(wanted.token);
    if (random() % 4 == 0) recent.push_back(Token(random() % uint32_t(vocab)));
  }
  return tally;
}

enum class Kind { normal, ties, banned };

std::vector<std::vector<float>> some_rows(int count, size_t vocab, Kind kind, float deviation,
                                          uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<std::vector<float>> rows;
  for (int r = 0; r < count; ++r) {
    std::vector<float>& row = rows.emplace_back(vocab);
    for (float& logit : row) {
      logit = normal(random);
      if (kind == Kind::ties) logit = std::round(logit);
      if (kind == Kind::banned && random() % 4) logit = -kInfinity;
    }
    row[random() % vocab] = 1;  // never all banned
  }
  return rows;
}

TEST(SamplerBest, GreedyNeedsOneAndThoseThatChange) {
  for (const Kind kind : {Kind::normal, Kind::ties, Kind::banned}) {
    const auto rows = some_rows(100, 3000, kind, 3, 1);
    Tally tally = compare({}, rows);
    EXPECT_EQ(tally.settled, 100);
    tally = compare({.repetition_penalty = 1.3, .logit_bias = {{5, 3}, {7, -kInfinity}}}, rows);
    EXPECT_EQ(tally.settled, 100);
  }
  EXPECT_EQ(Sampler({}, 3000).ask({})->count, 1);
}

TEST(SamplerBest, TopKIsAlwaysSettled) {
  for (const Kind kind : {Kind::normal, Kind::ties, Kind::banned}) {
    const auto rows = some_rows(100, 3000, kind, 3, 2);
    EXPECT_EQ(compare({.temperature = 0.8, .top_k = 40}, rows).settled, 100);
    EXPECT_EQ(compare({.temperature = 0.8, .top_k = 40, .repetition_penalty = 1.2}, rows).settled,
              100);
    const Tally both = compare({.temperature = 3, .top_k = 40, .top_p = 0.7}, rows);
    EXPECT_GT(both.settled, kind == Kind::ties ? 90 : 99);
    EXPECT_EQ(compare({.temperature = 0.8, .top_k = 257}, rows).asked, 0);
  }
}

TEST(SamplerBest, TopPAndMinPAreSettledWhereTheBestSuffice) {
  const auto sharp = some_rows(200, 32000, Kind::normal, 4, 3);
  EXPECT_GT(compare({.temperature = 0.5, .top_p = 0.9}, sharp).settled, 180);
  EXPECT_GT(compare({.temperature = 0.5, .top_p = 0.9, .repetition_penalty = 1.1}, sharp).settled,
            180);
  EXPECT_EQ(compare({.temperature = 0.5, .min_p = 0.05}, sharp).settled, 200);
  const auto flat = some_rows(20, 32000, Kind::normal, 0.5f, 4);
  EXPECT_EQ(compare({.temperature = 1, .top_p = 0.9}, flat).settled, 0);
  EXPECT_EQ(compare({.temperature = 1, .min_p = 0.01}, flat).settled, 0);
  EXPECT_EQ(compare({.temperature = 1}, flat).asked, 0);
}

// Drawn alike (hot), so that one token more or less among those kept shows.
TEST(SamplerBest, TokensThatFallBehindTheBestAreNotKept) {
  const auto rows = some_rows(1, 1000, Kind::normal, 3, 5);
  const std::vector<std::vector<float>> same(100, rows[0]);  // its best become recent
  const Tally tally = compare({.temperature = 1e30, .top_k = 230, .repetition_penalty = 3}, same);
  EXPECT_GT(tally.asked, tally.settled);
  EXPECT_GT(tally.settled, 0);
}

TEST(SamplerBest, SumsInDoubtAreNotDrawnFrom) {
  const std::vector<std::vector<float>> equal(100, std::vector<float>(256, 1.0f));
  EXPECT_EQ(compare({.temperature = 1, .top_p = 0.5}, equal).settled, 0);
  EXPECT_EQ(compare({.temperature = 1, .top_p = 0.501}, equal).settled, 100);
}

TEST(SamplerBest, AllOptionsTogetherDrawTheSame) {
  std::mt19937 random(11);
  Tally all;
  for (int round = 0; round < 1500; ++round) {
    const size_t vocabs[] = {1, 2, 5, 40, 255, 256, 257, 300, 400, 1000};
    const size_t vocab = vocabs[random() % std::size(vocabs)];
    SamplerOptions options{.temperature = double(random() % 6) * 0.4, .seed = random()};
    // Hot: all that is kept is drawn alike, so that one more or less shows.
    const double extremes[] = {1e-6, 1e-30, 0.02, 50, 1e30, 1e30};
    if (random() % 2) options.temperature = extremes[random() % std::size(extremes)];
    if (random() % 2) options.top_k = int(1 + random() % 300);
    if (random() % 6 == 0) options.top_k = int(200 + random() % 57);
    if (random() % 2) options.top_p = double(1 + random() % 100) / 100;
    if (random() % 20 == 0) options.top_p = 1 - 1e-9;
    if (random() % 3 == 0) options.min_p = double(random() % 100) / 100;
    if (random() % 20 == 0) options.min_p = std::exp(-8.0 * double(random() % 3));
    if (options.temperature == 50) options.min_p = 1 - double(random() % 100) / 500;
    if (random() % 3 == 0) options.repetition_penalty = 0.5 + double(random() % 20) / 10;
    if (random() % 4 == 0) options.repeat_last_n = random() % 2 ? -1 : 5;
    if (random() % 4 == 0) options.logprobs = int(random() % (vocab + 1));
    for (uint32_t i = random() % 8; i < 4; ++i) {
      const float biases[] = {-kInfinity, -3, 2, 50};
      options.logit_bias.push_back({Token(random() % vocab), biases[random() % 4]});
    }
    if (vocab <= 5) options.logit_bias.clear();  // all may be banned
    const auto rows =
        some_rows(20, vocab, Kind(random() % 3), 0.5f + float(random() % 8), random());
    SCOPED_TRACE(round);
    Tally tally;
    try {
      tally = compare(options, rows);
    } catch (const Error&) {
      continue;  // a ban left nothing
    }
    all.asked += tally.asked, all.settled += tally.settled;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(all.settled, all.asked / 2);
}

TEST(SamplerBest, RefusesWhatIsNotANumber) {
  Sampler sampler({}, 3);
  TopLogits top;
  find_top_logits(std::vector<float>{1, std::nanf(""), 2}, *sampler.ask({}), top);
  EXPECT_THROW(sampler.sample(top, {}), Error);
  find_top_logits(std::vector<float>(3, -kInfinity), *sampler.ask({}), top);
  EXPECT_EQ(sampler.sample(top, {}), nullptr);  // the whole row says it
}

}  // namespace
}  // namespace ridge
