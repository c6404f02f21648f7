// The simulated scheduler against the real one, and jumps against steps.
#include <gtest/gtest.h>

#include <map>

#include "serving/scheduler.h"
#include "serving/simulation_support.h"

namespace ridge {
namespace {

// The same workload on the real scheduler, step by step, with tokens made from the block ids.
class RealRun {
 public:
  RealRun(const StepClock& clock, const ServingPolicy& policy, int pages,
          std::span<const SimulatedRequest> requests)
      : clock_(clock),
        requests_(requests),
        page_tokens_(policy.page_tokens),
        pool_(pages, policy.page_tokens),
        scheduler_(policy, pool_),
        times(requests.size()) {
    while (step()) scheduler_.check_pages();
    EXPECT_EQ(scheduler_.pages().held, 0);
  }

 private:
  static Token token(uint64_t a, uint64_t b) {
    return static_cast<Token>(splitmix64(splitmix64(a) + b) >> 34);
  }

  void add(size_t i) {
    const SimulatedRequest& request = requests_[i];
    Arrival arrival;
    arrival.id = i + 1;
    arrival.max_length = request.prompt + request.output;
    arrival.priority = request.priority;
    for (int at = 0; at < request.prompt; ++at) {
      const size_t block = size_t(at / page_tokens_);
      arrival.prompt.push_back(block < request.blocks.size()
                                   ? token(uint64_t(request.blocks[block]), uint64_t(at))
                                   : token(~uint64_t(i), uint64_t(at)));
    }
    scheduler_.add(std::move(arrival));
    times[i].arrival_s = request.arrival_s;
  }

  bool step() {
    if (scheduler_.idle()) {
      if (next_ == requests_.size()) return false;
      now_ = std::max(now_, requests_[next_].arrival_s);
    }
    while (next_ < requests_.size() && requests_[next_].arrival_s <= now_) add(next_++);
    ScheduledStep step;
    scheduler_.next(step);
    EXPECT_FALSE(step.empty());
    if (step.empty()) return false;
    for (const auto& [id, cached] : step.admitted) {
      times[id - 1].scheduled_s = now_;
      times[id - 1].cached_tokens = cached;
    }
    double decodes = 0, context = 0;
    std::vector<PromptChunk> chunks;
    for (const ScheduledSlice& slice : step.slices) {
      if (slice.decodes) {
        ++decodes;
        context += slice.past;
      } else {
        chunks.push_back({double(slice.count), double(slice.past)});
      }
    }
    now_ += clock_.step(decodes, context, chunks);
    for (const ScheduledSlice& slice : step.slices) {
      if (!slice.samples) continue;
      const size_t i = slice.id - 1;
      RequestTimes& mine = times[i];
      if (drawn_[i]++ == 0) mine.first_token_s = now_ + clock_.first_token_overhead();
      const Token drawn = token(uint64_t(i) << 20, uint64_t(drawn_[i]));
      scheduler_.accept(slice, std::span(&drawn, 1));
      if (drawn_[i] < requests_[i].output) continue;
      mine.finish_s = now_ + clock_.first_token_overhead();
      mine.preemptions = scheduler_.preemptions(slice.id);
      scheduler_.remove(slice.id);
    }
    return true;
  }

  const StepClock& clock_;
  std::span<const SimulatedRequest> requests_;
  int page_tokens_;
  PagePool pool_;
  Scheduler scheduler_;
  size_t next_ = 0;
  double now_ = 0;
  std::map<size_t, int> drawn_;

 public:
  std::vector<RequestTimes> times;
};

class SameSchedule : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Serving, SameSchedule,
                         testing::Values("ridge", "vllm", "sglang", "trtllm"),
                         [](const auto& name) { return name.param; });

// Pages counted and prefixes by block ids give the schedule that pages and tokens give.
TEST_P(SameSchedule, SchedulesAsTheRealSchedulerDoes) {
  const RangedClock clock;
  int preemptions = 0, cached = 0;
  for (unsigned seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    const ServingPolicy policy = small_policy(GetParam(), random);
    const int pages = 6 + int(random() % 40);
    const auto requests = random_workload(random, policy, pages, 40, 20);
    const RealRun real(clock, policy, pages, requests);
    const SimulationResult simulated = simulate(clock, policy, pages, requests);
    expect_same(real.times, simulated.requests, "seed " + std::to_string(seed));
    if (HasFatalFailure() || HasFailure()) return;
    for (const RequestTimes& each : simulated.requests) {
      preemptions += each.preemptions;
      cached += each.cached_tokens;
    }
  }
  EXPECT_EQ(preemptions > 0, GetParam() != "trtllm");
  EXPECT_GT(cached, 0);
}

TEST_P(SameSchedule, JumpsAsItSteps) {
  const RangedClock clock;
  for (unsigned seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    ServingPolicy policy = small_policy(GetParam(), random);
    if (random() % 3 == 0) policy.poll = 1 + int(random() % 12);
    if (random() % 3 == 0) policy.wait = int(random() % 12);
    if (random() % 2 == 0) policy.wait_tokens = int(random() % 60);
    const int pages = 6 + int(random() % 150);
    const auto requests = random_workload(random, policy, pages, 60, 0.5 + 20 * (seed % 3));
    SimulatedReplica jumped(clock, policy, pages), stepped(clock, policy, pages, false);
    const auto a = run_replica(jumped, requests), b = run_replica(stepped, requests);
    expect_same(a, b, "seed " + std::to_string(seed));
    if (HasFatalFailure() || HasFailure()) return;
    const SimulationSummary x = jumped.summary(), y = stepped.summary();
    EXPECT_EQ(x.steps, y.steps);
    EXPECT_EQ(x.preemptions, y.preemptions);
    EXPECT_EQ(x.max_waiting, y.max_waiting);
    EXPECT_EQ(x.peak_kv_share, y.peak_kv_share);
    EXPECT_NEAR(x.busy_s, y.busy_s, 1e-9 * y.busy_s);
    EXPECT_NEAR(x.mean_running, y.mean_running, 1e-9 * y.mean_running);
  }
}

}  // namespace
}  // namespace ridge
