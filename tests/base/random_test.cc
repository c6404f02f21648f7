#include "base/random.h"

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cmath>
#include <set>

namespace ridge {
namespace {

TEST(Random, SplitMix64GivesThePublishedSequence) {
  // The first words of the reference implementation for seed 0.
  SplitMix64 random(0);
  EXPECT_EQ(random.next(), 0xe220a8397b1dcdafu);
  EXPECT_EQ(random.next(), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(random.next(), 0x06c45d188009454fu);
  EXPECT_EQ(splitmix64(0), 0xe220a8397b1dcdafu);
}

TEST(Random, UnitIntervalExcludesOne) {
  EXPECT_EQ(unit_interval(0), 0);
  EXPECT_EQ(unit_interval(~uint64_t{0}), 1 - 0x1p-53);
}

// Pearson's statistic of `buckets` equally likely buckets has mean buckets - 1 and variance
// 2 (buckets - 1). Five deviations: one of two million good generators fails.
template <typename Word>
void expect_uniform(int buckets, int words, Word word) {
  std::array<int, 256> counts{};
  for (int i = 0; i < words; ++i) ++counts.at(word(i) % static_cast<uint64_t>(buckets));
  const double expected = double(words) / buckets;
  double statistic = 0;
  for (int i = 0; i < buckets; ++i) {
    const double off = counts.at(static_cast<size_t>(i)) - expected;
    statistic += off * off / expected;
  }
  EXPECT_NEAR(statistic, buckets - 1, 5 * std::sqrt(2.0 * (buckets - 1)));
}

TEST(Hash64, IsUniformInEachArgument) {
  constexpr int kWords = 1 << 18;
  for (const int shift : {0, 24, 56}) {  // low, middle and high bits
    SCOPED_TRACE(shift);
    const auto check = [&](auto hash) {
      expect_uniform(256, kWords, [&](int i) { return hash(uint64_t(i)) >> shift & 255; });
    };
    check([](uint64_t i) { return hash64(i, 7, 9); });
    check([](uint64_t i) { return hash64(1, i, 9); });
    check([](uint64_t i) { return hash64(1, 7, i); });
    check([](uint64_t i) { return hash64(1, i >> 9, i & 511); });  // positions x tokens
  }
}

// Neighbours in one argument must look independent: the XOR of two words has 32 +- 4 bits set,
// so the mean over n pairs has deviation 4 / sqrt(n).
TEST(Hash64, NeighboursShareHalfOfTheirBits) {
  constexpr int kPairs = 1 << 16;
  const double tolerance = 5 * 4 / std::sqrt(double(kPairs));
  int64_t by_seed = 0, by_position = 0, by_token = 0, diagonal = 0;
  for (uint64_t i = 0; i < kPairs; ++i) {
    const uint64_t word = hash64(i, i, i);
    by_seed += std::popcount(word ^ hash64(i + 1, i, i));
    by_position += std::popcount(word ^ hash64(i, i + 1, i));
    by_token += std::popcount(word ^ hash64(i, i, i + 1));
    diagonal += std::popcount(word ^ hash64(i, i + 1, i - 1));
  }
  for (const int64_t bits : {by_seed, by_position, by_token, diagonal}) {
    EXPECT_NEAR(double(bits) / kPairs, 32, tolerance);
  }
}

TEST(Hash64, ArgumentsAreNotInterchangeable) {
  std::set<uint64_t> words;
  for (uint64_t seed = 0; seed < 32; ++seed) {
    for (uint64_t a = 0; a < 32; ++a) {
      for (uint64_t b = 0; b < 32; ++b) words.insert(hash64(seed, a, b));
    }
  }
  EXPECT_EQ(words.size(), 32u * 32 * 32);  // by chance two of 2^15 agree once in 2^35 tries
}

}  // namespace
}  // namespace ridge
