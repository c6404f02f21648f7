// ridge lab as people and scripts meet it: interrupts, what it leaves behind, the memory that it
// announces, and commands that run as they are printed.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/json.h"
#include "base/wait_until.h"
#include "cli/command.h"
#include "lab/experiment.h"

namespace ridge {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

struct Ended {
  int status = 0;         // of wait4
  double most_bytes = 0;  // resident at once
  std::string out;

  bool exited_with(int code) const { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
  bool killed_by(int signal) const { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }
};

std::string slurped(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class LabCommand : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "ridge-lab-cli-XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    fs::create_directories(folder_ / "tmp");
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Signals, 1 ms apart, once standard error has said `until` or the program has ended. The program
  // has a home and a folder for temporary files of its own.
  Ended run(const std::vector<std::string>& words, const std::vector<int>& signals = {},
            const std::string& until = "") const {
    fs::remove(folder_ / "errors");
    const fs::path out = folder_ / "out", errors = folder_ / "errors";
    const pid_t child = fork();
    if (child == 0) {
      std::signal(SIGINT, SIG_DFL);  // a shell's background jobs ignore it
      setenv("TMPDIR", (folder_ / "tmp").c_str(), 1);
      setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
      if (!std::freopen(out.c_str(), "w", stdout) || !std::freopen(errors.c_str(), "w", stderr))
        _exit(9);
      std::vector<char*> arguments{const_cast<char*>(RIDGE_BINARY)};
      for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
      arguments.push_back(nullptr);
      execv(RIDGE_BINARY, arguments.data());
      _exit(9);
    }
    EXPECT_TRUE(wait_until("'" + until + "', or the end of the program", [&] {
      siginfo_t ended{};
      waitid(P_PID, id_t(child), &ended, WEXITED | WNOHANG | WNOWAIT);
      return ended.si_pid != 0 || slurped(errors).find(until) != std::string::npos;
    }));
    for (const int signal : signals) {
      kill(child, signal);  // not reaped yet: it is this child or nobody
      std::this_thread::sleep_for(milliseconds(1));
    }
    Ended ended;
    rusage usage{};
    wait4(child, &ended.status, 0, &usage);
    ended.most_bytes = 1024.0 * double(usage.ru_maxrss);
    ended.out = slurped(out);
    return ended;
  }

  std::vector<std::string> left_behind() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_ / "tmp")) {
      names.push_back(entry.path().filename());
    }
    return names;
  }

  fs::path folder_;
};

TEST_F(LabCommand, AnInterruptEndsItAtAnyTimeWithItsOwnExitCode) {
  for (const std::string until : {"", "holds at most", "predicted"}) {
    const Ended ended = run({"lab", "roofline", "--json"}, {SIGINT}, until);
    // Before the program has begun to listen, the signal ends it as usual: a shell says 130 as
    // well.
    if (until.empty() && ended.killed_by(SIGINT)) continue;
    ASSERT_TRUE(ended.exited_with(130)) << "after '" << until << "': status " << ended.status;
    const Json report = Json::parse(ended.out, nullptr, false);
    ASSERT_FALSE(report.is_discarded()) << ended.out;
    EXPECT_EQ(report["interrupted"], true);
    EXPECT_TRUE(report["experiments"].empty());
  }
}

TEST_F(LabCommand, APageOfAnInterruptedRunSaysSo) {
  const fs::path page = folder_ / "lab.html";
  const Ended ended = run({"lab", "history", "roofline", "-o", page}, {SIGINT},
                          "roofline: ");  // history has ended
  ASSERT_TRUE(ended.exited_with(130)) << ended.status;
  EXPECT_NE(slurped(page).find("The run was interrupted"), std::string::npos);
  EXPECT_NE(ended.out.find("interrupted: 1 of 2"), std::string::npos) << ended.out;
}

TEST_F(LabCommand, LeavesNoFileBehindHoweverItEnds) {
  for (const char* until : {"", "holds at most", "in bf16, predicted", "in q4_0, predicted"}) {
    run({"lab", "weights-bits", "--quick"}, {SIGTERM}, until);
    EXPECT_TRUE(left_behind().empty()) << left_behind().front();
    run({"lab", "weights-bits", "--quick"}, {SIGINT, SIGINT}, until);
    EXPECT_TRUE(left_behind().empty()) << left_behind().front();
  }
  EXPECT_TRUE(run({"lab", "weights-bits", "--quick"}).exited_with(0));
  EXPECT_TRUE(left_behind().empty()) << left_behind().front();
}

