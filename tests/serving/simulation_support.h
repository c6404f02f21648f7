// Random workloads and clocks for tests of the simulated scheduler.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "base/random.h"
#include "serving/simulation.h"

namespace ridge {

inline constexpr double kForever = std::numeric_limits<double>::infinity();

// A step costs a fixed time, one for each token and one for each token of context. The last doubles
// on every other range of contexts.
class RangedClock : public StepClock {
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

// A prompt whose blocks are a path in a tree with three children a node, some of them given.
inline SimulatedRequest random_request(std::mt19937& random, const ServingPolicy& policy,
                                       int most_prompt, int most_output) {
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

inline std::vector<SimulatedRequest> random_workload(std::mt19937& random,
                                                     const ServingPolicy& policy, int pages,
                                                     int count, double rate) {
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

inline ServingPolicy small_policy(const std::string& name, std::mt19937& random) {
  ServingPolicy policy = policy_of(name);
  policy.page_tokens = 4;
  policy.max_tokens = 8 + int(random() % 40);
  policy.max_sequences = 2 + int(random() % 7);
  policy.prefix_cache = random() % 5 > 0;
  return policy;
}

inline void expect_same(std::span<const RequestTimes> a, std::span<const RequestTimes> b,
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

inline std::vector<RequestTimes> run_replica(SimulatedReplica& replica,
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

}  // namespace ridge
