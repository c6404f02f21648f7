#include "serving/simulation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "base/error.h"
#include "serving/simulation_support.h"

namespace ridge {
namespace {

// Every step takes 10 ms.
class EvenClock : public StepClock {
 public:
  double step(double, double, std::span<const PromptChunk>) const override { return 0.01; }
  double linear_until(double, double) const override { return kForever; }
  double first_token_overhead() const override { return 0; }
};

class EveryPolicy : public testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Serving, EveryPolicy, testing::Values("ridge", "vllm", "sglang", "trtllm"),
                         [](const auto& name) { return name.param; });

void expect_in_order(std::span<const RequestTimes> requests) {
  for (const RequestTimes& each : requests) {
    EXPECT_LE(each.arrival_s, each.scheduled_s);
    EXPECT_LT(each.scheduled_s, each.first_token_s);
    EXPECT_LE(each.first_token_s, each.finish_s);
  }
}

// Each request ends once, and then every page is there for one that needs them all.
TEST_P(EveryPolicy, EndsEachRequestOnceAndReleasesItsPages) {
  const RangedClock clock;
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
  const RangedClock clock;
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
  const RangedClock clock;
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
  const RangedClock clock;
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
  const RangedClock clock;
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
  const RangedClock clock;
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
