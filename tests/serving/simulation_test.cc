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

// A step costs a fixed time, one for each token and one for each token of context. The last doubles
// on every other range of contexts.
class TestClock : public StepClock {
 public:
  double step(double decodes, double context,
              std::span<const PromptChunk> chunks = {}) const override {
    double tokens = decodes, past = context;
    for (const PromptChunk& chunk : chunks) {
      tokens += chunk.fresh;
      past += chunk.past;
    }
    const double pairs = std::floor(past / (2 * kRange)), rest = past - pairs * 2 * kRange;
    const double weighted = pairs * 3 * kRange + rest + std::max(0.0, rest - kRange);
    return 5e-3 + 1e-4 * tokens + 1e-6 * weighted;
  }
  double linear_until(double, double context) const override {
    return (std::floor(context / kRange) + 1) * kRange;
  }
  double first_token_overhead() const override { return 2e-3; }

 private:
  static constexpr double kRange = 300;
};

// Every step takes 10 ms.
class EvenClock : public StepClock {
 public:
  double step(double, double, std::span<const PromptChunk>) const override { return 0.01; }
  double linear_until(double, double) const override { return kForever; }
  double first_token_overhead() const override { return 0; }
};

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

void expect_in_order(std::span<const RequestTimes> requests) {
  for (const RequestTimes& each : requests) {
    EXPECT_LE(each.arrival_s, each.scheduled_s);
    EXPECT_LT(each.scheduled_s, each.first_token_s);
    EXPECT_LE(each.first_token_s, each.finish_s);
  }
}

// Each request ends once, and then every page is there for one that needs them all.
TEST_P(EveryPolicy, EndsEachRequestOnceAndReleasesItsPages) {
  const TestClock clock;
  for (unsigned seed = 1000; seed < 1100; ++seed) {
    std::mt19937 random(seed);
    const ServingPolicy policy = small_policy(GetParam(), random);
    const int pages = 6 + int(random() % 40);
    auto requests = random_workload(random, policy, pages, 40, 30);
    SimulatedRequest largest;
    largest.arrival_s = 1e6;
    largest.prompt = pages * policy.page_tokens - 1;
    requests.push_back(largest);
    SimulatedReplica replica(clock, policy, pages);
    const auto times = run_replica(replica, requests);
    expect_in_order(times);
    EXPECT_EQ(times.back().preemptions, 0);
    EXPECT_TRUE(replica.idle());
    EXPECT_EQ(replica.outstanding_tokens(), 0);
    EXPECT_EQ(replica.summary().peak_kv_share, 1);
  }
}

// It does not matter in which pieces the time passes, nor when future arrivals are told.
TEST_P(EveryPolicy, DependsOnArrivalsOnly) {
  const TestClock clock;
  for (unsigned seed = 2000; seed < 2050; ++seed) {
    std::mt19937 random(seed);
    const ServingPolicy policy = small_policy(GetParam(), random);
    const int pages = 6 + int(random() % 40);
    const auto requests = random_workload(random, policy, pages, 40, 30);
    const SimulationResult expected = simulate(clock, policy, pages, requests);
    SimulatedReplica told(clock, policy, pages);
    for (size_t i = 0; i < requests.size(); ++i) told.add(i, requests[i]);
    EXPECT_EQ(told.waiting(), int(requests.size()));
    for (double time = 0; !told.idle(); time += 0.013) told.advance_to(time);
    std::vector<FinishedRequest> finished;
    told.take_finished(finished);
    std::vector<RequestTimes> times(requests.size());
    for (const FinishedRequest& each : finished) times[each.request] = each.times;
    expect_same(times, expected.requests, "seed " + std::to_string(seed));
    if (HasFailure()) return;
  }
}

double mean_ttft(std::span<const RequestTimes> requests) {
  double sum = 0;
  for (const RequestTimes& each : requests) sum += each.first_token_s - each.arrival_s;
  return sum / double(requests.size());
}

// Requests of one length distribution without priorities; arrivals as fast as `rate` says.
std::vector<SimulatedRequest> poisson_workload(double rate, int count) {
  std::mt19937 random(7);
  std::exponential_distribution<double> gap(1.0);
  std::vector<SimulatedRequest> requests(static_cast<size_t>(count));
  double time = 0;
  for (SimulatedRequest& each : requests) {
    time += gap(random);
    each.arrival_s = time / rate;
    each.prompt = 20 + int(random() % 100);
    each.output = 10 + int(random() % 60);
  }
  return requests;
}

