// What clients see of a simulated endpoint.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/percentiles.h"

namespace ridge {

// One request that was served. Times are seconds on the clock of the workload.
struct ServedRequest {
  double arrival_s = 0, scheduled_s = 0, first_token_s = 0, finish_s = 0;
  int prompt = 1, output = 1;
  int cached_tokens = 0, preemptions = 0;
  int replica = 0;
  bool served = true;  // false: longer than the memory or the engine allows, refused

  double ttft_s() const { return first_token_s - arrival_s; }
  double e2e_s() const { return finish_s - arrival_s; }
  // Mean time between this request's tokens; 0 for a single token.
  double itl_s() const { return output > 1 ? (finish_s - first_token_s) / (output - 1) : 0; }
};

// Targets at a percentile of the requests; nothing: no target.
struct LatencyTargets {
  std::optional<double> ttft_s, itl_s, e2e_s;
  double percentile = 0.99;

  bool any() const { return ttft_s || itl_s || e2e_s; }
  bool met_by(const ServedRequest& request) const;
};

struct ServiceSummary {
  Percentiles ttft, itl, e2e;                        // seconds
  PercentileInterval ttft_tail, itl_tail, e2e_tail;  // at the targets' percentile
  size_t requests = 0, refused = 0;                  // counted after the warm-up
  double goodput = 0;                                // share of requests that meet all targets
  double duration_s = 0;                             // first arrival to last token
  double requests_per_s = 0, output_tokens_per_s = 0, prompt_tokens_per_s = 0;
  double cached_share = 0;  // of prompt tokens
  double preemptions = 0;   // in all

  // The first target that the percentile misses: "TTFT", "ITL", "E2E"; "length" where more requests
  // are refused than the percentile leaves out; empty: all are met.
  std::string missed(const LatencyTargets& targets) const;
  // The largest of percentile over target; 0 without targets.
  double worst_ratio(const LatencyTargets& targets) const;
};

// Served requests that arrive before `warm_up_s` fill the endpoint and are not counted.
ServiceSummary summarize_service(std::span<const ServedRequest> requests,
                                 const LatencyTargets& targets, double warm_up_s = 0);

}  // namespace ridge
