#include "serving/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

#include "base/error.h"
#include "base/random.h"
#include "serving/scheduler.h"

namespace ridge {
namespace {

constexpr double kForever = std::numeric_limits<double>::infinity();

// A step costs a fixed time, one for each token and one for each token of context. The last is
// another on every other range of contexts.
class TestClock : public StepClock {
 public:
  double step(double decodes, double context, std::span<const PromptChunk> chunks) const override {
    double tokens = decodes, past = context;
    for (const PromptChunk& chunk : chunks) {
      tokens += chunk.fresh;
      past += chunk.past;
    }
    const double ranges = std::floor(past / kRange), rest = past - ranges * kRange;
    const double before = ranges * kRange * 1.5 + (std::fmod(ranges, 2) == 1 ? -0.5 * kRange : 0);
    return 5e-3 + 1e-4 * tokens + 1e-6 * (before + rest * (std::fmod(ranges, 2) == 1 ? 2 : 1));
  }
  double linear_until(double, double context) const override {
    return (std::floor(context / kRange) + 1) * kRange;
  }
  double first_token_overhead() const override { return 2e-3; }

 private:
  static constexpr double kRange = 300;
};

// The same by half-open ranges: slope 1 on even ranges, 2 on odd ones, continuous.
TEST(TestClock, IsContinuous) {
  const TestClock clock;
  for (double context = 300; context < 3000; context += 300) {
    EXPECT_NEAR(clock.step(4, context - 1e-6, {}), clock.step(4, context, {}), 1e-10);
  }
}

// A prompt whose blocks are a path in a tree with three children a node, some of them given.
SimulatedRequest random_request(std::mt19937& random, const ServingPolicy& policy, int most_prompt,
                                int most_output) {
  SimulatedRequest request;
  request.prompt = 1 + int(random() % unsigned(most_prompt));
  request.output = 1 + int(random() % unsigned(most_output));
  request.priority = random() % 4 == 0 ? int(random() % 3) : 0;
  if (random() % 4 == 0) return request;
  const int whole = request.prompt / policy.page_tokens;
  uint64_t id = 1;
  for (int i = 0; i < whole; ++i) {
    // Mostly the first child: long prefixes are shared.
    const unsigned child = random() % 16;
    id = splitmix64(id * 4 + (child < 14 ? 0 : child - 13));
    request.blocks.push_back(int64_t(id >> 1));
  }
  if (random() % 2 == 0) request.blocks.resize(random() % unsigned(whole + 1));
  return request;
}

std::vector<SimulatedRequest> random_workload(std::mt19937& random, const ServingPolicy& policy,
                                              int pages, int count, double rate) {
  const int room = pages * policy.page_tokens;
  std::exponential_distribution<double> gap(rate);
  std::vector<SimulatedRequest> requests;
  double time = 0;
  for (int i = 0; i < count; ++i) {
    requests.push_back(random_request(random, policy, room / 2, room / 3));
    if (random() % 3 > 0) time += gap(random);  // others come together with the one before
    requests.back().arrival_s = time;
  }
  return requests;
}

ServingPolicy small_policy(const std::string& name, std::mt19937& random) {
  ServingPolicy policy = policy_of(name);
  policy.page_tokens = 4;
  policy.max_tokens = 8 + int(random() % 40);
  policy.max_sequences = 2 + int(random() % 7);
  policy.prefix_cache = random() % 5 > 0;
  return policy;
}

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

void expect_same(std::span<const RequestTimes> a, std::span<const RequestTimes> b,
                 const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const auto near = [&](double x, double y) { return std::abs(x - y) <= 1e-9 * (x + y); };
    ASSERT_TRUE(near(a[i].scheduled_s, b[i].scheduled_s) &&
                near(a[i].first_token_s, b[i].first_token_s) &&
                near(a[i].finish_s, b[i].finish_s) && a[i].cached_tokens == b[i].cached_tokens &&
                a[i].preemptions == b[i].preemptions)
        << what << ", request " << i << " of " << a.size() << ": scheduled " << a[i].scheduled_s
        << " and " << b[i].scheduled_s << ", first " << a[i].first_token_s << " and "
        << b[i].first_token_s << ", finish " << a[i].finish_s << " and " << b[i].finish_s
        << ", cached " << a[i].cached_tokens << " and " << b[i].cached_tokens << ", preempted "
        << a[i].preemptions << " and " << b[i].preemptions;
  }
}

class EveryPolicy : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Serving, EveryPolicy, testing::Values("ridge", "vllm", "sglang", "trtllm"),
                         [](const auto& name) { return name.param; });

// Pages counted and prefixes by block ids give the schedule that pages and tokens give.
TEST_P(EveryPolicy, SchedulesAsTheRealSchedulerDoes) {
  const TestClock clock;
  int preemptions = 0, cached = 0;
  for (unsigned seed = 0; seed < 300; ++seed) {
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

std::vector<RequestTimes> run_replica(SimulatedReplica& replica,
                                      std::span<const SimulatedRequest> requests) {
  for (size_t i = 0; i < requests.size(); ++i) {
    replica.advance_to(requests[i].arrival_s);
    replica.add(i, requests[i]);
  }
  replica.advance_to(kForever);
  std::vector<FinishedRequest> finished;
  replica.take_finished(finished);
  EXPECT_EQ(finished.size(), requests.size());
  std::vector<RequestTimes> times(requests.size());
  for (const FinishedRequest& each : finished) {
    EXPECT_EQ(times[each.request].finish_s, 0);  // once
    times[each.request] = each.times;
  }
  return times;
}

TEST_P(EveryPolicy, JumpsAsItSteps) {
  const TestClock clock;
  for (unsigned seed = 0; seed < 300; ++seed) {
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
