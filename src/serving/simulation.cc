#include "serving/simulation.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>

#include "base/error.h"
#include "serving/simulated_scheduler.h"

namespace ridge {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Seconds of decode steps on a range of contexts where they are linear.
struct DecodeLine {
  double from = 0, to = -1;  // tokens of context
  double at_from = 0, slope = 0;

  double step(double context) const { return at_from + slope * (context - from); }
  // `steps` in a row, each with `decodes` tokens more than the one before.
  double sum(double steps, double decodes, double context) const {
    return steps * step(context) + slope * decodes * (0.5 * steps * (steps - 1));
  }
};

}  // namespace

struct SimulatedReplica::Impl {
  Impl(const StepClock& step_clock, const ServingPolicy& rules, int pages, bool jump)
      : clock(step_clock),
        policy(rules),
        jumps(jump),
        overhead(step_clock.first_token_overhead()),
        scheduler(rules, pages) {}

  bool idle() const { return scheduler.idle() && arrivals.empty(); }

  const DecodeLine& line(int decodes, double context) {
    if (lines.size() <= static_cast<size_t>(decodes)) lines.resize(size_t(decodes) + 1);
    DecodeLine& kept = lines[static_cast<size_t>(decodes)];
    if (context < kept.from || context > kept.to) {
      kept.from = context;
      kept.to = std::min(clock.linear_until(decodes, context), 2 * context + 4096.0 * decodes);
      kept.at_from = clock.step(decodes, context);
      kept.slope = kept.to > context
                       ? (clock.step(decodes, kept.to) - kept.at_from) / (kept.to - context)
                       : 0;
    }
    return kept;
  }

  // The most steps, up to `most`, whose last one starts before `limit`.
  static int steps_before(double limit_s, int most, const DecodeLine& line, double decodes,
                          double context) {
    const auto starts_before = [&](int step) {  // counted from 0
      return line.sum(step, decodes, context) < limit_s;
    };
    if (most <= 1 || starts_before(most - 1)) return most;
    // a k^2 + b k = limit
    const double a = 0.5 * line.slope * decodes, b = line.step(context) - a;
    const double root = std::sqrt(std::max(0.0, b * b + 4 * a * limit_s));
    int steps = 1 + std::clamp(int(2 * limit_s / (b + root)), 0, most - 1);
    while (steps > 1 && !starts_before(steps - 1)) --steps;
    while (steps < most && starts_before(steps)) ++steps;
    return steps;
  }

  // New requests come to the scheduler where the policy looks for them.
  void receive() {
    if (since_poll < policy.poll && !scheduler.idle()) return;
    since_poll = 0;
    while (!arrivals.empty() && arrivals.front()->times.arrival_s <= now) {
      scheduler.add(*arrivals.front());
      arrivals.pop_front();
    }
  }

  // Plans a step, or a run of equal ones, that starts now. None of them starts at `limit_s` or
  // later.
  void start(double limit_s) {
    receive();
    scheduler.plan();
    const int decodes = scheduler.decodes();
    const double context = scheduler.context();
    steps = 1;
    double seconds = 0;
    if (!scheduler.chunks().empty()) {
      seconds = clock.step(decodes, context, scheduler.chunks());
    } else if (decodes == 0) {
      throw Error("simulation: {} requests wait, and none can run", scheduler.waiting());
    } else if (!jumps) {
      seconds = clock.step(decodes, context);
    } else {
      const DecodeLine& times = line(decodes, context);
      double most = std::min(1e6, 1 + (times.to - context) / decodes);
      if (!arrivals.empty()) {
        const double next_s = arrivals.front()->times.arrival_s;
        if (next_s <= now) most = std::min<double>(most, policy.poll - since_poll);
        if (next_s > now) limit_s = std::min(limit_s, next_s);
      }
      steps = scheduler.equal_steps(int(most));
      steps = steps_before(limit_s - now, steps, times, decodes, context);
      if (steps > 1) scheduler.repeat(steps);
      seconds = times.sum(steps, decodes, context);
    }
    for (SimulatedSequence* s : scheduler.first_scheduled()) s->times.scheduled_s = now;
    started = true;
    end = now + seconds;
    count(seconds);
  }

  void count(double seconds) {
    totals.steps += steps;
    totals.busy_s += seconds;
    running_seconds += seconds * scheduler.running();
    totals.preemptions += scheduler.preempted();
    totals.max_waiting = std::max(totals.max_waiting, scheduler.waiting());
    most_held = std::max(most_held, scheduler.cache().held());
  }

  // The steps that were started have run.
  void finish() {
    now = end;
    started = false;
    const bool prompts = !scheduler.chunks().empty();
    since_poll = prompts ? policy.poll : (since_poll + steps - 1) % policy.poll + 1;
    scheduler.finish_steps(first_tokens, ended);
    for (SimulatedSequence* s : first_tokens) s->times.first_token_s = now + overhead;
    for (SimulatedSequence* s : ended) {
      s->times.finish_s = now + overhead;
      s->times.preemptions = s->preemptions;
      finished.push_back({s->request, s->times});
    }
    totals.end_s = now;
  }

  void advance_to(double time_s, bool to_finish) {
    while (!to_finish || finished.empty()) {
      if (started) {
        if (end > time_s) return;
        finish();
        continue;
      }
      if (scheduler.idle()) {
        if (arrivals.empty()) return;
        now = std::max(now, arrivals.front()->times.arrival_s);
      }
      if (now >= time_s) return;
      start(time_s);
    }
  }

