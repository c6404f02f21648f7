#include "plan/endpoint.h"

#include <algorithm>
#include <vector>

#include "serving/closed_loop.h"

namespace ridge {
namespace {

// Requests of one length would stay in step for ever, and their prompts meet each time.
constexpr double kSpread = 0.2;

Json times_json(const Percentiles& p) {
  return {{"mean", p.mean}, {"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}};
}

}  // namespace

ServiceSummary simulate_service(const Request& r) {
  Load asked = endpoint_load(r);
  asked.spread = kSpread;
  const SimulatedLoad load = simulate_load(r, asked);
  std::vector<ServedRequest> served(load.requests.size());
  for (size_t i = 0; i < served.size(); ++i) {
    const RequestTimes& t = load.run.requests[i];
    served[i].arrival_s = t.arrival_s;
    served[i].scheduled_s = t.scheduled_s;
    served[i].first_token_s = t.first_token_s;
    served[i].finish_s = t.finish_s;
    served[i].prompt = load.requests[i].prompt;
    served[i].output = load.requests[i].output;
  }
  // A closed loop's first requests are its clients'.
  const size_t first = r.rate ? served.size() / 10 : static_cast<size_t>(*r.clients / r.plan.dp);
  const double warm_up = served[std::min(first, served.size() - 1)].arrival_s;
  ServiceSummary summary = summarize_service(served, {}, warm_up);
  summary.requests_per_s *= r.plan.dp;
  summary.output_tokens_per_s *= r.plan.dp;
  summary.prompt_tokens_per_s *= r.plan.dp;
  return summary;
}

Json simulated_json(const ServiceSummary& s) {
  return {{"ttft_s", times_json(s.ttft)},       {"itl_s", times_json(s.itl)},
          {"e2e_s", times_json(s.e2e)},         {"requests", s.requests},
          {"requests_per_s", s.requests_per_s}, {"output_tokens_per_s", s.output_tokens_per_s},
          {"preemptions", s.preemptions}};
}

}  // namespace ridge
