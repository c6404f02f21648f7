// An endpoint simulated: the scheduler's rules (scheduling_rules.h) over predicted step times.
//
// A replica keeps page counts instead of pages and lengths instead of tokens. Between events (an
// arrival, a finish, a page shortage) every step decodes the same sequences, so whole runs of steps
// are taken at once: their times are a sum in closed form, because a decode step's time is linear
// in its context over long ranges (StepClock::linear_until).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "predict/step_clock.h"
#include "serving/policy.h"

namespace ridge {

struct SimulatedRequest {
  double arrival_s = 0;
  int prompt = 1, output = 1;  // tokens
  // Ids of the prompt's blocks of policy.page_tokens tokens, from the first one on. Equal ids mean
  // equal tokens from the prompt's beginning to the block's end. Tokens behind the last id are
  // shared with nobody.
  std::vector<int64_t> blocks{};
  int priority = 0;  // the lower number goes first
};

// Seconds on the workload's clock. The client sees the first and the last token then.
struct RequestTimes {
  double arrival_s = 0, scheduled_s = 0, first_token_s = 0, finish_s = 0;
  int cached_tokens = 0, preemptions = 0;
};

struct SimulationSummary {
  int64_t steps = 0;
  double busy_s = 0, end_s = 0;  // seconds in steps; when the last step ended
  double mean_running = 0;       // sequences, over the busy time
  double peak_kv_share = 0;      // of the pages, held by sequences
  int64_t preemptions = 0;
  int max_waiting = 0;
};

struct FinishedRequest {
  size_t request = 0;
  RequestTimes times;
};

// One replica's scheduler driven by predicted step times.
class SimulatedReplica {
 public:
  // `clock` outlives the replica. `jumps` = false takes every step alone (for tests).
  SimulatedReplica(const StepClock& clock, const ServingPolicy& policy, int pages,
                   bool jumps = true);
  ~SimulatedReplica();
  SimulatedReplica(SimulatedReplica&&) noexcept;
  SimulatedReplica& operator=(SimulatedReplica&&) noexcept;

  // In order of arrival time, and none before a time that advance_to() was given. Throws Error
  // where prompt and output together need more than the pool's pages.
  void add(size_t request, const SimulatedRequest& r);
  // Runs the steps that start before `time_s`. What ended by then is finished; a step that ends
  // later is under way. An arrival at `time_s` may still be added.
  void advance_to(double time_s);
  // The same, but stops where a request finishes: whether one did. For a closed loop.
  bool advance_to_finish(double time_s);
  // The next request finishes then or later, if nothing arrives before; infinity where idle. A
  // closed loop over replicas advances all of them to the least of these times.
  double next_finish_s() const;

  bool idle() const;    // no request is here
  int running() const;  // sequences that hold pages
  int waiting() const;
  double outstanding_tokens() const;  // prompt tokens to compute and tokens to draw, for routing
  // Tokens of a prompt with these blocks that the prefix cache holds, for routing.
  int cached_tokens(std::span<const int64_t> blocks) const;

  // Appends what finished since the last call, in order of time.
  void take_finished(std::vector<FinishedRequest>& finished);
  SimulationSummary summary() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct SimulationResult {
  std::vector<RequestTimes> requests;  // as given
  SimulationSummary summary;
};

// Open loop on one replica: requests in order of arrival.
SimulationResult simulate(const StepClock& clock, const ServingPolicy& policy, int pages,
                          std::span<const SimulatedRequest> requests);
// Closed loop: each of `clients` sends the next request of the list when it has seen the last token
// of its own. The arrival times given are not used.
SimulationResult simulate_clients(const StepClock& clock, const ServingPolicy& policy, int pages,
                                  int clients, std::span<const SimulatedRequest> requests);

}  // namespace ridge
