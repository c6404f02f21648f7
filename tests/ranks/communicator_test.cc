// The collectives against what they are by definition, over ranks that are threads. Sizes go past
// one slot, one mailbox and the one-shot limit.
#include "ranks/communicator.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/error.h"
#include "mpi_world.h"
#include "ranks/collective_checks.h"
#include "ranks/shared_memory.h"

namespace ridge {
namespace {

using namespace std::chrono_literals;

// Runs body(communicator) on every rank, each a thread, or under mpirun a process.
template <typename Body>
void on_ranks(int ranks, const Body& body) {
  if (Communicator* world = mpi_world()) {
    ASSERT_EQ(world->size(), ranks);
    return body(*world);
  }
  const std::shared_ptr<SharedRegion> region = make_shared_region(ranks);
  std::vector<std::thread> threads;
  threads.reserve(size_t(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Communicator> mine = join_shared_region(region, rank);
      mine->set_deadline(30s);
      body(*mine);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class Collectives : public testing::TestWithParam<int> {
 protected:
  // A check of collective_checks.h, on every rank.
  static void check(void (*of)(Communicator&)) { on_ranks(GetParam(), of); }
};

TEST_P(Collectives, AllReduceAddsInTheOrderOfTheRanks) { check(check_all_reduce); }
TEST_P(Collectives, ReduceScatterIsAPartOfTheAllReduce) { check(check_reduce_scatter); }
TEST_P(Collectives, GatherScatterAndBroadcastMoveEveryByte) { check(check_moved_bytes); }
TEST_P(Collectives, MessagesArriveInOrderAroundARing) { check(check_messages); }

INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, testing::Values(1, 2, 3, 4, 8),
                         testing::PrintToStringParamName());

TEST(CollectivesOverMpi, AreWhatTheyAreByDefinition) {
  RunningProgram version({"mpirun", "--version"});
  if (version.wait() != 0) GTEST_SKIP() << "mpirun is not here (openmpi-bin)";
  for (const std::string processes : {"2", "3", "4"}) {
    RunningProgram program(this_under_mpi(processes, "Ranks/Collectives.*/" + processes));
    ASSERT_EQ(program.wait(100s), 0) << program.text();
    EXPECT_NE(program.text().find("[  PASSED  ] 4 tests."), std::string::npos) << program.text();
  }
}

TEST(SharedMemory, ARankThatDoesNotComeEndsTheCallsOfAll) {
  on_ranks(3, [&](Communicator& c) {
    if (c.rank() == 2) return;
    c.set_deadline(2s);  // the other two come within it
    try {
      c.barrier();
      FAIL() << "rank 2 never came";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("for rank 2"), std::string::npos) << error.what();
    }
  });
}

TEST(SharedMemory, AFailureIsToldToAll) {
  on_ranks(3, [&](Communicator& c) {
    if (c.rank() == 1) {
      c.fail("rank 1: no memory");
      c.fail("rank 1: and more");  // the first counts
    }
    try {
      for (;;) {
        c.barrier();
        if (c.rank() == 1) std::this_thread::sleep_for(50ms);
      }
    } catch (const Error& error) {
      EXPECT_STREQ(error.what(), "rank 1: no memory");
    }
  });
}

TEST(SharedMemory, ALostRankIsSeenWhileWaiting) {
  const std::shared_ptr<SharedRegion> region = make_shared_region(2);
  const auto leader = join_shared_region(region, 0, [] { return "rank 1 was killed by signal 9"; });
  EXPECT_THROW(leader->barrier(), Error);
}

TEST(SharedMemory, RefusesWhatItCannotHold) {
  EXPECT_THROW(make_shared_region(0), Error);
  EXPECT_THROW(make_shared_region(65), Error);
}

}  // namespace
}  // namespace ridge
