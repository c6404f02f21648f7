// The collectives against what they are by definition, over ranks that are threads. Sizes go past
// one slot, one mailbox and the one-shot limit.
#include "ranks/communicator.h"

#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <thread>

#include "base/error.h"
#include "mpi_world.h"
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

std::vector<float> floats_of(int rank, size_t count) {
  std::mt19937 random(unsigned(rank) + 1);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

class Collectives : public testing::TestWithParam<int> {};

TEST_P(Collectives, AllReduceAddsInTheOrderOfTheRanks) {
  const int ranks = GetParam();
  for (const size_t count : {size_t{1}, size_t{7}, size_t{4096}, size_t{16385}, size_t{700001}}) {
    std::vector<float> expected = floats_of(0, count);
    for (int r = 1; r < ranks; ++r) {
      const std::vector<float> theirs = floats_of(r, count);
      for (size_t i = 0; i < count; ++i) expected[i] += theirs[i];
    }
    on_ranks(ranks, [&](Communicator& c) {
      std::vector<float> values = floats_of(c.rank(), count);
      c.all_reduce(values);
      EXPECT_EQ(values, expected) << count;
    });
  }
}

TEST_P(Collectives, ReduceScatterIsAPartOfTheAllReduce) {
  const int ranks = GetParam();
  const size_t part = 1001;
  on_ranks(ranks, [&](Communicator& c) {
    std::vector<float> values = floats_of(c.rank(), part * size_t(ranks)), mine(part);
    c.reduce_scatter(values, mine);
    c.all_reduce(values);
    const auto begin = values.begin() + ptrdiff_t(part) * c.rank();
    EXPECT_EQ(mine, std::vector<float>(begin, begin + ptrdiff_t(part)));
  });
}

TEST_P(Collectives, GatherScatterAndBroadcastMoveEveryByte) {
  const int ranks = GetParam();
  for (const size_t count : {size_t{1}, size_t{1000}, size_t{(1 << 20) + 3}}) {
    const auto byte_of = [](int from, int to, size_t i) {
      return std::byte((i * 31 + size_t(from) * 7 + size_t(to) * 13) & 255);
    };
    on_ranks(ranks, [&](Communicator& c) {
      std::vector<std::byte> mine(count), all(count * size_t(ranks));
      for (size_t i = 0; i < count; ++i) mine[i] = byte_of(c.rank(), 0, i);
      c.all_gather(mine, all);
      for (int r = 0; r < ranks; ++r) {
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(all[size_t(r) * count + i], byte_of(r, 0, i));
        }
      }
      std::vector<std::byte> from(count * size_t(ranks)), to(from.size());
      for (int r = 0; r < ranks; ++r) {
        for (size_t i = 0; i < count; ++i) from[size_t(r) * count + i] = byte_of(c.rank(), r, i);
      }
      c.all_to_all(from, to);
      for (int r = 0; r < ranks; ++r) {
        for (size_t i = 0; i < count; ++i) {
          ASSERT_EQ(to[size_t(r) * count + i], byte_of(r, c.rank(), i));
        }
      }
      for (int root = 0; root < ranks; ++root) {
        std::vector<std::byte> told(count);
        for (size_t i = 0; c.rank() == root && i < count; ++i) told[i] = byte_of(root, 1, i);
        c.broadcast(root, told);
        for (size_t i = 0; i < count; ++i) ASSERT_EQ(told[i], byte_of(root, 1, i));
      }
    });
  }
}

TEST_P(Collectives, MessagesArriveInOrderAroundARing) {
  const int ranks = GetParam();
  on_ranks(ranks, [&](Communicator& c) {
    const int next = (c.rank() + 1) % ranks, previous = (c.rank() + ranks - 1) % ranks;
    for (int round = 0; round < 200; ++round) {
      const std::vector<int> mine(size_t(round) * 50 + 1, c.rank() * 1000 + round);
      std::vector<int> theirs(mine.size());
      // A long message may leave only when it is received: not all ranks can send first.
      const bool sends_first = c.rank() == 0;
      if (sends_first) c.send(next, std::as_bytes(std::span(mine)));
      c.receive(previous, std::as_writable_bytes(std::span(theirs)));
      if (!sends_first) c.send(next, std::as_bytes(std::span(mine)));
      ASSERT_EQ(theirs, std::vector<int>(mine.size(), previous * 1000 + round));
    }
    c.barrier();
  });
}

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
    c.set_deadline(200ms);
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
