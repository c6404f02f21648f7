// Which of several reports names the cause.
#include "ranks/mpi_failures.h"

#include <gtest/gtest.h>

namespace ridge {
namespace {

RankReport waits(int rank, int other) {
  return {rank, other, fmt::format("{} waits for {}", rank, other)};
}

TEST(RankReports, TheRankThatNobodyHearsOfIsTheCause) {
  // Two stages of two, rank 3 stands still: rank 0 waits for the answer of rank 2, which waits for
  // the sum of rank 3.
  EXPECT_EQ(nearest_to_cause({waits(0, 2), waits(2, 3)}).reason, "2 waits for 3");
  EXPECT_EQ(nearest_to_cause({waits(2, 3), waits(0, 2)}).reason, "2 waits for 3");
  // A pipeline of four, rank 1 stands still.
  EXPECT_EQ(nearest_to_cause({waits(0, 3), waits(3, 2), waits(2, 1)}).reason, "2 waits for 1");
  EXPECT_EQ(nearest_to_cause({waits(0, 3)}).reason, "0 waits for 3");
}

TEST(RankReports, ARankThatFailedIsTheCause) {
  const RankReport failed{3, RankReport::kNobody, "rank 3: no memory"};
  EXPECT_EQ(nearest_to_cause({waits(0, 2), waits(2, 1), failed}).reason, "rank 3: no memory");
}

TEST(RankReports, ACircleIsReportedFromItsFirst) {
  EXPECT_EQ(nearest_to_cause({waits(0, 1), waits(1, 0)}).reason, "0 waits for 1");
}

}  // namespace
}  // namespace ridge
