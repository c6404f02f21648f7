#include "plan/endpoint.h"

#include <vector>

#include "serving/closed_loop.h"

namespace ridge {
namespace {

Json times_json(const Percentiles& p) {
  return {{"mean", p.mean}, {"p50", p.p50}, {"p90", p.p90}, {"p99", p.p99}};
}

}  // namespace

ServiceSummary simulate_service(const Request& r) {
  const SimulatedLoad load = simulate_load(r, endpoint_load(r));
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
  const double warm_up = r.rate ? load.requests[load.requests.size() / 10].arrival_s : 0;
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
