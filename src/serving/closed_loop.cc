#include "serving/closed_loop.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "predict/step_times.h"

namespace ridge {
namespace {

constexpr double kRounds = 10;
constexpr double kLeastArrivals = 2000, kMostArrivals = 50000;  // where the load does not say

ServingPolicy endpoint_policy(const Request& r, const Load& load) {
  const double memory = r.system.device.memory().total_capacity().value_or(80e9);
  ServingPolicy policy = policy_of(r.stack.name, memory);
  const double budget = r.plan.chunk > 0 ? r.plan.chunk : r.stack.chunk;
  policy.max_tokens = static_cast<int>(std::max(budget, load.clients));
  // A closed loop never has more; arrivals at random may.
  const double most = load.rate > 0 ? 4 * load.clients + 16 : load.clients;
  policy.max_sequences = static_cast<int>(std::max(1.0, std::ceil(most / r.plan.dp)));
  policy.max_tokens = std::max(policy.max_tokens, policy.max_sequences);
  policy.prefix_cache = false;  // what the cache holds of a prompt is left out of it below
  policy.poll = std::max(1, static_cast<int>(load.poll));
  policy.wait = static_cast<int>(load.wait);
  return policy;
}

std::vector<SimulatedRequest> make_load(const Request& r, const Load& load) {
  const double clients = std::max(1.0, std::round(load.clients / r.plan.dp));
  const double rounds =
      load.rounds > 0 ? load.rounds : std::clamp(std::floor(kMostArrivals / clients), 1.0, kRounds);
  const double count =
      load.rate > 0 ? std::clamp(40 * clients, kLeastArrivals, kMostArrivals) : clients * rounds;
  SplitMix64 random(7);
  const auto length = [&](double mean) {
    const double share = 1 + load.spread * (2 * unit_interval(random.next()) - 1);
    return std::max(1, static_cast<int>(std::round(mean * share)));
  };
  double now = 0;
  std::vector<SimulatedRequest> requests(static_cast<size_t>(count));
  for (SimulatedRequest& request : requests) {
    request.prompt = length(load.prompt * (1 - r.plan.prefix_hit));
    request.output = length(load.output);
    if (load.rate > 0) {
      now -= std::log(1 - unit_interval(random.next())) / (load.rate / r.plan.dp);
      request.arrival_s = now;
    }
  }
  return requests;
}

}  // namespace

SimulatedLoad simulate_load(const Request& r, const Load& load) {
  SimulatedLoad out;
  out.requests = make_load(r, load);
  const ServingPolicy policy = endpoint_policy(r, load);
  Request sized = r;
  sized.prompt = load.prompt;
  sized.context = load.prompt + load.output / 2;
  const double longest = (load.prompt + load.output) * (1 + load.spread);
  const StepTimes clock(sized, policy.max_sequences, policy.max_tokens, longest);
  const int one = static_cast<int>(longest) / policy.page_tokens + 2;
  const int pages = std::max(one, kv_pages(sized, policy.page_tokens));
  const int clients = static_cast<int>(std::max(1.0, std::round(load.clients / r.plan.dp)));
  out.run = load.rate > 0 ? simulate(clock, policy, pages, out.requests)
                          : simulate_clients(clock, policy, pages, clients, out.requests);
  return out;
}

EndpointEstimate simulate_endpoint(const Request& r, const Load& load) {
  const SimulatedLoad simulated = simulate_load(r, load);
  EndpointEstimate e;
  e.running = simulated.run.summary.mean_running * r.plan.dp;
  double tokens = 0;
  for (size_t i = 0; i < simulated.requests.size(); ++i) {
    const RequestTimes& t = simulated.run.requests[i];
    const int output = simulated.requests[i].output;
    e.ttft_s += t.first_token_s - t.arrival_s;
    e.tpot_s += (t.finish_s - t.first_token_s) / std::max(1, output - 1);
    tokens += output;
  }
  e.ttft_s /= double(simulated.requests.size());
  e.tpot_s /= double(simulated.requests.size());
  e.tokens_per_s = tokens * r.plan.dp / simulated.run.summary.end_s;
  return e;
}

}  // namespace ridge
