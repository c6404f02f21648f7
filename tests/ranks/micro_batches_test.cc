#include "engine/ranks/micro_batches.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ridge {
namespace {

double ridge_at_32(double tokens) { return std::max(1.0, tokens / 32); }
double ridge_at_256(double tokens) { return std::max(1.0, tokens / 256); }

std::vector<int> ends_of(const std::vector<int>& tokens, int stages,
                         TurnTime turn_time = ridge_at_32) {
  std::vector<std::vector<Token>> all;
  for (const int count : tokens) all.emplace_back(size_t(count));
  std::vector<Slice> batch;
  for (const std::vector<Token>& each : all) batch.push_back({each, 0, {}, 1});
  return micro_batch_ends(batch, stages, turn_time);
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
  EXPECT_EQ(ends_of({500}, 2), (Ends{1}));                             // a slice is not cut
  EXPECT_EQ(ends_of({120, 120, 240}, 2, ridge_at_256), (Ends{2, 3}));  // GpuRanks
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
      std::vector<int> tokens;
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

}  // namespace
}  // namespace ridge
