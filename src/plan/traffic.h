// The requests that a plan must serve: a recorded trace or made ones, and how they could change.
#pragma once

#include <string>
#include <vector>

#include "load/workload.h"
#include "serving/simulation.h"

namespace ridge {

struct TrafficOptions {
  std::string trace;      // a file that read_trace takes; empty: made
  double rate = 0;        // requests/s; 0: as in the trace, or all at once
  double burstiness = 1;  // of made arrivals, see WorkloadOptions; kEvenArrivals: a constant gap
  LengthSpec prompt, output;                 // of made requests
  int requests = 0;                          // made; with a trace 0 takes all, else the first ones
  int prefix_groups = 0, prefix_tokens = 0;  // made prompts of a group begin with the same tokens
  uint64_t seed = 1;
};
inline constexpr double kEvenArrivals = 1e4;

// The same options give the same requests. Throws Error for bad files.
Trace make_traffic(const TrafficOptions& options);

// "19366 requests in 58 m 22 s, 5.53/s, prompts 1155 tokens on average, answers 211"
std::string traffic_words(const Trace& traffic);

// Prompt and answer of the longest request together.
int longest_request(const Trace& traffic);

// As the simulator takes them: prefix blocks cut again to the pages of a policy. Only pages that
// the prompt fills are named.
std::vector<SimulatedRequest> simulated_requests(const Trace& traffic, int page_tokens);

// Changes for "what if": arrivals `factor` times as fast, all lengths times `factor`, and arrivals
// of every 30 seconds pressed into the first 30 / factor ones.
Trace with_rate(Trace traffic, double factor);
Trace with_lengths(Trace traffic, double factor);
Trace with_bursts(Trace traffic, double factor);
// The requests that arrive in [begin, end) seconds, at their times after `begin`.
Trace between(const Trace& traffic, double begin_s, double end_s);

}  // namespace ridge
