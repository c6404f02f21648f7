#include "step/micro_batches.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

std::vector<int> ends_of(const std::vector<double>& tokens, int stages, double turn_tokens = 32) {
  return micro_batch_ends(tokens, stages, turn_tokens);
}

using Ends = std::vector<int>;

// Every micro-batch reads the weights again: three turns of a token take longer than two of eight.
TEST(MicroBatches, ASmallStepStaysWhole) {
  EXPECT_EQ(ends_of({1}, 2), (Ends{1}));
  EXPECT_EQ(ends_of({1, 1, 1, 1, 1, 1, 1, 1}, 2), (Ends{8}));
  EXPECT_EQ(ends_of({16, 16}, 2), (Ends{2}));
  EXPECT_EQ(ends_of({24, 24}, 2), (Ends{2}));  // 3 turns against 2 of 1.5: as long
}

TEST(MicroBatches, ALargeOneIsCutForEveryStage) {
  EXPECT_EQ(ends_of({100, 100}, 2), (Ends{1, 2}));
  EXPECT_EQ(ends_of({100, 100, 100, 100}, 2), (Ends{2, 4}));
  EXPECT_EQ(ends_of({100, 100, 100, 100}, 4), (Ends{1, 2, 3, 4}));
  EXPECT_EQ(ends_of({500}, 2), (Ends{1}));                    // a slice is not cut
  EXPECT_EQ(ends_of({120, 120, 240}, 2, 256), (Ends{2, 3}));  // GpuRanks
}

TEST(MicroBatches, PartsHaveAboutAsManyTokens) {
  EXPECT_EQ(ends_of({1, 1, 1, 300, 300, 1}, 2), (Ends{4, 6}));
  EXPECT_EQ(ends_of({300, 100, 100, 100}, 2), (Ends{1, 4}));
  // 3 turns of 490 tokens take longer than 2 of 500.
  EXPECT_EQ(ends_of({490, 10}, 2), (Ends{2}));
}

TEST(MicroBatches, EverySliceIsInOne) {
  for (int stages = 1; stages <= 5; ++stages) {
    for (int slices = 1; slices <= 9; ++slices) {
      std::vector<double> tokens;
      for (int s = 0; s < slices; ++s) tokens.push_back(1 + (s * 7919) % 400);
      const Ends ends = ends_of(tokens, stages);
      ASSERT_FALSE(ends.empty());
      EXPECT_LE(int(ends.size()), stages);
      EXPECT_EQ(ends.back(), slices);
      int before = 0;
      for (const int end : ends) {
        EXPECT_GT(end, before);
        before = end;
      }
    }
  }
}

// The predictor's division is the engine's.
TEST(MicroBatches, OfADescribedStep) {
  const Sequences step[] = {{4, 1, 100, 1}, {2, 100, 0, 1}};
  Plan plan;
  plan.pp = 2, plan.turn_tokens = 8;
  const auto parts = micro_batches(step, plan);
  ASSERT_EQ(parts.size(), 2u);
  const auto tokens_of = [](const std::vector<Sequences>& part) {
    double tokens = 0;
    for (const Sequences& each : part) tokens += each.count * each.fresh;
    return tokens;
  };
  EXPECT_EQ(tokens_of(parts[0]), 104);
  EXPECT_EQ(tokens_of(parts[1]), 100);
  plan.turn_tokens = 0;
  EXPECT_EQ(micro_batches(step, plan).size(), 1u);
  plan.turn_tokens = 8, plan.pp = 1;
  EXPECT_EQ(micro_batches(step, plan).size(), 1u);
}

}  // namespace
}  // namespace ridge
