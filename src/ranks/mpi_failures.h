// How the ranks of an MPI run end together, with one line for the user.
//
// A rank that cannot go on reports the reason to rank 0, whose error is the program's. Rank 0 looks
// for reports while it waits, chooses the one that names the cause, and ends; mpirun then ends the
// others. A rank whose report is not received writes its reason itself and aborts the run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ranks/mpi_library.h"

namespace ridge {

// Why a rank cannot go on.
struct RankReport {
  static constexpr int kNobody = -1;
  int rank = 0;
  int waits_for = kNobody;  // the rank that does not answer; kNobody: this rank itself failed
  std::string reason;
};

// The report nearest to the cause. A rank that failed comes before ranks that wait. Of those that
// wait, the one whose awaited rank reports nothing: it stands still, and the others wait for it
// through each other. There is at least one report.
const RankReport& nearest_to_cause(const std::vector<RankReport>& reports);

// Of the whole run: all communicators of a process share it.
class MpiFailures {
 public:
  MpiFailures(int rank, int tag) : rank_(rank), tag_(tag) {}

  // Why the run has failed; empty: it has not. Rank 0 looks for reports.
  std::string failure();
  const std::string& failure_so_far() const { return failure_; }  // without a look
  // On rank 0 the reason is kept. On the others this does not return.
  void fail(RankReport report);
  void close() { closed_ = true; }  // MPI has ended

 private:
  std::optional<RankReport> next_report();
  // Rank 0 collects the reports that follow the first one.
  void choose(RankReport first);
  [[noreturn]] void report_and_end(const RankReport& report);

  MpiLibrary& mpi_ = MpiLibrary::get();
  int rank_, tag_;
  bool closed_ = false;
  std::string failure_;
};

}  // namespace ridge
