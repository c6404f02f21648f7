#include "lab/line_ring.h"

#include <gtest/gtest.h>

#include <set>

#include "base/mapped_buffer.h"

namespace ridge {
namespace {

TEST(LineRing, MeetsEveryLineOnce) {
  constexpr size_t kLines = 240;
  const MappedBuffer memory(kLines * kLineBytes);
  const LineRing ring(memory.as<std::byte>(), kLines * kLineBytes, 5);
  for (const size_t chains : {1, 2, 4, 8, 24}) {
    std::set<void*> met;
    std::vector<void*> at(chains);
    for (size_t j = 0; j < chains; ++j) at[j] = ring.start(j, chains);
    for (size_t i = 0; i < kLines / chains; ++i) {
      chase_chains(chains, at.data(), 1);
      met.insert(at.begin(), at.end());
    }
    EXPECT_EQ(met.size(), kLines) << chains;
  }
}

TEST(LineRing, MissRateIsSane) {
  ThreadTeam team(1);
  const size_t part = 4 << 20;
  const MappedBuffer memory(part);
  const MissRates rates = miss_rates(team, memory.as<std::byte>(), part);
  EXPECT_GT(rates.lines, 1e5);
  EXPECT_LT(rates.lines, 1e11);
  EXPECT_GT(rates.latency, 1e-10);
  EXPECT_LT(rates.latency, 1e-4);
}

}  // namespace
}  // namespace ridge
