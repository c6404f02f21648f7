#include "ranks/mpi_failures.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>

#include "ranks/launcher.h"
#include "ranks/rank_processes.h"

namespace ridge {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

// A report as it travels.
struct ReportMessage {
  int rank, waits_for;
  char reason[504];
};

constexpr milliseconds kBetweenLooks{1};
// How long rank 0 may be busy between two of its looks before a report counts as not received.
constexpr milliseconds kUntilReceived{5000};
// Ranks that wait for each other pass their deadlines one after the other, within about a step.
constexpr milliseconds kToCollect{1000};

}  // namespace

const RankReport& nearest_to_cause(const std::vector<RankReport>& reports) {
  for (const RankReport& report : reports) {
    if (report.waits_for == RankReport::kNobody) return report;
  }
  for (const RankReport& report : reports) {
    const auto is_awaited = [&](const RankReport& other) { return other.rank == report.waits_for; };
    if (std::ranges::none_of(reports, is_awaited)) return report;
  }
  return reports.front();
}

std::string MpiFailures::failure() {
  if (rank_ == 0 && failure_.empty() && !closed_) {
    if (std::optional<RankReport> report = next_report()) choose(std::move(*report));
  }
  return failure_;
}

void MpiFailures::fail(RankReport report) {
  if (!failure_.empty()) return;
  if (rank_ == 0) {
    choose(std::move(report));
  } else {
    report_and_end(report);
  }
}

std::optional<RankReport> MpiFailures::next_report() {
  int found = 0;
  if (mpi_.iprobe(kMpiAnySource, tag_, mpi_.world, &found, nullptr) != 0 || found == 0) return {};
  ReportMessage message = {};
  const int received =
      mpi_.recv(&message, sizeof message, mpi_.byte, kMpiAnySource, tag_, mpi_.world, nullptr);
  if (received != 0) return {};
  return RankReport{message.rank, message.waits_for, message.reason};
}

void MpiFailures::choose(RankReport first) {
  std::vector<RankReport> reports{std::move(first)};
  const Clock::time_point end = Clock::now() + kToCollect;
  while (reports.back().waits_for != RankReport::kNobody && Clock::now() < end) {
    if (std::optional<RankReport> more = next_report()) {
      reports.push_back(std::move(*more));
    } else {
      std::this_thread::sleep_for(kBetweenLooks);
    }
  }
  failure_ = nearest_to_cause(reports).reason;
}

void MpiFailures::report_and_end(const RankReport& report) {
  failure_ = report.reason;
  ReportMessage message = {report.rank, report.waits_for, {}};
  std::strncpy(message.reason, report.reason.c_str(), sizeof message.reason - 1);
  MpiHandle request = nullptr;
  // A synchronous send: it is done when rank 0 has received it.
  const bool sent =
      mpi_.issend(&message, sizeof message, mpi_.byte, 0, tag_, mpi_.world, &request) == 0;
  // Where rank 0 does not receive, the ranks write one after the other: the first ends the rest.
  const Clock::time_point end = Clock::now() + kUntilReceived + report.rank * milliseconds(200);
  while (sent && Clock::now() < end) {
    int done = 0;
    if (mpi_.test(&request, &done, nullptr) != 0) break;
    if (done != 0) end_with_leader();
    std::this_thread::sleep_for(kBetweenLooks);
  }
  std::fprintf(stderr, "ridge: %s\n", report.reason.c_str());
  mpi_.abort(mpi_.world, kFailedRankExitCode);
  _exit(kFailedRankExitCode);
}

}  // namespace ridge
