// Ranks that are processes of one host, forked from their leader, rank 0.
#pragma once

#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

namespace ridge {

// Of a rank that ended because something failed.
inline constexpr int kFailedRankExitCode = 2;

// The processes of ranks 1, 2, ...; they end with this object.
class RankProcesses {
 public:
  // Forks ranks 1 to `ranks` - 1 from this process, which must have no other thread yet. Each runs
  // `body` on its share of the processors, and ends with it, or with the leader. Throws Error where
  // the system refuses; what was started ends.
  RankProcesses(int ranks, const std::function<void(int rank)>& body);
  // Waits for processes that were told to end, and kills those that do not.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Why a process that should run does not; empty: all run. Any thread may call it.
  std::string lost() const;

 private:
  void end_all();
  std::vector<pid_t> processes_;
};

// Ranks of one host share its processors: this thread, and the team that it makes, use those of
// `rank`. mpirun does so by itself.
void use_own_processors(int rank, int ranks);

// Ctrl-C reaches all processes of a terminal: the leader ends the others.
void leave_signals_to_leader();

}  // namespace ridge
