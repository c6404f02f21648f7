// Collectives that are timed, and the link that is fitted to them.
#include "measure/ranks/measure_ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "../ranks/running_program.h"
#include "base/error.h"
#include "base/json.h"
#include "machine/atlas.h"
#include "ranks/shared_memory.h"

namespace ridge {
namespace {

using namespace std::chrono_literals;

TEST(RankLinkFit, ALinkThatIsExactlyLinearIsFoundAgain) {
  const RankLink made{3e-7, 1 / 5e9, 1 / 25e9};
  for (const LinkMethod method : {LinkMethod::shared_memory, LinkMethod::mpi}) {
    for (const int ranks : {2, 3, 4, 8}) {
      std::vector<CollectiveTime> times;
      for (const double bytes : {0.001, 4096.0, 1048576.0}) {
        CollectiveTime time;
        time.kind = Collective::all_gather;
        time.bytes = bytes;
        time.seconds = collective_seconds(method, time.kind, bytes, ranks, made);
        times.push_back(time);
      }
      const RankLink found = fit_link(method, ranks, made.local_per_byte, times);
      EXPECT_NEAR(found.latency, made.latency, 1e-6 * made.latency);
      EXPECT_NEAR(found.per_byte, made.per_byte, 1e-3 * made.per_byte);
      times.pop_back();
      EXPECT_THROW(fit_link(method, ranks, made.local_per_byte, times), Error);
    }
  }
}

TEST(MeasureCollectives, EveryCollectiveIsTimedOnEveryRankAlike) {
  for (const int ranks : {2, 3}) {
    CollectiveOptions options = all_collectives();
    options.seconds_each = 0.002;
    options.oversubscribed = true;  // the ranks are threads of a busy machine
    options.sizes = {4, 5000};
    const std::shared_ptr<SharedRegion> region = make_shared_region(ranks);
    std::vector<std::vector<CollectiveTime>> found(static_cast<size_t>(ranks));
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back([&, rank] {
        const std::unique_ptr<Communicator> mine = join_shared_region(region, rank);
        mine->set_deadline(30s);
        found[size_t(rank)] = measure_collectives(*mine, options, {});
      });
    }
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(found[0].size(), 2 * options.kinds.size() - 1);  // a barrier has no size
    for (size_t i = 0; i < found[0].size(); ++i) {
      const CollectiveTime& time = found[0][i];
      EXPECT_GT(time.seconds, 0);
      EXPECT_LE(time.low, time.seconds);
      EXPECT_LE(time.seconds, time.high);
      EXPECT_EQ(std::fmod(time.bytes, 4), 0);
      EXPECT_EQ(time.seconds, found[1][i].seconds);
    }
  }
}

std::vector<std::string> measure_two(std::initializer_list<std::string> more) {
  std::vector<std::string> words{RIDGE_BINARY, "measure", "--ranks", "2"};
  words.insert(words.end(), more);
  return words;
}

std::string rank_file(const char* name) {
  return fmt::format("{}ridge-ranks-{}-{}.json", testing::TempDir(), name, ::getpid());
}

void expect_link_file(const std::string& path, const std::string& link_name_wanted) {
  const nlohmann::json file = read_json(path);
  const Machine machine = machine_from_json(file, path);
  ASSERT_EQ(machine.links.size(), 1u);
  EXPECT_EQ(machine.links[0].name, link_name_wanted);
  EXPECT_EQ(machine.links[0].max_devices, 2);
  EXPECT_GT(machine.links[0].bandwidth.value_or(0), 1e7);
  EXPECT_LT(machine.links[0].latency.value_or(1), 0.1);
  const nlohmann::json& ranks = file["measurement"]["ranks"];
  EXPECT_EQ(ranks["collectives"].size(), 73u);  // six by twelve sizes, and the barrier
  for (const nlohmann::json& item : ranks["collectives"]) EXPECT_GT(item["predicted_s"], 0);
  EXPECT_EQ(find_system("2x" + path).devices(), 2);  // the predictor may use it
}

TEST(MeasureRanks, WritesTheLinkThatThePredictorReads) {
  const std::string path = rank_file("link");
  RunningProgram program(measure_two({"-o", path}));
  ASSERT_EQ(program.wait(120s), 0) << program.text();
  EXPECT_NE(program.text().find("all-reduce"), std::string::npos);
  expect_link_file(path, "shared-memory");
}

TEST(MeasureRanks, UnderMpiTheLinkIsThatOfMpi) {
  RunningProgram version({"mpirun", "--version"});
  if (version.wait() != 0) GTEST_SKIP() << "mpirun is not here (openmpi-bin)";
  const std::string path = rank_file("mpi");
  RunningProgram program(under_mpi("2", measure_two({"-o", path})));
  ASSERT_EQ(program.wait(180s), 0) << program.text();
  expect_link_file(path, "MPI");
  RunningProgram wrong(under_mpi("3", measure_two({"-o", path})));
  EXPECT_NE(wrong.wait(60s), 0);
  EXPECT_NE(wrong.text().find("MPI started 3 processes"), std::string::npos) << wrong.text();
}

TEST(MeasureRanks, AKilledRankEndsItInOneLine) {
  RunningProgram program(measure_two({"--full", "-o", rank_file("never")}));
  ASSERT_TRUE(program.wait_for_output(10)) << program.text();  // the first step has begun
  const std::vector<pid_t> ranks = program.children();
  ASSERT_EQ(ranks.size(), 1u);
  kill(ranks[0], SIGKILL);
  EXPECT_EQ(program.wait(20s), 2) << program.text();
  EXPECT_NE(program.text().find("rank 1 was killed by signal 9"), std::string::npos);
}

TEST(MeasureRanks, RefusesWhatDoesNotGoTogether) {
  for (const auto& words : std::vector<std::vector<std::string>>{
           {RIDGE_BINARY, "measure", "--ranks", "1"},
           {RIDGE_BINARY, "measure", "--ranks", "65"},
           {RIDGE_BINARY, "measure", "--ranks", "2", "--device", "cpu"}}) {
    RunningProgram program(words);
    EXPECT_EQ(program.wait(20s), 2) << program.text();
  }
}

}  // namespace
}  // namespace ridge