// The same requests come closer together. A request that just misses a step waits for the next, so
// the mean may fall by a step of one request at most, which matters where there is no queue.
TEST_P(EveryPolicy, MoreLoadDoesNotLowerTheFirstTokenTime) {
  const TestClock clock;
  ServingPolicy policy = policy_of(GetParam());
  policy.max_sequences = 16;
  policy.max_tokens = 256;
  double before = 0;
  for (double rate = 0.5; rate < 200; rate *= 1.3) {
    const SimulationResult run = simulate(clock, policy, 400, poisson_workload(rate, 600));
    const double ttft = mean_ttft(run.requests);
    EXPECT_GT(ttft, before - clock.step(1, 100)) << rate;
    before = std::max(before, ttft);
  }
  EXPECT_GT(before, 1);
}

// All requests are there from the start. Ends of batches may fall differently (Graham's anomalies
// of list scheduling), by no more than the longest request alone.
TEST_P(EveryPolicy, MorePagesDoNotLowerThroughput) {
  const TestClock clock;
  ServingPolicy policy = policy_of(GetParam());
  policy.page_tokens = 16;
  policy.max_sequences = 64;
  policy.max_tokens = 512;
  auto requests = poisson_workload(1, 300);
  for (SimulatedRequest& each : requests) each.arrival_s = 0;
  const std::vector<SimulatedRequest> longest{{.prompt = 119, .output = 69}};
  const double slack = simulate(clock, policy, 20, longest).summary.end_s;
  double before = kForever;
  for (int pages = 20; pages <= 1500; pages += 20) {
    const double end = simulate(clock, policy, pages, requests).summary.end_s;
    EXPECT_LE(end, before + slack) << pages;
    before = std::min(before, end);
  }
}

// Equal lengths in a closed loop stay in step: all prompts in one step, then all decodes. The time
// of a round is a sum.
TEST_P(EveryPolicy, SteadyStateIsTheClosedForm) {
  const TestClock clock;
  const int clients = 12, rounds = 9, prompt = 100, output = 75;
  ServingPolicy policy = policy_of(GetParam());
  const std::vector<SimulatedRequest> requests(size_t(clients * rounds),
                                               {.prompt = prompt, .output = output});
  const SimulationResult run = simulate_clients(clock, policy, 2000, clients, requests);
  const std::vector<PromptChunk> chunks(clients, {.fresh = prompt, .past = 0});
  double first = clock.step(0, 0, chunks), round = first;
  for (int i = 0; i + 1 < output; ++i) round += clock.step(clients, clients * (prompt + i));
  round += clock.first_token_overhead();
  EXPECT_EQ(run.summary.steps, rounds * output);
  EXPECT_NEAR(run.summary.mean_running, clients, 1e-9);
  for (size_t i = 0; i < run.requests.size(); ++i) {
    const double start = double(i / clients) * round;
    EXPECT_NEAR(run.requests[i].arrival_s, start, 1e-9);
    EXPECT_NEAR(run.requests[i].first_token_s, start + first + clock.first_token_overhead(), 1e-9);
    EXPECT_NEAR(run.requests[i].finish_s, start + round, 1e-9);
  }
}

// Never more requests than clients, the next one when the last has ended; and the loop that
// advances to next_finish_s(), as over several replicas, gives the same.
TEST_P(EveryPolicy, ClosesTheLoop) {
  const TestClock clock;
  for (unsigned seed = 3000; seed < 3050; ++seed) {
    std::mt19937 random(seed);
    const ServingPolicy policy = small_policy(GetParam(), random);
    const int pages = 6 + int(random() % 100), clients = 1 + int(random() % 12);
    const auto requests = random_workload(random, policy, pages, 60, 1);
    const SimulationResult run = simulate_clients(clock, policy, pages, clients, requests);
    expect_in_order(run.requests);
    std::vector<double> sent, ended;
    for (const RequestTimes& each : run.requests) {
      sent.push_back(each.arrival_s);
      ended.push_back(each.finish_s);
    }
    std::sort(ended.begin(), ended.end());
    for (size_t i = size_t(clients); i < sent.size(); ++i) {
      EXPECT_EQ(sent[i], ended[i - size_t(clients)]);
    }
    SimulatedReplica replica(clock, policy, pages);
    std::vector<RequestTimes> times(requests.size());
    size_t next = 0;
    const auto send = [&](double time_s) {
      if (next == requests.size()) return;
      SimulatedRequest request = requests[next];
      request.arrival_s = time_s;
      replica.add(next++, request);
    };
    for (int i = 0; i < clients; ++i) send(0);
    while (!replica.idle()) {
      const double time_s = replica.next_finish_s();
      replica.advance_to(time_s);
      std::vector<FinishedRequest> finished;
      replica.take_finished(finished);
      for (const FinishedRequest& each : finished) {
        EXPECT_LE(time_s, each.times.finish_s);
        times[each.request] = each.times;
        send(each.times.finish_s);
      }
    }
    expect_same(times, run.requests, "seed " + std::to_string(seed));
    if (HasFailure()) return;
  }
}

