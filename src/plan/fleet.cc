#include "plan/fleet.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "base/error.h"
#include "base/parallel.h"

namespace ridge {
namespace {

constexpr std::string_view kRoutingNames[] = {"round-robin", "least-loaded", "prefix-aware"};

ServedRequest served_request(const SimulatedRequest& request, const RequestTimes& times,
                             int replica) {
  return {times.arrival_s, times.scheduled_s,   times.first_token_s, times.finish_s, request.prompt,
          request.output,  times.cached_tokens, times.preemptions,   replica,        true};
}

void add_summary(SimulationSummary& total, const SimulationSummary& s) {
  const double busy = total.busy_s + s.busy_s;
  if (busy > 0) {
    total.mean_running = (total.mean_running * total.busy_s + s.mean_running * s.busy_s) / busy;
  }
  total.steps += s.steps;
  total.busy_s = busy;
  total.end_s = std::max(total.end_s, s.end_s);
  total.peak_kv_share = std::max(total.peak_kv_share, s.peak_kv_share);
  total.preemptions += s.preemptions;
  total.max_waiting = std::max(total.max_waiting, s.max_waiting);
}

bool fits_pool(const Fleet& fleet, const SimulatedRequest& request) {
  const int64_t tokens = int64_t(request.prompt) + request.output;
  return tokens <= int64_t(fleet.pages) * fleet.policy.page_tokens;
}

// Requests and replicas of one simulation.
class FleetLoop {
 public:
  FleetLoop(const Fleet& fleet, std::span<const SimulatedRequest> requests, FleetRun& run)
      : fleet_(fleet), requests_(requests), run_(run), sent_to_(requests.size()) {
    for (int r = 0; r < fleet.replicas; ++r) {
      replicas_.emplace_back(*fleet.clock, fleet.policy, fleet.pages);
    }
  }

  void run_open(std::span<const size_t> order) {
    for (const size_t i : order) {
      const SimulatedRequest& request = requests_[i];
      if (fleet_.routing != RoutingRule::round_robin) advance(request.arrival_s);
      send(i, request);
    }
    advance(std::numeric_limits<double>::infinity());
    collect();
  }

  void run_closed(std::span<const size_t> order, int clients) {
    size_t next = 0;
    const auto send_next = [&](double time) {
      if (next == order.size()) return;
      const size_t i = order[next++];
      SimulatedRequest request = requests_[i];
      request.arrival_s = time;
      send(i, request);
    };
    for (int c = 0; c < clients; ++c) send_next(0);
    while (true) {
      double time = std::numeric_limits<double>::infinity();
      for (const SimulatedReplica& replica : replicas_) {
        time = std::min(time, replica.next_finish_s());
      }
      if (time == std::numeric_limits<double>::infinity()) break;
      advance(time);
      collect();
      for (const FinishedRequest& done : finished_) {
        send_next(std::max(time, done.times.finish_s));
      }
    }
  }

  void add_totals() {
    for (const SimulatedReplica& replica : replicas_) add_summary(run_.total, replica.summary());
  }

 private:
  void advance(double time) {
    for (SimulatedReplica& replica : replicas_) replica.advance_to(time);
  }

  void send(size_t i, const SimulatedRequest& request) {
    const int to = route(request);
    sent_to_[i] = to;
    replicas_[size_t(to)].add(i, request);
  }

  int route(const SimulatedRequest& request) {
    if (fleet_.routing == RoutingRule::round_robin) return int(turn_++ % replicas_.size());
    size_t best = 0;
    double least = std::numeric_limits<double>::infinity();
    for (size_t r = 0; r < replicas_.size(); ++r) {
      double tokens = replicas_[r].outstanding_tokens();
      if (fleet_.routing == RoutingRule::prefix_aware) {
        tokens -= replicas_[r].cached_tokens(request.blocks);
      }
      if (tokens < least) {
        least = tokens;
        best = r;
      }
    }
    return int(best);
  }

  void collect() {
    finished_.clear();
    for (SimulatedReplica& replica : replicas_) replica.take_finished(finished_);
    std::stable_sort(finished_.begin(), finished_.end(),
                     [](const FinishedRequest& a, const FinishedRequest& b) {
                       return a.times.finish_s < b.times.finish_s;
                     });
    for (const FinishedRequest& done : finished_) {
      run_.requests[done.request] =
          served_request(requests_[done.request], done.times, sent_to_[done.request]);
    }
  }

