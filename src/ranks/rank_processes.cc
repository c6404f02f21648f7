#include "ranks/rank_processes.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <thread>

#include "base/affinity.h"
#include "base/error.h"

namespace ridge {

RankProcesses::RankProcesses(int ranks, const std::function<void(int rank)>& body) {
  std::fflush(nullptr);           // or every rank would write what is still in the buffers
  std::signal(SIGCHLD, SIG_DFL);  // ignored, it would hide how a rank ended
  const pid_t leader = getpid();
  for (int rank = 1; rank < ranks; ++rank) {
    const pid_t process = fork();
    if (process < 0) {
      const int why = errno;
      end_all();
      throw Error("rank {} could not be started: {}", rank, std::strerror(why));
    }
    if (process == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != leader) _exit(kFailedRankExitCode);  // it ended before it could be watched
      use_own_processors(rank, ranks);
      body(rank);
      _exit(0);
    }
    processes_.push_back(process);
  }
}

RankProcesses::~RankProcesses() { end_all(); }

void RankProcesses::end_all() {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(2);
  for (const pid_t process : processes_) {
    while (waitpid(process, nullptr, WNOHANG) == 0) {
      if (std::chrono::steady_clock::now() > limit) kill(process, SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
}

std::string RankProcesses::lost() const {
  for (size_t i = 0; i < processes_.size(); ++i) {
    siginfo_t info{};
    const auto id = static_cast<id_t>(processes_[i]);
    const int looked = waitid(P_PID, id, &info, WEXITED | WNOHANG | WNOWAIT);
    if (looked != 0) return fmt::format("rank {} has ended", i + 1);
    if (info.si_pid == 0) continue;
    if (info.si_code == CLD_EXITED) {
      return fmt::format("rank {} ended with exit code {}", i + 1, info.si_status);
    }
    return fmt::format("rank {} was killed by signal {} ({})", i + 1, info.si_status,
                       strsignal(info.si_status));
  }
  return {};
}

void use_own_processors(int rank, int ranks) {
  // Not logical processors: siblings of one core would fall to different ranks.
  const std::vector<int> all = one_per_core(usable_processors());
  const size_t count = all.size(), share = count / size_t(ranks);
  cpu_set_t mine;
  CPU_ZERO(&mine);
  if (share == 0) {
    CPU_SET(size_t(all[size_t(rank) % count]), &mine);
  } else {
    for (size_t i = 0; i < share; ++i) CPU_SET(size_t(all[size_t(rank) * share + i]), &mine);
  }
  sched_setaffinity(0, sizeof mine, &mine);  // refused: ranks and processors meet by chance
}

void leave_signals_to_leader() {
  std::signal(SIGINT, SIG_IGN);
  std::signal(SIGTERM, SIG_IGN);
}

}  // namespace ridge
