#include "cli/measurement_doubt.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "cli/command.h"
#include "measure/cpu/read_probe.h"

namespace ridge {
namespace {

// Between two readings others take this share of the processors, and this process takes nothing.
void let_others_take(double share) {
  set_disturbances([share, moment = Disturbance()]() mutable {
    moment.total += 1000;
    moment.busy += 1000 * share;
    return moment;
  });
}

// In a process of its own (see MeasurementDoubtDeathTest), which writes everything to standard
// error.
[[noreturn]] void run_and_exit(double share, std::vector<std::string> words) {
  let_others_take(share);
  dup2(STDERR_FILENO, STDOUT_FILENO);
  words.insert(words.begin(), "ridge");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  const int code = run_command_line(int(arguments.size()), arguments.data());
  std::fflush(stdout);
  std::_Exit(code);
}

// Each command runs in a new process of this program: what a process has detected it remembers.
class MeasurementDoubtDeathTest : public testing::Test {
 protected:
  void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); }

  void expect(double share, const std::vector<std::string>& words, const std::string& pattern) {
    EXPECT_EXIT(run_and_exit(share, words), testing::ExitedWithCode(0), pattern);
  }
};

constexpr const char* kLine = "Other processes took 80 % of the processors while this was measured";
constexpr const char* kField = "\"doubt\": \"other processes took 80 % of the processors\"";
constexpr const char* kNone = "\"doubt\": null";

TEST_F(MeasurementDoubtDeathTest, TheTourSaysItAboveItsFiguresAndMarksTheBandwidth) {
  expect(0.8, {}, std::string(kLine) + ".*\nThis machine(.|\n)*DRAM[^\n]*B/s \\(in doubt\\)");
}

TEST_F(MeasurementDoubtDeathTest, RunAndBenchSayItAboveTheirTables) {
  expect(0.8, {"run", "ridge-1m", "Once", "-n", "2", "--profile"},
         std::string(kLine) + "(.|\n)*operator(.|\n)*tok/s");
  expect(0.8, {"bench", "ridge-1m", "-p", "8", "-n", "2"}, std::string(kLine) + "(.|\n)*test");
  expect(0.8, {"bench", "ridge-1m", "-p", "8", "-n", "2", "--serve", "1"},
         std::string(kLine) + "(.|\n)*clients");
}

TEST_F(MeasurementDoubtDeathTest, IsAFieldOfTheJson) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--json"},
           {"run", "ridge-1m", "Once", "-n", "2", "--json"},
           {"bench", "ridge-1m", "-p", "8", "-n", "2", "--json"},
           {"bench", "ridge-1m", "-p", "8", "-n", "2", "--serve", "1", "--json"}}) {
    expect(0.8, words, kField);
    expect(0.05, words, kNone);  // a browser that is open takes as much
  }
}

TEST(MeasurementDoubt, OfTheProbeStaysWithItsFigures) {
  let_others_take(0.8);
  const std::optional<CpuProbe> busy = probe_cpu();
  let_others_take(0);
  const std::optional<CpuProbe> quiet = probe_cpu();
  set_disturbances({});
  ASSERT_TRUE(busy && busy->clock && quiet && quiet->clock);
  EXPECT_NE(busy->clock->how.find("in doubt because other processes took 80 %"), std::string::npos);
  EXPECT_EQ(quiet->clock->how.find("in doubt"), std::string::npos);
}

TEST(MeasurementDoubt, IsALineOnlyWhereThereIsOne) {
  EXPECT_EQ(doubt_line(""), "");
  EXPECT_EQ(doubt_line("the control group's CPU quota stopped the process"),
            "The control group's CPU quota stopped the process while this was measured: the rates "
            "below may be too low.\n");
}

}  // namespace
}  // namespace ridge