  double next_finish_s() {
    if (idle()) return kNever;
    if (started) return end;
    const double soon = std::nextafter(now, kNever);
    const int decodes = scheduler.decoding();
    // Prompts may end with their first token, and a preemption makes steps shorter.
    if (scheduler.idle()) return std::max(soon, arrivals.front()->times.arrival_s);
    if (scheduler.waiting() > 0 || scheduler.running() > decodes) return soon;
    const double context = scheduler.decoding_context();
    const DecodeLine& times = line(decodes, context);
    const int left = std::min(scheduler.steps_to_finish(), 1 + int((times.to - context) / decodes));
    if (scheduler.cache().available() / decodes <= left / policy.page_tokens) return soon;
    const double least = now + times.sum(left, decodes, context);
    return arrivals.empty() ? least : std::clamp(arrivals.front()->times.arrival_s, soon, least);
  }

  const StepClock& clock;
  ServingPolicy policy;
  bool jumps;
  double overhead;
  SimulatedScheduler scheduler;
  std::deque<SimulatedSequence*> arrivals;  // not received yet
  std::vector<DecodeLine> lines;            // by number of decodes

  double now = 0;        // where the next step may start
  bool started = false;  // steps are under way
  double end = 0;        // of those
  int steps = 0;         // their number
  int since_poll = 0;    // decode steps since requests were received

  std::vector<SimulatedSequence*> first_tokens, ended;
  std::vector<FinishedRequest> finished;
  SimulationSummary totals;
  double running_seconds = 0;
  int most_held = 0;
};

SimulatedReplica::SimulatedReplica(const StepClock& clock, const ServingPolicy& policy, int pages,
                                   bool jumps)
    : impl_(std::make_unique<Impl>(clock, policy, pages, jumps)) {}

SimulatedReplica::~SimulatedReplica() = default;
SimulatedReplica::SimulatedReplica(SimulatedReplica&&) noexcept = default;
SimulatedReplica& SimulatedReplica::operator=(SimulatedReplica&&) noexcept = default;

void SimulatedReplica::add(size_t request, const SimulatedRequest& r) {
  const int64_t tokens = int64_t{r.prompt} + r.output;
  const int64_t room = int64_t{impl_->scheduler.cache().total()} * impl_->policy.page_tokens;
  if (r.prompt < 1 || r.output < 1) {
    throw Error("request {}: a prompt of {} tokens and an output of {}; both need one at least",
                request + 1, r.prompt, r.output);
  }
  if (tokens > room) {
    throw Error(
        "request {}: a prompt of {} tokens and an output of {} do not fit the KV cache, {} "
        "tokens",
        request + 1, r.prompt, r.output, room);
  }
  impl_->arrivals.push_back(&impl_->scheduler.make(request, r));
}

void SimulatedReplica::advance_to(double time_s) { impl_->advance_to(time_s, false); }
double SimulatedReplica::next_finish_s() const { return impl_->next_finish_s(); }
bool SimulatedReplica::advance_to_finish(double time_s) {
  impl_->advance_to(time_s, true);
  return !impl_->finished.empty();
}
bool SimulatedReplica::idle() const { return impl_->idle(); }
int SimulatedReplica::running() const { return impl_->scheduler.running(); }
int SimulatedReplica::waiting() const {
  return impl_->scheduler.waiting() + static_cast<int>(impl_->arrivals.size());
}
double SimulatedReplica::outstanding_tokens() const {
  return impl_->scheduler.outstanding_tokens();
}
int SimulatedReplica::cached_tokens(std::span<const int64_t> blocks) const {
  return impl_->scheduler.cached_tokens(blocks);
}

void SimulatedReplica::take_finished(std::vector<FinishedRequest>& finished) {
  finished.insert(finished.end(), impl_->finished.begin(), impl_->finished.end());
  impl_->finished.clear();
}

SimulationSummary SimulatedReplica::summary() const {
  SimulationSummary summary = impl_->totals;
  if (summary.busy_s > 0) summary.mean_running = impl_->running_seconds / summary.busy_s;
  summary.peak_kv_share = double(impl_->most_held) / impl_->scheduler.cache().total();
  return summary;
}

SimulationResult simulate(const StepClock& clock, const ServingPolicy& policy, int pages,
                          std::span<const SimulatedRequest> requests) {
  SimulatedReplica replica(clock, policy, pages);
  for (size_t i = 0; i < requests.size(); ++i) {
    replica.advance_to(requests[i].arrival_s);
    replica.add(i, requests[i]);
  }
  replica.advance_to(kNever);
  SimulationResult result;
  result.requests.resize(requests.size());
  std::vector<FinishedRequest> finished;
  replica.take_finished(finished);
  for (const FinishedRequest& each : finished) result.requests[each.request] = each.times;
  result.summary = replica.summary();
  return result;
}

SimulationResult simulate_clients(const StepClock& clock, const ServingPolicy& policy, int pages,
                                  int clients, std::span<const SimulatedRequest> requests) {
  SimulatedReplica replica(clock, policy, pages);
  SimulationResult result;
  result.requests.resize(requests.size());
  size_t sent = 0;
  const auto send = [&](double time_s) {
    if (sent == requests.size()) return;
    SimulatedRequest next = requests[sent];
    next.arrival_s = time_s;
    replica.add(sent++, next);
  };
  for (int i = 0; i < clients; ++i) send(0);
  std::vector<FinishedRequest> finished;
  while (replica.advance_to_finish(kNever)) {
    finished.clear();
    replica.take_finished(finished);
    for (const FinishedRequest& each : finished) {
      result.requests[each.request] = each.times;
      send(each.times.finish_s);
    }
  }
  result.summary = replica.summary();
  return result;
}

}  // namespace ridge
