// Replicas behind a router: every request is served once, and routing does what it says.
#include "plan/fleet.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "plan/support.h"
#include "plan/traffic.h"

namespace ridge {
namespace {

Trace poisson(double rate, int requests, int groups = 0) {
  TrafficOptions options;
  options.rate = rate;
  options.requests = requests;
  options.prompt = parse_length("200..1800", "prompt");
  options.output = parse_length("20..200", "output");
  options.prefix_groups = groups;
  options.prefix_tokens = groups > 0 ? 4096 : 0;
  return make_traffic(options);
}

Fleet fleet_of(const StepClock& clock, int replicas, RoutingRule routing) {
  ServingPolicy policy = policy_of("vllm");
  return {&clock, policy, 8000, replicas, routing};
}

void expect_conserved(std::span<const SimulatedRequest> sent, const FleetRun& run, int replicas) {
  ASSERT_EQ(run.requests.size(), sent.size());
  for (size_t i = 0; i < sent.size(); ++i) {
    const ServedRequest& r = run.requests[i];
    ASSERT_TRUE(r.served) << i;
    EXPECT_EQ(r.prompt, sent[i].prompt);
    EXPECT_EQ(r.output, sent[i].output);
    EXPECT_LE(r.arrival_s, r.scheduled_s);
    EXPECT_LT(r.scheduled_s, r.first_token_s);
    EXPECT_LE(r.first_token_s, r.finish_s);
    EXPECT_LE(r.cached_tokens, r.prompt);
    EXPECT_GE(r.replica, 0);
    EXPECT_LT(r.replica, replicas);
  }
}

TEST(PlanFleet, ServesEveryRequestOnce) {
  const PlanTestClock clock;
  const Trace traffic = poisson(40, 3000, 20);
  const std::vector<SimulatedRequest> requests = simulated_requests(traffic, 16);
  for (const RoutingRule routing :
       {RoutingRule::round_robin, RoutingRule::least_loaded, RoutingRule::prefix_aware}) {
    for (const int replicas : {1, 3}) {
      for (const int clients : {0, 1, 17}) {
        const Fleet fleet = fleet_of(clock, replicas, routing);
        const FleetRun run = simulate_fleet(fleet, requests, clients);
        expect_conserved(requests, run, replicas);
        const FleetRun again = simulate_fleet(fleet, requests, clients, true);
        for (size_t i = 0; i < requests.size(); ++i) {
          ASSERT_EQ(run.requests[i].finish_s, again.requests[i].finish_s) << "not deterministic";
        }
      }
    }
  }
}

TEST(PlanFleet, MoreLoadAndFewerReplicasAreNeverFaster) {
  const PlanTestClock clock;
  double before = 0;
  for (const double rate : {5., 20., 60., 120.}) {
    const std::vector<SimulatedRequest> requests = simulated_requests(poisson(rate, 4000), 16);
    const auto mean_ttft = [&](int replicas) {
      const FleetRun run =
          simulate_fleet(fleet_of(clock, replicas, RoutingRule::round_robin), requests);
      return summarize_service(run.requests, {}).ttft.mean;
    };
    const double one = mean_ttft(1), four = mean_ttft(4);
    EXPECT_GE(one, before);
    EXPECT_LE(four, one);
    before = one;
  }
}

TEST(PlanFleet, PrefixAwareRoutingHitsMore) {
  const PlanTestClock clock;
  const std::vector<SimulatedRequest> requests = simulated_requests(poisson(10, 2000, 41), 16);
  const auto cached = [&](RoutingRule routing) {
    const FleetRun run = simulate_fleet(fleet_of(clock, 8, routing), requests);
    return summarize_service(run.requests, {}).cached_share;
  };
  EXPECT_GT(cached(RoutingRule::prefix_aware), cached(RoutingRule::round_robin) + 0.05);
}

TEST(PlanFleet, RefusesWhatThePagesCannotHold) {
  const PlanTestClock clock;
  std::vector<SimulatedRequest> requests(3);
  requests[1].prompt = 16 * 8000;
  for (SimulatedRequest& r : requests) r.output = 5;
  const FleetRun run = simulate_fleet(fleet_of(clock, 2, RoutingRule::round_robin), requests);
  EXPECT_TRUE(run.requests[0].served);
  EXPECT_FALSE(run.requests[1].served);
  EXPECT_TRUE(run.requests[2].served);
  LatencyTargets targets;
  targets.ttft_s = 100;
  const ServiceSummary summary = summarize_service(run.requests, targets);
  EXPECT_EQ(summary.refused, 1u);
  EXPECT_EQ(summary.missed(targets), "length");
  EXPECT_NEAR(summary.goodput, 2. / 3, 1e-12);
}

TEST(PlanFleet, NamesItsRouting) {
  EXPECT_EQ(parse_routing("prefix-aware"), RoutingRule::prefix_aware);
  EXPECT_EQ(routing_name(RoutingRule::least_loaded), "least-loaded");
  EXPECT_THROW(parse_routing("random"), OptionError);
}

}  // namespace
}  // namespace ridge