  const Fleet& fleet_;
  std::span<const SimulatedRequest> requests_;
  FleetRun& run_;
  std::vector<int> sent_to_;
  std::vector<SimulatedReplica> replicas_;
  std::vector<FinishedRequest> finished_;
  size_t turn_ = 0;
};

// Round robin does not look at the replicas: each runs by itself.
void run_apart(const Fleet& fleet, std::span<const SimulatedRequest> requests,
               std::span<const size_t> order, bool threads, FleetRun& run) {
  const size_t replicas = size_t(fleet.replicas);
  std::vector<SimulationSummary> summaries(replicas);
  const auto one = [&](size_t r) {
    SimulatedReplica replica(*fleet.clock, fleet.policy, fleet.pages);
    for (size_t k = r; k < order.size(); k += replicas) replica.add(order[k], requests[order[k]]);
    replica.advance_to(std::numeric_limits<double>::infinity());
    std::vector<FinishedRequest> finished;
    replica.take_finished(finished);
    for (const FinishedRequest& done : finished) {
      run.requests[done.request] = served_request(requests[done.request], done.times, int(r));
    }
    summaries[r] = replica.summary();
  };
  if (threads) {
    parallel_for(replicas, one);
  } else {
    for (size_t r = 0; r < replicas; ++r) one(r);
  }
  for (const SimulationSummary& summary : summaries) add_summary(run.total, summary);
}

// A decode replica's clock: a prompt that arrives with its keys and values costs what a decoding
// sequence of its length does.
class DecodeClock : public StepClock {
 public:
  explicit DecodeClock(const StepClock& clock) : clock_(clock) {}
  double step(double decodes, double context,
              std::span<const PromptChunk> chunks = {}) const override {
    for (const PromptChunk& chunk : chunks) context += chunk.fresh + chunk.past;
    return clock_.step(decodes + double(chunks.size()), context);
  }
  double linear_until(double decodes, double context) const override {
    return clock_.linear_until(decodes, context);
  }
  double first_token_overhead() const override { return 0; }

 private:
  const StepClock& clock_;
};

FleetRun simulate_disaggregated(const Fleet& fleet, std::span<const SimulatedRequest> requests) {
  Fleet prefill = fleet, decode = fleet;
  prefill.replicas = fleet.prefill_replicas;
  decode.replicas = fleet.replicas - fleet.prefill_replicas;
  prefill.prefill_replicas = decode.prefill_replicas = 0;
  // A decode replica gets whole prompts, at once, and computes none.
  const DecodeClock decode_clock(*fleet.clock);
  decode.clock = &decode_clock;
  decode.policy.max_tokens = std::numeric_limits<int>::max() / 2;
  decode.policy.mixed = decode.policy.chunked = true;
  decode.policy.prefix_cache = false;
  decode.policy.wait = 0;

  std::vector<SimulatedRequest> prompts(requests.begin(), requests.end());
  for (SimulatedRequest& prompt : prompts) prompt.output = 1;
  FleetRun run = simulate_fleet(prefill, prompts);
  std::vector<size_t> order;
  for (size_t i = 0; i < requests.size(); ++i) {
    run.requests[i].output = requests[i].output;
    run.requests[i].served = run.requests[i].served && fits_pool(decode, requests[i]);
    if (run.requests[i].served && requests[i].output > 1) order.push_back(i);
  }
  std::vector<SimulatedRequest> answers;
  const auto handed_over = [&](size_t i) {
    return run.requests[i].first_token_s + fleet.transfer_s_per_token * requests[i].prompt;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return handed_over(a) < handed_over(b); });
  for (const size_t i : order) {
    SimulatedRequest& answer = answers.emplace_back();
    answer.arrival_s = handed_over(i);
    answer.prompt = requests[i].prompt + 1;  // the first token is drawn
    answer.output = requests[i].output - 1;
  }
  const FleetRun decoded = simulate_fleet(decode, answers);
  for (size_t k = 0; k < order.size(); ++k) {
    ServedRequest& request = run.requests[order[k]];
    request.finish_s = decoded.requests[k].finish_s;
    request.preemptions += decoded.requests[k].preemptions;
    request.replica = prefill.replicas + decoded.requests[k].replica;
  }
  add_summary(run.total, decoded.total);
  return run;
}

}  // namespace

std::string_view routing_name(RoutingRule routing) { return kRoutingNames[size_t(routing)]; }

RoutingRule parse_routing(std::string_view name) {
  for (size_t i = 0; i < std::size(kRoutingNames); ++i) {
    if (name == kRoutingNames[i]) return RoutingRule(i);
  }
  throw OptionError("routing", fmt::format("--routing {}: round-robin, least-loaded or "
                                           "prefix-aware",
                                           name));
}

FleetRun simulate_fleet(const Fleet& fleet, std::span<const SimulatedRequest> requests, int clients,
                        bool threads) {
  if (fleet.prefill_replicas > 0) return simulate_disaggregated(fleet, requests);
  FleetRun run;
  run.requests.resize(requests.size());
  std::vector<size_t> order;
  order.reserve(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    if (fits_pool(fleet, requests[i])) {
      order.push_back(i);
      continue;
    }
    ServedRequest& refused = run.requests[i];
    refused.arrival_s = refused.scheduled_s = refused.first_token_s = refused.finish_s =
        requests[i].arrival_s;
    refused.prompt = requests[i].prompt;
    refused.output = requests[i].output;
    refused.served = false;
  }
  if (clients <= 0 && (fleet.routing == RoutingRule::round_robin || fleet.replicas == 1)) {
    run_apart(fleet, requests, order, threads, run);
    return run;
  }
  FleetLoop loop(fleet, requests, run);
  if (clients > 0) {
    loop.run_closed(order, clients);
  } else {
    loop.run_open(order);
  }
  loop.add_totals();
  return run;
}

}  // namespace ridge
