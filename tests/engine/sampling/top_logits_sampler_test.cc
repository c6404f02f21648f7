// Sampling from the top of a row against sampling from all of it: the same tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"
#include "engine/sampling/gumbel.h"
#include "engine/sampling/infinity.h"
#include "engine/sampling/logits.h"
#include "engine/sampling/sampler.h"

namespace ridge {
namespace {

struct Tally {
  int rows = 0, requested = 0, settled = 0;
};

// The same rows both ways. The sums are moved as far as a device's may be.
Tally compare(const SamplerOptions& options, const std::vector<std::vector<float>>& rows) {
  const int vocab = int(rows.front().size());
  const Sampler sampler(options, vocab);
  SamplerWorkspace workspace;
  std::vector<Token> tokens;
  std::mt19937 random(3);
  Tally tally;
  TopLogitsRequest request;
  TopLogits top;
  Sampled expected, got;
  for (const std::vector<float>& logits : rows) {
    ++tally.rows;
    const SampleContext context{tokens, tokens.size() / 4};
    sampler.sample(logits, context, workspace, expected);
    bool settled = false;
    if (sampler.request(context, workspace, request)) {
      ++tally.requested;
      find_top_logits(logits, request, top);
      top.scaled_sum *= 1 + (random() % 2 ? 6e-6 : -6e-6);
      settled = sampler.sample(top, request, context, workspace, got);
      tally.settled += settled;
    }
    if (!settled) sampler.sample(logits, context, workspace, got);
    EXPECT_EQ(got.token, expected.token) << tally.rows;
    EXPECT_NEAR(got.logprob, expected.logprob, 1e-5 * std::abs(double(expected.logprob)) + 1e-5);
    EXPECT_EQ(got.top_logprobs.size(), expected.top_logprobs.size());
    for (size_t i = 0; i < std::min(got.top_logprobs.size(), expected.top_logprobs.size()); ++i) {
      EXPECT_EQ(got.top_logprobs[i].first, expected.top_logprobs[i].first);
    }
    tokens.push_back(expected.token);
    if (random() % 4 == 0) tokens.push_back(Token(random() % uint32_t(vocab)));
  }
  return tally;
}

TopLogitsRequest request_of(const SamplerOptions& options, int vocab,
                            const std::vector<Token>& tokens = {}) {
  SamplerWorkspace workspace;
  TopLogitsRequest request;
  EXPECT_TRUE(Sampler(options, vocab).request({tokens, 0}, workspace, request));
  return request;
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

TEST(TopLogitsSampler, GreedyNeedsTheLargestAndTheAdjusted) {
  for (const Kind kind : {Kind::normal, Kind::ties, Kind::banned}) {
    const auto rows = some_rows(100, 3000, kind, 3, 1);
    Tally tally = compare({}, rows);
    EXPECT_EQ(tally.settled, 100);
    tally = compare({.repetition_penalty = 1.3, .logit_bias = {{5, 3}, {7, -kInfinity}}}, rows);
    EXPECT_EQ(tally.settled, 100);
  }
  EXPECT_EQ(request_of({}, 3000).count, 0);
  EXPECT_EQ(request_of({.logprobs = 0}, 3000).count, 1);
  EXPECT_EQ(request_of({.repetition_penalty = 1.3}, 3000, {7, 8, 7}).count, 3);
}

TEST(TopLogitsSampler, TopKIsAlwaysSettled) {
  for (const Kind kind : {Kind::normal, Kind::ties, Kind::banned}) {
    const auto rows = some_rows(100, 3000, kind, 3, 2);
    EXPECT_EQ(compare({.temperature = 0.8, .top_k = 40}, rows).settled, 100);
    EXPECT_EQ(compare({.temperature = 0.8, .top_k = 40, .repetition_penalty = 1.2}, rows).settled,
              100);
    const Tally both = compare({.temperature = 3, .top_k = 40, .top_p = 0.7}, rows);
    EXPECT_GT(both.settled, kind == Kind::ties ? 90 : 99);
    EXPECT_EQ(compare({.temperature = 0.8, .top_k = 257}, rows).requested, 0);
  }
}

TEST(TopLogitsSampler, TopPAndMinPAreSettledWhereTheBestSuffice) {
  const auto sharp = some_rows(200, 32000, Kind::normal, 4, 3);
  EXPECT_GT(compare({.temperature = 0.5, .top_p = 0.9}, sharp).settled, 180);
  EXPECT_GT(compare({.temperature = 0.5, .top_p = 0.9, .repetition_penalty = 1.1}, sharp).settled,
            180);
  EXPECT_EQ(compare({.temperature = 0.5, .min_p = 0.05}, sharp).settled, 200);
  const auto flat = some_rows(20, 32000, Kind::normal, 0.5f, 4);
  EXPECT_EQ(compare({.temperature = 1, .top_p = 0.9}, flat).settled, 0);
  EXPECT_EQ(compare({.temperature = 1, .min_p = 0.01}, flat).settled, 0);
}

// The API's default: the device's draw is the answer, and no candidates travel.
TEST(TopLogitsSampler, WithoutCutsTheDrawDecides) {
  for (const Kind kind : {Kind::normal, Kind::ties, Kind::banned}) {
    const auto rows = some_rows(100, 3000, kind, 0.5f, 6);
    for (const double temperature : {0.5, 1.0, 1.7}) {
      EXPECT_EQ(compare({.temperature = temperature}, rows).settled, 100);
    }
    EXPECT_EQ(compare({.temperature = 1, .logprobs = 5}, rows).settled, 100);
  }
  const TopLogitsRequest request = request_of({.temperature = 1, .seed = 9}, 3000, {4, 5});
  EXPECT_EQ(request.count, 0);
  EXPECT_TRUE(request.draw);
  EXPECT_EQ(request.key, gumbel_key(9, 2));
}

// In doubt only where an adjusted token was drawn and fell back.
TEST(TopLogitsSampler, AdjustedTokensLeaveFewDrawsInDoubt) {
  const auto rows = some_rows(300, 3000, Kind::normal, 2, 7);
  const Tally up = compare({.temperature = 1, .logit_bias = {{5, 8}, {9, 1}}}, rows);
  EXPECT_EQ(up.settled, 300);
  const SamplerOptions penalised{.temperature = 1,
                                 .repetition_penalty = 1.2,
                                 .presence_penalty = 0.5,
                                 .frequency_penalty = 0.5};
  const auto first = std::span(rows).first(150);  // at most 256 distinct tokens: the whole output
  const Tally down = compare(penalised, {first.begin(), first.end()});
  EXPECT_EQ(down.requested, 150);
  EXPECT_LT(down.settled, 150);  // some were drawn and penalised
  EXPECT_GT(down.settled, 135);
  EXPECT_LT(compare(penalised, rows).requested, 300);  // more than 256 distinct: the whole row
  const std::vector<std::vector<float>> peaked(50, {0, 0, 9, 0, 1});
  EXPECT_LT(compare({.temperature = 1, .logit_bias = {{2, -20}}}, peaked).settled, 10);
}

// Drawn alike (hot), so that one token more or less among those kept shows.
TEST(TopLogitsSampler, TokensThatFallBehindTheBestAreNotKept) {
  const auto rows = some_rows(1, 1000, Kind::normal, 3, 5);
  const std::vector<std::vector<float>> same(100, rows[0]);  // its best become recent
  const Tally tally = compare({.temperature = 1e30, .top_k = 230, .repetition_penalty = 3}, same);
  EXPECT_GT(tally.requested, tally.settled);
  EXPECT_GT(tally.settled, 0);
}

TEST(TopLogitsSampler, SumsInDoubtAreNotDrawnFrom) {
  const std::vector<std::vector<float>> equal(100, std::vector<float>(256, 1.0f));
  EXPECT_EQ(compare({.temperature = 1, .top_p = 0.5}, equal).settled, 0);
  EXPECT_EQ(compare({.temperature = 1, .top_p = 0.501}, equal).settled, 100);
}

TEST(TopLogitsSampler, AllOptionsTogetherDrawTheSame) {
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
    if (random() % 4 == 0) options.top_k = 0, options.top_p = 1;  // no cuts but min-p
    if (random() % 20 == 0) options.top_p = 1 - 1e-9;
    if (random() % 3 == 0) options.min_p = double(random() % 100) / 100;
    if (random() % 20 == 0) options.min_p = std::exp(-8.0 * double(random() % 3));
    if (options.temperature == 50) options.min_p = 1 - double(random() % 100) / 500;
    if (random() % 3 == 0) options.repetition_penalty = 0.5 + double(random() % 20) / 10;
    if (random() % 4 == 0) options.presence_penalty = double(random() % 41) / 10 - 2;
    if (random() % 4 == 0) options.frequency_penalty = double(random() % 41) / 10 - 2;
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
    all.requested += tally.requested, all.settled += tally.settled;
    if (::testing::Test::HasFailure()) return;
  }
  EXPECT_GT(all.settled, all.requested / 2);
}

TEST(TopLogitsSampler, RefusesWhatIsNotANumber) {
  for (const SamplerOptions& options :
       {SamplerOptions{}, SamplerOptions{.temperature = 1},
        SamplerOptions{.temperature = 1, .top_p = 0.5}, SamplerOptions{.logit_bias = {{1, 1}}}}) {
    const Sampler sampler(options, 3);
    const TopLogitsRequest request = request_of(options, 3);
    SamplerWorkspace workspace;
    Sampled to;
    TopLogits top;
    find_top_logits(std::vector<float>{1, std::nanf(""), 2}, request, top);
    EXPECT_THROW(sampler.sample(top, request, {}, workspace, to), Error);
    find_top_logits(std::vector<float>(3, -kInfinity), request, top);
    EXPECT_FALSE(sampler.sample(top, request, {}, workspace, to));  // the whole row says it
  }
}

}  // namespace
}  // namespace ridge
