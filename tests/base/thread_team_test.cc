#include "base/thread_team.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "base/affinity.h"

namespace ridge {
namespace {

std::vector<int> cores() { return one_per_core(usable_processors()); }

TEST(ThreadTeam, EveryIndexRunsOnceAndOnlyThen) {
  for (const int threads : {1, 2, 3, 8}) {  // 8: more than this machine may have
    ThreadTeam team(threads);
    ASSERT_EQ(team.size(), threads);
    std::vector<int> runs(static_cast<size_t>(threads));
    for (int i = 1; i <= 200; ++i) {
      team.run([&](int index) { ++runs[static_cast<size_t>(index)]; });
      for (const int count : runs) ASSERT_EQ(count, i);
    }
  }
}

TEST(ThreadTeam, CallerIsThreadZero) {
  ThreadTeam team(2);
  std::thread::id ids[2];
  team.run([&](int index) { ids[index] = std::this_thread::get_id(); });
  EXPECT_EQ(ids[0], std::this_thread::get_id());
  EXPECT_NE(ids[1], ids[0]);
}

TEST(ThreadTeam, WakesFromSleep) {
  ThreadTeam team(3);
  std::atomic<int> sum = 0;
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than the threads spin
    team.run([&](int index) { sum += index; });
  }
  EXPECT_EQ(sum, 20 * 3);
}

TEST(ThreadTeam, EndsWithoutARun) {
  for (int i = 0; i < 50; ++i) ThreadTeam team(2);
}

TEST(ThreadTeam, ZeroMeansOnePerCore) {
  EXPECT_EQ(ThreadTeam().size(), static_cast<int>(cores().size()));
  EXPECT_EQ(ThreadTeam(0).size(), static_cast<int>(cores().size()));
}

TEST(ThreadTeam, PinsAllButTheCaller) {
  const std::vector<int> before = usable_processors();
  ThreadTeam team;
  ASSERT_TRUE(team.pinned());
  std::vector<std::vector<int>> allowed(static_cast<size_t>(team.size()));
  team.run([&](int index) { allowed[static_cast<size_t>(index)] = usable_processors(); });
  EXPECT_EQ(allowed[0], before);
  for (size_t i = 1; i < allowed.size(); ++i) {
    EXPECT_EQ(allowed[i], std::vector<int>{cores()[i]});
  }
}

TEST(ThreadTeam, FloatsWhereCoresAreTooFew) {
  const std::vector<int> before = usable_processors();
  ThreadTeam team(static_cast<int>(before.size()) + 1);
  EXPECT_FALSE(team.pinned());
  std::vector<std::vector<int>> allowed(static_cast<size_t>(team.size()));
  team.run([&](int index) { allowed[static_cast<size_t>(index)] = usable_processors(); });
  for (const std::vector<int>& processors : allowed) EXPECT_EQ(processors, before);
}

TEST(ThreadTeam, PinnedToRunsOnTheListedProcessorsAndRestoresTheCaller) {
  const std::vector<int> before = usable_processors();
  for (const std::vector<int>& processors :
       {std::vector<int>{before.back()}, before,
        std::vector<int>(3, before[0])}) {  // the last: three threads share a processor
    {
      ThreadTeam team = ThreadTeam::pinned_to(processors);
      ASSERT_EQ(team.size(), static_cast<int>(processors.size()));
      EXPECT_TRUE(team.pinned());
      std::vector<int> calls(processors.size()), at(processors.size());
      for (int i = 0; i < 3; ++i) {
        team.run([&](int index) {
          ++calls[static_cast<size_t>(index)];
          at[static_cast<size_t>(index)] = sched_getcpu();
        });
      }
      EXPECT_EQ(calls, std::vector<int>(processors.size(), 3));
      EXPECT_EQ(at, processors);
    }
    EXPECT_EQ(usable_processors(), before);
  }
}

TEST(ThreadTeam, BarrierWaitsForAll) {
  for (const int threads : {1, 2, 5}) {
    ThreadTeam team(threads);
    constexpr int kRounds = 20;
    std::atomic<int> arrived = 0;
    std::atomic<int> early = 0;
    team.run([&](int) {
      for (int round = 1; round <= kRounds; ++round) {
        ++arrived;
        team.barrier();
        if (arrived.load() < round * threads) ++early;
        team.barrier();  // no thread enters the next round before all have looked
      }
    });
    EXPECT_EQ(early, 0);
    EXPECT_EQ(arrived, kRounds * threads);
  }
}

TEST(Affinity, PinningRestrictsAndTheScopeRestores) {
  const std::vector<int> before = usable_processors();
  {
    const AffinityScope scope;
    ASSERT_TRUE(scope.can_restore());
    ASSERT_TRUE(pin_thread(pthread_self(), before.back()));
    EXPECT_EQ(usable_processors(), std::vector<int>{before.back()});
  }
  EXPECT_EQ(usable_processors(), before);
  EXPECT_FALSE(pin_thread(pthread_self(), -1));
  EXPECT_FALSE(pin_thread(pthread_self(), CPU_SETSIZE));
}

}  // namespace
}  // namespace ridge
