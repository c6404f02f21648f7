// Collectives that are timed, and the link that is fitted to them.
#include "measure/ranks/measure_ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "../ranks/running_program.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "engine/cuda/ranks/measure_sums.h"
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

// A link whose messages of 4 KiB and more take another way: its points predict the other
// collectives, also between the sizes that were measured.
TEST(RankLinkFit, PointsBySizeFollowAChangeOfProtocol) {
  const auto way = [](double bytes, double latency) {
    return bytes < 4096 ? latency + bytes / 2e9 : 6 * latency + bytes / 8e9;
  };
  std::vector<CollectiveTime> times;
  for (const Collective kind : {Collective::all_gather, Collective::send}) {
    for (double bytes = 8; bytes <= 16 << 20; bytes *= 4) {
      CollectiveTime time;
      time.kind = kind;
      time.bytes = bytes;
      time.seconds = kind == Collective::send ? way(bytes, 4e-7) : way(bytes / 2, 7e-7);
      times.push_back(time);
    }
  }
  const RankLink link = fit_link(LinkMethod::mpi, 2, 0, times);
  EXPECT_EQ(link.exchanges.size(), 11u);
  EXPECT_EQ(link.messages.size(), 11u);
  for (double bytes = 8; bytes <= 64 << 20; bytes *= 1.7) {
    const auto predicted = [&](Collective kind) {
      return collective_seconds(LinkMethod::mpi, kind, bytes, 2, link);
    };
    // A quarter: within a factor of four of sizes a bent curve is taken for straight. Where the
    // protocol changes, the neighbours differ by a factor.
    const bool near_change = bytes > 1024 && bytes < 32768;
    const double tolerance = near_change ? 1.0 : 0.25;
    EXPECT_NEAR(predicted(Collective::all_to_all), way(bytes / 2, 7e-7),
                tolerance * way(bytes / 2, 7e-7))
        << bytes;
    EXPECT_NEAR(predicted(Collective::broadcast), way(bytes, 4e-7), tolerance * way(bytes, 4e-7))
        << bytes;
  }
  EXPECT_NEAR(collective_seconds(LinkMethod::mpi, Collective::barrier, 0, 2, link), 7e-7, 1e-8);
  times[3].doubt = "preempted";
  EXPECT_EQ(fit_link(LinkMethod::mpi, 2, 0, times).exchanges.size(), 10u);
  // Shared memory has no such change: two readings say it.
  EXPECT_TRUE(fit_link(LinkMethod::shared_memory, 2, 0, times).exchanges.empty());
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

// The program beside this one, because the tests may run elsewhere than they were built
// (tools/gpu_check).
std::vector<std::string> measure_two(std::initializer_list<std::string> more) {
  const auto folder = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  std::vector<std::string> words{(folder / "ridge").string(), "measure", "--ranks", "2"};
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
  ASSERT_EQ(program.wait(), 0) << program.text();
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
           {RIDGE_BINARY, "measure", "--ranks", "2", "--device", "cuda:1"},
           {RIDGE_BINARY, "measure", "--ranks", "2", "--disk", "/tmp"}}) {
    RunningProgram program(words);
    EXPECT_EQ(program.wait(20s), 2) << program.text();
  }
}

GpuSumsReport some_gpu_sums(int ranks, int devices, double latency, double per_byte) {
  GpuSumsReport report;
  report.ranks = ranks;
  report.devices = devices;
  report.device = "NVIDIA H200";
  for (const char* way : {"direct", "host"}) {
    for (double bytes = 4; bytes <= 16 << 20; bytes *= 4) {
      CollectiveTime time;
      time.kind = Collective::all_reduce;
      time.bytes = bytes;
      time.seconds =
          collective_seconds(Collective::all_reduce, bytes, ranks, per_byte, latency, true);
      report.times.push_back({way, time});
    }
  }
  return report;
}

TEST(SumsOfGpuRanks, TheLinkOfDirectSumsIsFoundAgainAndStored) {
  for (const int ranks : {2, 4, 8}) {
    const GpuSumsReport report = some_gpu_sums(ranks, ranks, 4e-6, 1 / 300e9);
    const std::optional<RankLink> link = report.link();
    ASSERT_TRUE(link);
    EXPECT_NEAR(link->latency, 4e-6, 1e-9);
    EXPECT_NEAR(link->per_byte * 300e9, 1, 0.01);
    for (const GpuSumTime& sum : report.times) {
      const std::optional<double> predicted = report.predicted_s(sum);
      ASSERT_EQ(predicted.has_value(), sum.backend == "direct");
      if (predicted) {
        EXPECT_NEAR(*predicted / sum.time.seconds, 1, 0.01);
      }
    }
    const std::string path = rank_file("gpu");
    write_file(path, gpu_sums_to_json(report, "2026-11-17", Effort::quick).dump());
    const Machine machine = machine_from_json(read_json(path), path);
    ASSERT_EQ(machine.links.size(), 1u);
    EXPECT_NEAR(machine.links[0].bandwidth.value_or(0) / 300e9, 1, 0.05);
    EXPECT_NEAR(machine.links[0].latency.value_or(0), 4e-6, 1e-9);
  }
}

// Ranks that share a GPU take turns there: their times are no link.
TEST(SumsOfGpuRanks, RanksThatShareAGpuHaveNoLink) {
  const GpuSumsReport report = some_gpu_sums(2, 1, 4e-6, 1 / 300e9);
  EXPECT_FALSE(report.link());
  EXPECT_FALSE(report.predicted_s(report.times.front()));
  const nlohmann::json file = gpu_sums_to_json(report, "2026-11-17", Effort::quick);
  EXPECT_TRUE(file.value("links", nlohmann::json::array()).empty()) << file.dump();
  EXPECT_EQ(file["measurement"]["gpu_ranks"]["sums"].size(), report.times.size());
}

// On a machine with a GPU: its ranks are measured, and say whether they share it. Without one it is
// a line that says so.
TEST(GpuRanksMeasure, SumsAreMeasuredOrRefusedInOneLine) {
  const std::string path = rank_file("gpu-sums");
  RunningProgram program(measure_two({"--device", "cuda", "-o", path}));
  const int code = program.wait();
  if (code == 2 && (program.text().find("no CUDA device") != std::string::npos ||
                    program.text().find("without the CUDA toolkit") != std::string::npos)) {
    EXPECT_EQ(std::count(program.text().begin(), program.text().end(), '\n'), 1) << program.text();
    GTEST_SKIP() << "no CUDA device";
  }
  ASSERT_EQ(code, 0) << program.text();
  const nlohmann::json ranks = read_json(path)["measurement"]["gpu_ranks"];
  EXPECT_EQ(ranks["ranks"], 2);
  std::set<std::string> ways;
  for (const nlohmann::json& sum : ranks["sums"]) {
    EXPECT_GT(sum["seconds"], 0);
    ways.insert(sum["backend"].get<std::string>());
  }
  EXPECT_TRUE(ways.contains("direct") && ways.contains("host")) << ranks.dump(2);
}

}  // namespace
}  // namespace ridge
