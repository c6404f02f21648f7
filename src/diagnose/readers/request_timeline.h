// Requests with their times, as observations of the steady part of a run.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "diagnose/evidence.h"

namespace ridge {

// Times in seconds of a clock of the log; the arrival may be of another clock (since 1970).
struct LoggedRequest {
  std::optional<double> arrival, queued, scheduled, first, last;
  std::optional<double> ttft, e2e;  // seconds, where the log has them instead of times
  double prompt = 0, output = 0;
  bool failed = false;

  // It has a time that tells how long something took.
  bool timed() const { return first || last || ttft || e2e; }
};

// The steady part is from the first to the last moment in which at least half as many requests run
// as at most; what is before and after is warm-up and drain. Throws Error where no request has
// usable times.
EvidenceFile observe_requests(std::vector<LoggedRequest> requests, const std::string& name);

}  // namespace ridge
