#include "plan/search.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "base/error.h"
#include "base/parallel.h"
#include "base/units.h"
#include "plan/bounds.h"

namespace ridge {
namespace {

// Token budgets that are tried where a target is missed with the engine's own: smaller steps delay
// the other sequences' tokens less.
constexpr int kSmallBudgets[] = {2048, 512};

std::optional<double> device_price(const PlanTask& task, const Request& request) {
  const auto given = task.prices.find(request.system.device.name);
  if (given != task.prices.end()) return given->second;
  return request.price_per_hour ? request.price_per_hour : request.system.device.price_per_hour;
}

void set_machines(const PlanTask& task, PlanOutcome& outcome, int machines) {
  outcome.machines = machines;
  const std::optional<double> price = device_price(task, outcome.request);
  if (price) outcome.dollars_per_hour = *price * outcome.devices();
}

// Seconds that a token's keys and values take from one replica to another, over the network where
// the machine has one, else over the link between its devices.
double transfer_time(const Request& request) {
  constexpr double kUnknownLink = 25e9;  // bytes/s, 200 Gbit/s
  const Machine& device = request.system.device;
  Maybe bandwidth;
  for (const Level& level : device.levels) {
    if (level.scope == Scope::network) bandwidth = level.read_bandwidth;
  }
  if (!bandwidth && !device.links.empty()) bandwidth = device.links.front().bandwidth;
  const Format& kv = request.plan.kv ? *request.plan.kv : request.model->kv_format;
  return kv_bytes_per_token(*request.model, kv) /
         (bandwidth.value_or(kUnknownLink) * request.plan.tp * request.plan.pp);
}

std::string over_target(const char* what, double seconds, double target) {
  return fmt::format("{} is {} at best, target {}", what, pretty_time(seconds),
                     pretty_time(target));
}

// Why the bounds discard a candidate; empty: they do not.
std::string hopeless(const PlanTask& task, const PlanBounds& bounds) {
  const LatencyTargets& t = task.targets;
  if (t.ttft_s && bounds.ttft_s > *t.ttft_s) return over_target("TTFT", bounds.ttft_s, *t.ttft_s);
  if (t.itl_s && bounds.itl_s > *t.itl_s) return over_target("ITL", bounds.itl_s, *t.itl_s);
  return {};
}

std::string missed_words(const PlanTask& task, const PlanOutcome& outcome) {
  const std::string missed = outcome.service.missed(task.targets);
  const ServiceSummary& s = outcome.service;
  const auto words = [&](const PercentileInterval& tail, const std::optional<double>& target) {
    return fmt::format("p{:g} {} is {} on {} machines, target {}", 100 * task.targets.percentile,
                       missed, pretty_time(tail.value), outcome.machines,
                       pretty_time(target.value_or(0)));
  };
  if (missed == "length") {
    return fmt::format("{} requests are longer than the KV cache of {} tokens", s.refused,
                       pretty_count(outcome.replica.kv_tokens()));
  }
  if (missed == "TTFT") return words(s.ttft_tail, task.targets.ttft_s);
  if (missed == "ITL") return words(s.itl_tail, task.targets.itl_s);
  if (missed == "E2E") return words(s.e2e_tail, task.targets.e2e_s);
  return fmt::format("meets the targets, but not with {:.0f} % more load, on {} machines",
                     100 * task.headroom, outcome.machines);
}

// Where the warm-up of a closed loop ends. At least half of the requests are counted: all clients
// send their first one at 0, and that may be all there is.
double closed_warm_up(const FleetRun& run, double share) {
  std::vector<double> arrivals;
  for (const ServedRequest& request : run.requests) {
    if (request.served) arrivals.push_back(request.arrival_s);
  }
  if (arrivals.empty()) return 0;
  const auto middle = arrivals.begin() + long(arrivals.size() / 2);
  std::nth_element(arrivals.begin(), middle, arrivals.end());
  return std::min(share * run.total.end_s, *middle);
}

// The requests of a task for one page size, and the same with headroom.
struct TaskRequests {
  std::vector<SimulatedRequest> now, more;
  int clients_now = 0, clients_more = 0;
};

TaskRequests task_requests(const PlanTask& task, int page_tokens) {
  TaskRequests requests;
  requests.now = simulated_requests(task.traffic, page_tokens);
  requests.more = requests.now;
  const double factor = 1 + task.headroom;
  if (task.clients > 0) {
    requests.clients_now = task.clients;
    requests.clients_more = int(std::ceil(task.clients * factor));
  } else {
    const double first = requests.now.front().arrival_s;
    for (SimulatedRequest& r : requests.more) r.arrival_s = first + (r.arrival_s - first) / factor;
  }
  return requests;
}

void serve_traffic(const PlanTask& task, const TaskRequests& requests, PlanOutcome& outcome) {
  const PlanTrial trial =
      try_fleet(task, outcome, outcome.machines, requests.now, requests.clients_now);
  outcome.service = trial.service;
  outcome.load = trial.load;
  outcome.prefill_replicas = trial.prefill_replicas;
}

// Smaller steps, where they need fewer machines.
void try_small_budgets(const PlanTask& task, const TaskRequests& requests, PlanOutcome& outcome) {
  for (const int budget : kSmallBudgets) {
    const int most = outcome.meets ? outcome.machines - 1 : task.max_machines;
    const ServingPolicy& policy = outcome.replica.policy;
    if (most < 1 || budget >= policy.max_tokens || !policy.chunked) continue;
    PlanOutcome other = outcome;
    other.replica.policy.max_tokens = budget;
    other.replica.policy.max_sequences = std::min(budget, policy.max_sequences);
    const int needed =
        machines_needed(task, other, requests.more, requests.clients_more, most, most);
    if (needed == 0) continue;
    other.meets = true;
    set_machines(task, other, needed);
    outcome = std::move(other);
  }
}

void solve_candidate(const PlanTask& task, const std::map<int, TaskRequests>& by_page, int longest,
                     PlanOutcome& outcome) {
  try {
    outcome.replica = make_replica(outcome.request, task.settings, longest);
  } catch (const Error& error) {
    outcome.reason = error.what();
    return;
  }
  if (outcome.replica.pages == 0) {
    outcome.reason = "the weights do not fit";
    return;
  }
  const PlanBounds bounds = plan_bounds(outcome.replica, task.traffic, task.targets.percentile);
  outcome.reason = hopeless(task, bounds);
  if (!outcome.reason.empty()) return;
  const double rate = task.clients > 0 ? 0 : task.traffic.requests_per_s();
  const double machines = rate / (bounds.requests_per_s * outcome.replicas_per_machine());
  if (machines > task.max_machines) {
    outcome.reason = fmt::format("{:.0f} machines at least for {} requests/s", std::ceil(machines),
                                 pretty_number(rate));
    return;
  }
  outcome.prefill_share = bounds.prefill_share;
  const TaskRequests& requests = by_page.at(outcome.replica.policy.page_tokens);
  const int guess = std::clamp(int(std::ceil(1.5 * machines)), 1, task.max_machines);
  const int needed = machines_needed(task, outcome, requests.more, requests.clients_more, guess,
                                     task.max_machines);
  outcome.meets = needed > 0;
  set_machines(task, outcome, needed > 0 ? needed : task.max_machines);
  try_small_budgets(task, requests, outcome);
  // A simulation of minutes may not show a slow overload; the bound on the rate holds for ever.
  const int least = std::min(int(std::ceil(machines * (1 + task.headroom))), task.max_machines);
  if (outcome.machines < least) set_machines(task, outcome, least);
  serve_traffic(task, requests, outcome);
  if (!outcome.meets) outcome.reason = missed_words(task, outcome);
}

bool better(const PlanOutcome& a, const PlanOutcome& b) {
  if (a.meets != b.meets) return a.meets;
  if ((a.machines > 0) != (b.machines > 0)) return a.machines > 0;
  if (a.dollars_per_hour.has_value() != b.dollars_per_hour.has_value()) {
    return a.dollars_per_hour.has_value();
  }
  if (plan_cost(a) != plan_cost(b)) return plan_cost(a) < plan_cost(b);
  return a.service.e2e.mean < b.service.e2e.mean;
}

// Marks what nothing else beats in cost, TTFT and ITL together; says why the others lost.
void mark_front(std::vector<PlanOutcome>& outcomes) {
  for (PlanOutcome& outcome : outcomes) {
    if (!outcome.meets) continue;
    outcome.on_front = true;
    for (const PlanOutcome& other : outcomes) {
      const auto as_good = [](const PlanOutcome& a, const PlanOutcome& b) {
        return plan_cost(a) <= plan_cost(b) &&
               a.service.ttft_tail.value <= b.service.ttft_tail.value &&
               a.service.itl_tail.value <= b.service.itl_tail.value;
      };
      const bool comparable =
          other.meets && other.dollars_per_hour.has_value() == outcome.dollars_per_hour.has_value();
      if (comparable && as_good(other, outcome) && !as_good(outcome, other)) {
        outcome.on_front = false;
      }
    }
    const PlanOutcome& best = outcomes.front();
    if (&outcome == &best) continue;
    if (outcome.service.ttft_tail.value >= best.service.ttft_tail.value &&
        outcome.service.itl_tail.value >= best.service.itl_tail.value) {
      outcome.on_front = false;
    }
    if (best.dollars_per_hour && !outcome.dollars_per_hour) {
      outcome.reason = "price unknown";
    } else if (plan_cost(outcome) > plan_cost(best)) {
      outcome.reason =
          fmt::format("costs {:.0f} % more", 100 * (plan_cost(outcome) / plan_cost(best) - 1));
    } else {
      outcome.reason = "costs the same, whole answers later";
    }
  }
}

}  // namespace

int PlanOutcome::replicas_per_machine() const {
  return std::max(1, request.system.devices() / (request.plan.tp * request.plan.pp));
}

std::optional<double> PlanOutcome::watts() const {
  const Maybe power = request.system.device.power;
  return power ? std::optional(*power * devices()) : std::nullopt;
}

double plan_cost(const PlanOutcome& outcome) {
  return outcome.dollars_per_hour.value_or(outcome.devices());
}

namespace {

// A clock of replicas that looks at the search's limits.
class LimitedClock final : public StepClock {
 public:
  LimitedClock(const StepClock& clock, const std::function<void()>& check_limits)
      : clock_(clock), check_limits_(check_limits) {
    check_limits_();
  }
  double step(double decodes, double context, std::span<const PromptChunk> chunks) const override {
    constexpr uint32_t kStepsPerLook = 1024;
    if (steps_.fetch_add(1, std::memory_order_relaxed) % kStepsPerLook == 0) check_limits_();
    return clock_.step(decodes, context, chunks);
  }
  double linear_until(double decodes, double context) const override {
    return clock_.linear_until(decodes, context);
  }
  double first_token_overhead() const override { return clock_.first_token_overhead(); }

