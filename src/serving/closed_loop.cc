#include "serving/closed_loop.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "predict/step_times.h"
#include "serving/simulation.h"

namespace ridge {
namespace {

constexpr double kRounds = 10;

}  // namespace

ServingPolicy endpoint_policy(const Request& r, const Load& load) {
  ServingPolicy policy =
      policy_of(r.stack.name, r.system.device.memory().total_capacity().value_or(80e9));
  const double budget = r.plan.chunk > 0 ? r.plan.chunk : r.stack.chunk;
  policy.max_tokens = static_cast<int>(std::max(budget, load.clients));
  policy.max_sequences = static_cast<int>(std::max(1.0, load.clients));
  policy.prefix_cache = false;  // every prompt is new
  policy.poll = std::max(1, static_cast<int>(load.poll));
  policy.wait = static_cast<int>(load.wait);
  return policy;
}

EndpointEstimate simulate_endpoint(const Request& r, const Load& load) {
  const double clients = std::max(1.0, std::round(load.clients / r.plan.dp));
  const double rounds = load.rounds > 0 ? load.rounds : kRounds;
  ServingPolicy policy = endpoint_policy(r, load);
  policy.max_sequences = static_cast<int>(clients);

  SplitMix64 random(7);
  const auto length = [&](double mean) {
    const double share = 1 + load.spread * (2 * unit_interval(random.next()) - 1);
    return std::max(1, static_cast<int>(std::round(mean * share)));
  };
  std::vector<SimulatedRequest> requests(static_cast<size_t>(clients * rounds));
  for (SimulatedRequest& request : requests) {
    request.prompt = length(load.prompt);
    request.output = std::max(2, length(load.output));
  }
  Request sized = r;
  sized.prompt = load.prompt;
  sized.context = load.prompt + load.output / 2;
  const double longest = (load.prompt + load.output) * (1 + load.spread);
  const StepTimes clock(sized, clients, policy.max_tokens, longest);
  const int one = static_cast<int>(longest) / policy.page_tokens + 2;
  const int pages = std::max(one, kv_pages(sized, policy.page_tokens));
  const SimulationResult run =
      simulate_clients(clock, policy, pages, static_cast<int>(clients), requests);

  EndpointEstimate e;
  e.running = run.summary.mean_running * r.plan.dp;
  double tokens = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    const RequestTimes& t = run.requests[i];
    e.ttft_s += t.first_token_s - t.arrival_s;
    e.tpot_s += (t.finish_s - t.first_token_s) / (requests[i].output - 1);
    tokens += requests[i].output;
  }
  e.ttft_s /= double(requests.size());
  e.tpot_s /= double(requests.size());
  e.tokens_per_s = tokens * r.plan.dp / run.summary.end_s;
  return e;
}

}  // namespace ridge
