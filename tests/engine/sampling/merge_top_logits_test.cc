// A row of logits cut into parts, each searched alone, gives what the whole row gives.
#include "engine/sampling/merge_top_logits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/sampling/logits.h"

namespace ridge {
namespace {

bool same(const Candidate& a, const Candidate& b) {
  return a.logit == b.logit && a.token == b.token;
}

TopLogits merged(const std::vector<float>& row, size_t parts, const TopLogitsRequest& request) {
  std::vector<TopLogits> of(parts);
  for (size_t p = 0; p < parts; ++p) {
    const size_t first = p * row.size() / parts, end = (p + 1) * row.size() / parts;
    find_top_logits(std::span(row).subspan(first, end - first), request, of[p], int32_t(first));
  }
  return merge_top_logits(of, request);
}

void expect_same(const TopLogits& got, const TopLogits& expected) {
  ASSERT_EQ(got.broken, expected.broken);
  EXPECT_TRUE(same(got.chosen, expected.chosen))
      << got.chosen.token << " for " << expected.chosen.token;
  EXPECT_EQ(got.requested, expected.requested);
  ASSERT_EQ(got.candidates.size(), expected.candidates.size());
  for (size_t i = 0; i < got.candidates.size(); ++i) {
    EXPECT_TRUE(same(got.candidates[i], expected.candidates[i])) << i;
  }
  EXPECT_NEAR(got.log_sum, expected.log_sum, kSumError);
  EXPECT_NEAR(got.scaled_sum, expected.scaled_sum, kSumError * expected.scaled_sum);
}

TEST(MergeTopLogits, PartsGiveWhatTheRowGives) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0, 3);
  for (int round = 0; round < 200; ++round) {
    std::vector<float> row(64 + random() % 2000);
    for (float& logit : row) {
      logit = random() % 7 == 0 ? kBanned : std::round(normal(random) * 8) / 8;  // with ties
    }
    TopLogitsRequest request;
    request.count = int(random() % 3 == 0 ? 0 : random() % 256 + 1);
    request.scale = random() % 2 == 0 ? 1.0f : 1.7f;
    request.draw = random() % 2 == 0;
    request.key = random();
    for (int i = 0; i < 5; ++i) request.tokens.push_back(int32_t(random() % row.size()));
    TopLogits expected;
    find_top_logits(row, request, expected);
    for (const size_t parts : {1, 2, 3, 8}) expect_same(merged(row, parts, request), expected);
  }
}

TEST(MergeTopLogits, ABrokenPartBreaksTheRow) {
  std::vector<float> row(100, 1.0f);
  row[77] = NAN;
  EXPECT_TRUE(merged(row, 4, {.count = 3, .tokens = {}}).broken);
}

TEST(MergeTopLogits, APartWithoutADrawableTokenIsPassedOver) {
  std::vector<float> row(100, kBanned);
  row[60] = 2;
  for (const bool draw : {false, true}) {
    const TopLogits got = merged(row, 4, {.count = 2, .tokens = {}, .draw = draw, .key = 9});
    EXPECT_EQ(got.chosen.token, 60);
    EXPECT_NEAR(got.log_sum, 2, 1e-6);
  }
}

}  // namespace
}  // namespace ridge