TEST_F(LabCommand, HoldsNoMoreMemoryThanItAnnounces) {
  const double empty = run({"lab"}).most_bytes;
  for (const char* name : {"history", "stages", "weights-bits"}) {
    const Ended ended = run({"lab", name, "--quick", "--json"});
    ASSERT_TRUE(ended.exited_with(0)) << name;
    const Json report = Json::parse(ended.out);
    const double announced = report["experiments"][0]["memory_bytes"].get<double>();
    EXPECT_LE(ended.most_bytes - empty, announced) << name;
  }
}

TEST_F(LabCommand, SaysEveryPredictionBeforeItIsMeasured) {
  const Ended ended = run({"lab", "context", "--quick", "--json"});
  ASSERT_TRUE(ended.exited_with(0));
  const std::string errors = slurped(folder_ / "errors");
  EXPECT_NE(errors.find("context: holds at most"), std::string::npos) << errors;
  const Json report = Json::parse(ended.out);
  const Json& points = report["experiments"][0]["series"][0]["points"];
  size_t said = 0;
  for (size_t at = errors.find("predicted"); at != std::string::npos;
       at = errors.find("predicted", at + 1)) {
    ++said;
  }
  EXPECT_EQ(said, points.size()) << errors;
  for (const Json& point : points) EXPECT_TRUE(point.contains("error"));
}

// Every command, with callbacks that do nothing.
class Parser {
 public:
  Parser() : app_("", "ridge") {
    app_.require_subcommand(0, 1);
    app_.add_flag("--json", global_.json);
    app_.fallthrough();
    for (const auto& add :
         {add_run_command, add_pull_command, add_bench_command, add_perplexity_command,
          add_predict_command, add_explain_command, add_plan_command, add_machine_command,
          add_model_command, add_tiles_command, add_convert_command, add_validate_command,
          add_measure_command, add_serve_command, add_lab_command, add_load_command,
          add_report_command, add_tokenize_command, add_completion_command}) {
      add(app_, global_);
    }
    silence(app_);
  }
  // Throws CLI::ParseError.
  void parse(const std::string& command) { app_.parse(command, true); }

 private:
  // A command's callback owns its options, so the callbacks are kept, and not called.
  struct Callbacks : CLI::App {
    static std::function<void()>& of(CLI::App& app) { return app.*(&Callbacks::final_callback_); }
  };
  void silence(CLI::App& app) {
    for (CLI::App* command : app.get_subcommands([](CLI::App*) { return true; })) {
      kept_.push_back(std::move(Callbacks::of(*command)));
      command->callback([] {});
      silence(*command);
    }
  }
  Global global_;
  CLI::App app_;
  std::vector<std::function<void()>> kept_;
};

TEST_F(LabCommand, EveryNextCommandParsesAndTheShortOnesRun) {
  // Those that only compute; the others serve, measure or write files.
  const std::set<std::string> short_ones{"predict", "machine", "tiles", "explain", "plan", "model"};
  for (const Experiment& e : experiments()) {
    const std::string next = e.next;
    ASSERT_TRUE(next.starts_with("ridge ")) << e.name << ": " << next;
    try {
      Parser().parse(next);
    } catch (const CLI::ParseError& error) {
      ADD_FAILURE() << e.name << ": " << next << ": " << error.what();
    }
    std::istringstream line(next);
    std::vector<std::string> words{std::istream_iterator<std::string>(line), {}};
    words.erase(words.begin());
    if (words.front() == "lab") {
      EXPECT_NO_THROW(find_experiment(words[1])) << next;
    }
    if (!short_ones.contains(words.front())) continue;
    EXPECT_TRUE(run(words).exited_with(0)) << e.name << ": " << next;
  }
}

TEST_F(LabCommand, TheParserOfTheseTestsRefusesWhatIsNoCommand) {
  EXPECT_THROW(Parser().parse("ridge predict MODEL --no-fusion"), CLI::ParseError);
  EXPECT_THROW(Parser().parse("ridge serve --no-such-option"), CLI::ParseError);
}

TEST_F(LabCommand, ListsTheMemoryOfEveryExperiment) {
  const Ended list = run({"lab", "--json"});
  ASSERT_TRUE(list.exited_with(0));
  for (const Json& e : Json::parse(list.out)) {
    if (!e["cpu"].get<bool>()) continue;
    EXPECT_GT(e["memory_bytes"].get<double>(), 0) << e["name"];
  }
}

}  // namespace
}  // namespace ridge
