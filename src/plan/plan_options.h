// What `ridge plan` is asked, and the way from there to an answer. The command line and the HTTP
// API both go through here.
#pragma once

#include <string>
#include <vector>

#include "plan/whatif.h"
#include "predict/request.h"

namespace ridge {

struct PlanOptions {
  PlanOptions() { request.machine.clear(); }  // all priced machines

  RequestOptions request;  // machines may carry a price: "8xh100-sxm=2.5,8xh200"
  std::string trace, settings, routing = "round-robin";
  std::string prompt = "1024", output = "256";  // lengths, see parse_length
  std::string ttft, itl, e2e;                   // targets; empty: none
  std::string interval, start_up = "120s";
  double percentile = 99, rate = 0, growth = 1, burstiness = 1, headroom = 20;
  int clients = 0, count = 0, max_machines = 64;
  int prefix_groups = 0, prefix_tokens = 0;
  uint64_t seed = 1;
  bool disaggregated = false;
};

// These throw OptionError where one option is at fault, else Error.
LatencyTargets latency_targets(const PlanOptions& options);
// Recorded or made requests, `file` in the place of options.trace where it is given.
Trace plan_traffic(const PlanOptions& options, const std::string& file = "");
// Targets, traffic and prices of a search.
PlanTask plan_task(const PlanOptions& options, Sources sources = Sources::names_and_files);
// What could serve it, prices left out of the machines' names.
std::vector<Request> plan_candidates(const PlanOptions& options,
                                     Sources sources = Sources::names_and_files,
                                     size_t max_points = kMaxSweepPoints);

// The search and everything about its best outcome. `done` counts candidates for progress.
PlanAnswer make_plan(const PlanOptions& options, const PlanTask& task,
                     const std::vector<Request>& candidates, std::atomic<size_t>* done = nullptr);

}  // namespace ridge
