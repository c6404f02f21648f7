// `ridge run --ranks` as a user calls it: the same text, and clear ends when a rank does not go on.
#include <gtest/gtest.h>
#include <signal.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "running_program.h"

namespace ridge {
namespace {

using namespace std::chrono_literals;

std::vector<std::string> ridge_run(std::initializer_list<std::string> more) {
  std::vector<std::string> words{RIDGE_BINARY,    "run", "ridge-1m", "The memory of a computer",
                                 "--temperature", "0"};
  words.insert(words.end(), more);
  return words;
}

// A run that lasts until it is stopped.
std::vector<std::string> endless(std::initializer_list<std::string> more) {
  std::vector<std::string> words =
      ridge_run({"-n", "100000", "--context", "120000", "--ignore-eos"});
  words.insert(words.end(), more);
  return words;
}

std::string json_text_of(const RunningProgram& program) {
  const size_t at = program.text().find("\"text\":"), end = program.text().find('\n', at);
  return at == std::string::npos ? program.text() : program.text().substr(at, end - at);
}

// How many errors Ridge has written. One may stand behind the text that was generated before it.
int error_lines(const std::string& text) {
  int count = 0;
  for (size_t at = 0; (at = text.find("ridge: ", at)) != std::string::npos; ++at) ++count;
  return count;
}

// The process of mpirun's that is `rank`; -1: none.
pid_t process_of_rank(const RunningProgram& mpirun, int rank) {
  const std::string wanted = fmt::format("OMPI_COMM_WORLD_RANK={}", rank);
  for (const pid_t process : mpirun.children()) {
    std::ifstream environment(fmt::format("/proc/{}/environ", process));
    for (std::string entry; std::getline(environment, entry, '\0');) {
      if (entry == wanted) return process;
    }
  }
  return -1;
}

bool is_alive(pid_t process) { return kill(process, 0) == 0; }

TEST(RanksCommand, TheTextIsThatOfOneRank) {
  RunningProgram alone(ridge_run({"-n", "16", "--json"}));
  ASSERT_EQ(alone.wait(), 0) << alone.text();
  for (const auto& cut : std::vector<std::vector<std::string>>{
           {"--ranks", "2"}, {"--tp", "2", "--pp", "2"}, {"--ranks", "2", "--pp", "2"}}) {
    std::vector<std::string> words = ridge_run({"-n", "16", "--json"});
    words.insert(words.end(), cut.begin(), cut.end());
    RunningProgram ranks(words);
    ASSERT_EQ(ranks.wait(), 0) << ranks.text();
    EXPECT_EQ(json_text_of(ranks), json_text_of(alone));
  }
}

TEST(RanksCommand, RefusesInOneLine) {
  for (const auto& wrong : std::vector<std::vector<std::string>>{
           {"--ranks", "3", "--tp", "2"},  // 3 are not 2
           {"--ranks", "2", "--ep", "4"},  // experts over other ranks
           {"--ranks", "5"},               // heads do not divide
           {"--pp", "60"},                 // more stages than layers
           {"--ranks", "2", "--ep", "2"},  // no experts
           {"--ranks", "2", "--device", "cuda"}}) {
    std::vector<std::string> words = ridge_run({"-n", "1"});
    words.insert(words.end(), wrong.begin(), wrong.end());
    RunningProgram program(words);
    EXPECT_EQ(program.wait(), 2) << program.text();
    EXPECT_EQ(std::count(program.text().begin(), program.text().end(), '\n'), 1) << program.text();
  }
}

// Each task would fork ranks of its own.
TEST(RanksCommand, TasksWithoutPmixAreRefusedInOneLine) {
  const auto task = [](std::initializer_list<std::string> environment) {
    std::vector<std::string> words{"env"};
    words.insert(words.end(), environment);
    const std::vector<std::string> run = ridge_run({"-n", "1", "--ranks", "2"});
    words.insert(words.end(), run.begin(), run.end());
    return words;
  };
  const std::string line =
      "ridge: started as one of 4 tasks without PMIx: use srun --mpi=pmix, or Open MPI's mpirun\n";
  RunningProgram slurm(task({"SLURM_STEP_NUM_TASKS=4", "SLURM_PROCID=0"}));
  RunningProgram mpich(task({"PMI_SIZE=4", "PMI_RANK=0"}));
  RunningProgram second(task({"PMI_SIZE=4", "PMI_RANK=1"}));
  EXPECT_EQ(slurm.wait(), 2);
  EXPECT_EQ(slurm.text(), line);
  EXPECT_EQ(mpich.wait(), 2);
  EXPECT_EQ(mpich.text(), line);
  EXPECT_EQ(second.wait(), 2);
  EXPECT_EQ(second.text(), "");
  // One task of a batch job forks its ranks.
  RunningProgram job(task({"SLURM_STEP_NUM_TASKS=1", "SLURM_PROCID=0", "SLURM_LOCALID=0"}));
  EXPECT_EQ(job.wait(), 0) << job.text();
}

TEST(RanksCommand, AKilledRankEndsTheRunInOneLine) {
  RunningProgram program(endless({"--ranks", "2", "--pp", "1"}));
  ASSERT_TRUE(program.wait_for_output(100)) << program.text();
  const std::vector<pid_t> ranks = program.children();
  ASSERT_EQ(ranks.size(), 1u);
  kill(ranks[0], SIGKILL);
  EXPECT_EQ(program.wait(), 2) << program.text();
  EXPECT_NE(program.text().find("rank 1 was killed by signal 9"), std::string::npos);
}

TEST(RanksCommand, ARankThatStandsStillEndsTheRunAtTheDeadline) {
  RunningProgram program(endless({"--tp", "2", "--pp", "2", "--rank-deadline", "3"}));
  ASSERT_TRUE(program.wait_for_output(100)) << program.text();
  const std::vector<pid_t> ranks = program.children();
  ASSERT_EQ(ranks.size(), 3u);
  kill(ranks[1], SIGSTOP);
  EXPECT_EQ(program.wait(), 2) << program.text();
  EXPECT_NE(program.text().find("waited 3 s for rank"), std::string::npos) << program.text();
  EXPECT_TRUE(
      wait_until("the end of all ranks", [&] { return std::ranges::none_of(ranks, is_alive); }));
}

TEST(RanksCommand, RanksEndWithTheirLeader) {
  RunningProgram program(endless({"--ranks", "2"}));
  ASSERT_TRUE(program.wait_for_output(100)) << program.text();
  const std::vector<pid_t> ranks = program.children();
  ASSERT_EQ(ranks.size(), 1u);
  kill(program.process(), SIGKILL);
  program.wait();
  EXPECT_TRUE(wait_until("the end of the rank", [&] { return !is_alive(ranks[0]); }));
}

TEST(RanksCommand, CtrlCEndsAllRanks) {
  RunningProgram program(endless({"--ranks", "2"}));
  ASSERT_TRUE(program.wait_for_output(100)) << program.text();
  for (const pid_t rank : program.children()) kill(rank, SIGINT);
  kill(program.process(), SIGINT);
  EXPECT_EQ(program.wait(), 130) << program.text();
}

class RanksUnderMpi : public testing::Test {
 protected:
  void SetUp() override {
    RunningProgram version({"mpirun", "--version"});
    if (version.wait() != 0) GTEST_SKIP() << "mpirun is not here (openmpi-bin)";
  }
};

TEST_F(RanksUnderMpi, TheTextIsThatOfOneRank) {
  RunningProgram alone(ridge_run({"-n", "16", "--json"}));
  ASSERT_EQ(alone.wait(), 0) << alone.text();
  RunningProgram two(under_mpi("2", ridge_run({"-n", "16", "--json", "--ranks", "2"})));
  ASSERT_EQ(two.wait(), 0) << two.text();
  EXPECT_EQ(json_text_of(two), json_text_of(alone));
  RunningProgram four(under_mpi("4", ridge_run({"-n", "16", "--json", "--tp", "2", "--pp", "2"})));
  ASSERT_EQ(four.wait(), 0) << four.text();
  EXPECT_EQ(json_text_of(four), json_text_of(alone));
}

TEST_F(RanksUnderMpi, AnotherNumberOfProcessesIsRefused) {
  RunningProgram program(under_mpi("3", ridge_run({"-n", "1", "--ranks", "2"})));
  EXPECT_EQ(program.wait(), 2) << program.text();
  EXPECT_NE(program.text().find("MPI started 3 processes"), std::string::npos) << program.text();
  EXPECT_EQ(error_lines(program.text()), 1) << program.text();
}

TEST_F(RanksUnderMpi, OptionsAreRefusedInOneLine) {
  for (const auto& wrong :
       std::vector<std::vector<std::string>>{{"--ranks", "3", "--tp", "2"},    // 3 are not 2
                                             {"--kv", "int3"},                 // no such format
                                             {"--ranks", "2", "--rank", "3"},  // no such option
                                             {"--ranks", "99"}}) {             // out of range
    std::vector<std::string> words = ridge_run({"-n", "1"});
    words.insert(words.end(), wrong.begin(), wrong.end());
    RunningProgram program(under_mpi("3", words));
    EXPECT_EQ(program.wait(), 2) << program.text();
    EXPECT_EQ(error_lines(program.text()), 1) << program.text();
  }
}

// Rank 2 waits for the sums of rank 3, and rank 0 for the answer of rank 2.
TEST_F(RanksUnderMpi, ARankThatStandsStillIsNamedInOneLine) {
  RunningProgram program(
      under_mpi("4", endless({"--tp", "2", "--pp", "2", "--rank-deadline", "3"})));
  ASSERT_TRUE(program.wait_for_output(100)) << program.text();
  const std::vector<pid_t> ranks = program.children();
  const pid_t stopped = process_of_rank(program, 3);
  ASSERT_GT(stopped, 0);
  kill(stopped, SIGSTOP);
  EXPECT_EQ(program.wait(), 2) << program.text();
  EXPECT_EQ(error_lines(program.text()), 1) << program.text();
  // On a busy machine the report of rank 2, who waits for rank 3, may come too late: then rank 0
  // names rank 2 "or one that this waits for".
  const bool named = program.text().find(" waited 3 s for rank 3,") != std::string::npos ||
                     program.text().find(" waited 3 s for rank 2, or for") != std::string::npos;
  EXPECT_TRUE(named) << program.text();
  // mpirun ends before the last of them.
  EXPECT_TRUE(
      wait_until("the end of all ranks", [&] { return std::ranges::none_of(ranks, is_alive); }));
}

// Nobody receives what the others report: one of them writes it.
TEST_F(RanksUnderMpi, ALeaderThatStandsStillEndsTheRun) {
  RunningProgram program(under_mpi("2", endless({"--tp", "2", "--rank-deadline", "2"})));
  ASSERT_TRUE(program.wait_for_output(100)) << program.text();
  const pid_t stopped = process_of_rank(program, 0);
  ASSERT_GT(stopped, 0);
  kill(stopped, SIGSTOP);
  // Between two steps rank 1 waits without a limit: then the leader is stopped elsewhere.
  int code = program.wait(12s);
  for (int more = 0; code == -1 && more < 20; ++more) {
    kill(stopped, SIGCONT);
    std::this_thread::sleep_for(50ms);
    kill(stopped, SIGSTOP);
    code = program.wait(12s);
  }
  kill(stopped, SIGCONT);
  EXPECT_EQ(code, 2) << program.text();
  EXPECT_EQ(error_lines(program.text()), 1) << program.text();
  EXPECT_NE(program.text().find("ridge: rank 1 waited 2 s for rank 0,"), std::string::npos)
      << program.text();
}

TEST_F(RanksUnderMpi, AKilledRankEndsTheRun) {
  RunningProgram program(under_mpi("2", endless({"--ranks", "2"})));
  ASSERT_TRUE(program.wait_for_output(100)) << program.text();
  const std::vector<pid_t> ranks = program.children();
  ASSERT_GE(ranks.size(), 2u);
  kill(ranks.back(), SIGKILL);
  EXPECT_NE(program.wait(), -1) << program.text();
  EXPECT_NE(program.text().find("signal 9"), std::string::npos) << program.text();
}

}  // namespace
}  // namespace ridge
