// Percentiles and how sure they are.
#include "base/percentiles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/random.h"

namespace ridge {
namespace {

std::vector<double> uniform_sample(uint64_t seed, size_t count) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = unit_interval(hash64(seed, i, 0));
  std::sort(values.begin(), values.end());
  return values;
}

// 95 of 100 intervals hold the true percentile; with 400 samples the count's deviation is 4.4.
TEST(Percentiles, IntervalsHoldTheTruePercentileAsOftenAsTheySay) {
  for (const double share : {0.5, 0.9, 0.99}) {
    int inside = 0;
    for (uint64_t seed = 0; seed < 400; ++seed) {
      const PercentileInterval p = percentile_interval(uniform_sample(seed, 2000), share);
      EXPECT_LE(p.low, p.value);
      EXPECT_GE(p.high, p.value);
      inside += p.low <= share && share <= p.high ? 1 : 0;
    }
    EXPECT_NEAR(inside, 380, 4 * 4.4 + 4) << share;
  }
}

TEST(Percentiles, SmallSamplesDoNotBoundTheTail) {
  const std::vector<double> few = uniform_sample(1, 50);
  EXPECT_TRUE(std::isinf(percentile_interval(few, 0.99).high));
  EXPECT_LT(percentile_interval(uniform_sample(1, 5000), 0.99).high, 1);
  EXPECT_EQ(percentile_interval({}, 0.99).value, 0);
}

TEST(Percentiles, AreInterpolated) {
  const Percentiles p = percentiles_of({4, 1, 2, 3});
  EXPECT_DOUBLE_EQ(p.p50, 2.5);
  EXPECT_DOUBLE_EQ(p.mean, 2.5);
  EXPECT_DOUBLE_EQ(p.max, 4);
  EXPECT_EQ(percentiles_of({}).count, 0u);
}

}  // namespace
}  // namespace ridge