// The first request's prompt runs at 0, its decodes from 10 ms on. The second comes at 55 ms.
std::vector<RequestTimes> run_two(const ServingPolicy& policy) {
  const EvenClock clock;
  const std::vector<SimulatedRequest> requests{{.prompt = 8, .output = 60},
                                               {.arrival_s = 0.055, .prompt = 8, .output = 2}};
  return simulate(clock, policy, 100, requests).requests;
}

TEST(Simulation, SchedulesAnArrivalInTheNextStep) {
  EXPECT_NEAR(run_two({})[1].scheduled_s, 0.06, 1e-9);
  EXPECT_NEAR(run_two({})[1].first_token_s, 0.07, 1e-9);
  EXPECT_NEAR(run_two({})[1].finish_s, 0.08, 1e-9);
  EXPECT_NEAR(run_two({})[0].finish_s, 0.60, 1e-9);
}

TEST(Simulation, ReceivesRequestsAtEveryPoll) {
  ServingPolicy policy;
  policy.poll = 10;  // at 10, 110, 210 ms
  EXPECT_NEAR(run_two(policy)[1].scheduled_s, 0.11, 1e-9);
}

TEST(Simulation, HoldsPromptsBackForOthers) {
  ServingPolicy policy;
  policy.wait = 20;
  EXPECT_NEAR(run_two(policy)[1].scheduled_s, 0.26, 1e-9);
  policy.wait_tokens = 8;
  EXPECT_NEAR(run_two(policy)[1].scheduled_s, 0.06, 1e-9);
}

TEST(Simulation, StopsDecodesForPromptsWhereAPolicyDoesNotMix) {
  ServingPolicy policy;
  policy.mixed = false;
  EXPECT_NEAR(run_two(policy)[1].scheduled_s, 0.06, 1e-9);
  EXPECT_NEAR(run_two(policy)[0].finish_s, 0.61, 1e-9);
}

TEST(Simulation, FindsPrefixesByTheirBlocks) {
  const EvenClock clock;
  ServingPolicy policy;
  policy.page_tokens = 4;
  SimulatedReplica replica(clock, policy, 100);
  SimulatedRequest request{.prompt = 14, .output = 2, .blocks = {1, 2, 3}};
  replica.add(0, request);
  request.arrival_s = 1;
  request.blocks = {1, 2, 4};
  replica.add(1, request);
  request.arrival_s = 2;
  request.blocks = {2, 3};  // behind another beginning
  replica.add(2, request);
  request.arrival_s = 3;
  request.prompt = 12;
  request.blocks = {1, 2, 4};  // the last token is always computed
  replica.add(3, request);
  replica.advance_to(0.5);
  EXPECT_EQ(replica.cached_tokens(std::vector<int64_t>{1, 2, 9}), 8);
  replica.advance_to(kForever);
  std::vector<FinishedRequest> finished;
  replica.take_finished(finished);
  ASSERT_EQ(finished.size(), 4u);
  EXPECT_EQ(finished[0].times.cached_tokens, 0);
  EXPECT_EQ(finished[1].times.cached_tokens, 8);
  EXPECT_EQ(finished[2].times.cached_tokens, 0);
  EXPECT_EQ(finished[3].times.cached_tokens, 8);
}

TEST(Simulation, RefusesARequestThatNeverFits) {
  const EvenClock clock;
  SimulatedReplica replica(clock, {}, 10);
  replica.add(0, {.prompt = 100, .output = 60});
  try {
    replica.add(1, {.prompt = 100, .output = 61});
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "request 2: a prompt of 100 tokens and an output of 61 do not fit the KV cache, "
                 "160 tokens");
  }
  EXPECT_THROW(replica.add(1, {.prompt = 0, .output = 5}), Error);
}

}  // namespace
}  // namespace ridge
