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

// The requests of a log, of which it keeps 40 bytes each.
class RequestTimeline {
 public:
  void add(const LoggedRequest& request);
  size_t timed() const { return timed_; }  // requests that have a time
  // The steady part is from the first to the last moment in which at least half as many requests
  // run as at most; what is before and after is warm-up and drain. Throws Error where no request
  // has usable times.
  EvidenceFile finish(const std::string& name) const;

 private:
  // start <= run <= first <= last.
  struct Served {
    double start, first, last;  // start: arrived or queued
    float until_run;            // from the start: until it was scheduled, where that is known
    float prompt, output;

    double run() const { return start + double(until_run); }
  };
  struct SteadyPart;

  static std::optional<Served> served(const LoggedRequest& request);
  SteadyPart steady_part() const;
  void add_latencies(const SteadyPart& part, EvidenceFile& file) const;
  void add_load(const SteadyPart& part, EvidenceFile& file) const;

  std::vector<Served> done_;
  size_t requests_ = 0, timed_ = 0, failed_ = 0;
  // Requests whose latencies alone are known.
  size_t durations_ = 0;
  double ttft_ = 0, e2e_ = 0, per_token_s_ = 0, gaps_ = 0, prompt_ = 0, output_ = 0;
};

}  // namespace ridge