 private:
  const StepClock& clock_;
  const std::function<void()>& check_limits_;
  mutable std::atomic<uint32_t> steps_ = 0;  // replicas run side by side
};

}  // namespace

PlanTrial try_fleet(const PlanTask& task, const PlanOutcome& outcome, int machines,
                    const std::vector<SimulatedRequest>& requests, int clients) {
  Fleet fleet = outcome.replica.fleet(machines * outcome.replicas_per_machine(), task.routing);
  std::optional<LimitedClock> clock;
  if (task.check_limits) fleet.clock = &clock.emplace(*fleet.clock, task.check_limits);
  const auto trial = [&] {
    const FleetRun run = simulate_fleet(fleet, requests, clients);
    const double begin = requests.front().arrival_s, end = requests.back().arrival_s;
    const double warm_up = clients > 0 ? closed_warm_up(run, task.warm_up_share)
                                       : begin + task.warm_up_share * (end - begin);
    return PlanTrial{summarize_service(run.requests, task.targets, warm_up), run.total,
                     fleet.prefill_replicas};
  };
  if (!outcome.disaggregated || fleet.replicas < 2) return trial();
  // As many replicas for prompts as their share of the time, one fewer and one more.
  fleet.transfer_s_per_token = transfer_time(outcome.request);
  const int share = int(std::lround(outcome.prefill_share * fleet.replicas));
  std::optional<PlanTrial> best;
  for (int prefill = std::max(1, share - 1);
       prefill <= std::min(std::max(share, 1) + 1, fleet.replicas - 1); ++prefill) {
    fleet.prefill_replicas = prefill;
    PlanTrial other = trial();
    if (!best ||
        other.service.worst_ratio(task.targets) < best->service.worst_ratio(task.targets)) {
      best = std::move(other);
    }
  }
  return best ? *best : trial();
}

int machines_needed(const PlanTask& task, const PlanOutcome& outcome,
                    const std::vector<SimulatedRequest>& requests, int clients, int guess,
                    int most) {
  const auto suffices = [&](int machines) {
    // Prompts and answers cannot run on different replicas of one.
    if (outcome.disaggregated && machines * outcome.replicas_per_machine() < 2) return false;
    return try_fleet(task, outcome, machines, requests, clients)
        .service.missed(task.targets)
        .empty();
  };
  int too_few = 0, machines = std::min(guess, most);
  while (!suffices(machines)) {
    if (machines == most) return 0;
    too_few = machines;
    machines = std::min(2 * machines, most);
  }
  int enough = machines;
  while (enough - too_few > 1) {
    const int middle = too_few + (enough - too_few) / 2;
    (suffices(middle) ? enough : too_few) = middle;
  }
  return enough;
}

PlanReport search_plan(const PlanTask& task, const std::vector<Request>& candidates,
                       std::atomic<size_t>* done) {
  PlanReport report;
  std::map<int, TaskRequests> by_page;
  for (const Request& candidate : candidates) {
    report.outcomes.emplace_back().request = candidate;
    const int page = replica_policy(candidate, task.settings).page_tokens;
    if (!by_page.count(page)) by_page[page] = task_requests(task, page);
    if (!task.disaggregated || task.clients > 0) continue;
    report.outcomes.emplace_back().request = candidate;
    report.outcomes.back().disaggregated = true;
  }
  const int longest = longest_request(task.traffic);
  parallel_for(report.outcomes.size(), [&](size_t i) {
    solve_candidate(task, by_page, longest, report.outcomes[i]);
    if (done) ++*done;
  });
  std::stable_sort(report.outcomes.begin(), report.outcomes.end(), better);
  mark_front(report.outcomes);
  return report;
}

}  // namespace ridge
