#include "engine/cpu/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace ridge::cpu {
namespace {

TEST(Workers, EveryIndexRunsOnceAndOnlyThen) {
  for (const int threads : {1, 2, 3, 8}) {  // 8: more than this machine may have
    Workers workers(threads);
    ASSERT_EQ(workers.size(), threads);
    std::vector<int> runs(static_cast<size_t>(threads));
    for (int i = 1; i <= 200; ++i) {
      workers.run([&](int index) { ++runs[static_cast<size_t>(index)]; });
      for (const int count : runs) ASSERT_EQ(count, i);
    }
  }
}

TEST(Workers, CallerIsThreadZero) {
  Workers workers(2);
  std::thread::id ids[2];
  workers.run([&](int index) { ids[index] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_NE(ids[1], ids[0]);
}

TEST(Workers, WakeFromSleep) {
  Workers workers(3);
  std::atomic<int> sum = 0;
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // beyond the spin
    workers.run([&](int index) { sum += index; });
  }
  EXPECT_EQ(sum, 20 * 3);
}

TEST(Workers, EndAtOnceUnused) {
  for (int i = 0; i < 50; ++i) Workers workers(2);
}

TEST(Workers, ZeroMeansOnePerCore) { EXPECT_GE(Workers().size(), 1); }

}  // namespace
}  // namespace ridge::cpu
