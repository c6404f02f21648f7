#include "engine/sampling/gumbel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace ridge {
namespace {

// Two logarithms in f32, each to 2 ulp of results up to 44.4: 2 x 2 x 2^-24 x 44.4 = 1.1e-5 at
// most. The bound that draw_token prunes by allows 1e-5 besides its own rounding.
TEST(Gumbel, IsTheDoubleLogarithm) {
  std::mt19937_64 random(1);
  double worst = 0;
  for (int i = 0; i < 500000; ++i) {
    const uint64_t bits = random() >> (i % 64) | 1;
    const double v = std::min(double(float(bits)) * 0x1p-64, 1 - 0x1p-24);
    const double expected = -std::log(-std::log1p(-v));
    worst = std::max(worst, std::abs(double(gumbel_of_bits(bits)) - expected));
  }
  EXPECT_LT(worst, 5e-6);
  EXPECT_NEAR(gumbel_of_bits(1), 64 * std::log(2.0), 1e-5);
  EXPECT_NEAR(gumbel_of_bits(~uint64_t{0}), -std::log(24 * std::log(2.0)), 1e-5);
}

TEST(Gumbel, IsAHashOfSeedPositionAndToken) {
  EXPECT_EQ(gumbel_bits(gumbel_key(3, 14), 15), hash64(3, 14, 15) | 1);
  EXPECT_NE(gumbel(gumbel_key(1, 2), 3), gumbel(gumbel_key(1, 3), 2));
  EXPECT_NE(gumbel(gumbel_key(1, 2), 3), gumbel(gumbel_key(2, 1), 3));
}

// The hash is that of an x86-64 host. A compiler that fuses products and sums gives another one.
TEST(Gumbel, HasTheSameBitsOnEveryHost) {
  uint64_t hash = 0;
  for (int token = 0; token < 1000; ++token) {
    hash = splitmix64(hash ^ gumbel_detail::bits_of(gumbel(gumbel_key(1, 2), token)));
  }
  EXPECT_EQ(hash, 0xca4a2df3cb6d5256u);
}

// Kolmogorov-Smirnov against exp(-exp(-x)). With n = 20000 the distance exceeds 1.95 / sqrt(n) in
// one of 1000 honest samples (Smirnov's limit); the keys are fixed.
TEST(Gumbel, HasTheGumbelDistribution) {
  for (const uint64_t seed : {0, 1, 2}) {
    std::vector<double> numbers;
    for (int i = 0; i < 20000; ++i) {
      const int position = i / 100, token = i % 100;  // both vary
      numbers.push_back(double(gumbel(gumbel_key(seed, position), token)));
    }
    std::sort(numbers.begin(), numbers.end());
    double distance = 0;
    const auto n = double(numbers.size());
    for (size_t i = 0; i < numbers.size(); ++i) {
      const double p = std::exp(-std::exp(-numbers[i]));
      distance = std::max({distance, std::abs(p - double(i) / n), std::abs(p - double(i + 1) / n)});
    }
    EXPECT_LT(distance, 1.95 / std::sqrt(n));
  }
}

}  // namespace
}  // namespace ridge
