// Programs that a test starts, watches and ends.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/wait_until.h"

namespace ridge {

enum class ProgramInput : bool { inherited, written };  // written: by say()

// A program with its output, errors included. Killed at the end of its scope.
class RunningProgram {
 public:
  explicit RunningProgram(std::vector<std::string> words,
                          ProgramInput input = ProgramInput::inherited) {
    int ends[2], in[2] = {-1, -1};
    if (pipe(ends) != 0 || (input == ProgramInput::written && pipe(in) != 0)) return;
    process_ = fork();
    if (process_ == 0) {
      if (input == ProgramInput::written) {
        dup2(in[0], STDIN_FILENO);
        close(in[0]);
        close(in[1]);
      }
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      close(ends[0]);
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      execvp(arguments[0], arguments.data());
      _exit(127);
    }
    close(ends[1]);
    if (input == ProgramInput::written) close(in[0]);
    input_ = in[1];
    output_ = ends[0];
    fcntl(output_, F_SETFL, O_NONBLOCK);
  }
  ~RunningProgram() {
    if (process_ > 0 && !ended_) {
      kill(process_, SIGKILL);
      waitpid(process_, nullptr, 0);
    }
    close(output_);
    if (input_ >= 0) close(input_);
  }
  RunningProgram(const RunningProgram&) = delete;
  RunningProgram& operator=(const RunningProgram&) = delete;

  pid_t process() const { return process_; }
  const std::string& text() const { return text_; }
  void say(const std::string& line) {
    const std::string text = line + "\n";
    EXPECT_EQ(write(input_, text.data(), text.size()), ssize_t(text.size()));
  }
  // Whether the output has come to contain `part` within the patience of a test.
  bool wait_for_text(const std::string& part) {
    return bool(wait_until(part, [&] {
      read_some();
      return text_.find(part) != std::string::npos;
    }));
  }
  // Whether so many bytes were written within the limit.
  bool wait_for_output(size_t bytes, std::chrono::steady_clock::duration limit = kPatience) {
    const auto end = std::chrono::steady_clock::now() + limit;
    siginfo_t info{};
    while (text_.size() < bytes && std::chrono::steady_clock::now() < end && info.si_pid == 0) {
      read_some();
      waitid(P_PID, id_t(process_), &info, WEXITED | WNOHANG | WNOWAIT);
    }
    return text_.size() >= bytes;
  }
  // The exit code; -1 where it did not end within the limit, 128 + the signal where one ended it.
  int wait(std::chrono::steady_clock::duration limit = kPatience) {
    const auto end = std::chrono::steady_clock::now() + limit;
    int status = 0;
    while (!ended_ && std::chrono::steady_clock::now() < end) {
      read_some();
      ended_ = waitpid(process_, &status, WNOHANG) == process_;
    }
    read_some();
    if (!ended_) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  std::vector<pid_t> children() const {
    std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", process_));
    std::vector<pid_t> found;
    for (pid_t child = 0; file >> child;) found.push_back(child);
    return found;
  }

 private:
  void read_some() {
    char buffer[4096];
    ssize_t got = 0;
    while ((got = read(output_, buffer, sizeof buffer)) > 0) text_.append(buffer, size_t(got));
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  pid_t process_ = -1;
  int input_ = -1, output_ = -1;
  bool ended_ = false;
  std::string text_;
};

inline std::vector<std::string> under_mpi(const std::string& processes,
                                          std::vector<std::string> words) {
  // As root in a container, with more ranks than cores.
  // Open MPI leaks at its end, which a build with sanitizers would take for ours.
  // Without ssh it refuses to start, though it would not need it here.
  std::vector<std::string> all{"env",
                               "ASAN_OPTIONS=detect_leaks=0",
                               "OMPI_MCA_plm_rsh_agent=/bin/true",
                               "mpirun",
                               "--allow-run-as-root",
                               "--oversubscribe",
                               "-n",
                               processes};
  all.insert(all.end(), words.begin(), words.end());
  return all;
}

}  // namespace ridge
