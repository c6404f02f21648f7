// Requests that a plan serves: made ones, and prefix blocks cut to pages.
#include "plan/traffic.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace ridge {
namespace {

TraceRow row_of(int prompt, std::vector<int64_t> blocks) {
  TraceRow row;
  row.prompt_tokens = prompt;
  row.blocks = std::move(blocks);
  return row;
}

// Pages in common from the beginning.
size_t shared_pages(const SimulatedRequest& a, const SimulatedRequest& b) {
  size_t n = 0;
  while (n < std::min(a.blocks.size(), b.blocks.size()) && a.blocks[n] == b.blocks[n]) ++n;
  return n;
}

TEST(PlanTraffic, BlocksAreCutToPages) {
  Trace traffic;
  traffic.block_tokens = 512;
  traffic.rows = {row_of(1500, {1, 2, 3}), row_of(1100, {1, 2, 9}), row_of(700, {4, 5})};
  for (const int page : {1, 16, 32, 512, 96}) {
    const std::vector<SimulatedRequest> r = simulated_requests(traffic, page);
    EXPECT_EQ(r[0].blocks.size(), size_t(1500 / page));
    EXPECT_EQ(r[2].blocks.size(), size_t(700 / page));
    EXPECT_EQ(shared_pages(r[0], r[1]), size_t(1024 / page)) << page;
    EXPECT_EQ(shared_pages(r[0], r[2]), 0u);
  }
  // Pages of several blocks.
  traffic.block_tokens = 16;
  traffic.rows = {row_of(100, {1, 2, 3, 4, 5, 6}), row_of(100, {1, 2, 3, 9, 5, 6})};
  const std::vector<SimulatedRequest> r = simulated_requests(traffic, 32);
  EXPECT_EQ(r[0].blocks.size(), 3u);
  EXPECT_EQ(shared_pages(r[0], r[1]), 1u);
}

TEST(PlanTraffic, MadeRequestsShareTheirPrefix) {
  TrafficOptions options;
  options.requests = 10;
  options.rate = 2;
  options.burstiness = kEvenArrivals;
  options.prompt = parse_length("100", "prompt");
  options.output = parse_length("7", "output");
  options.prefix_groups = 3;
  options.prefix_tokens = 200;
  const Trace traffic = make_traffic(options);
  EXPECT_DOUBLE_EQ(traffic.rows[4].arrival_s, 2);
  EXPECT_EQ(traffic.rows[4].prompt_tokens, 300);
  const std::vector<SimulatedRequest> r = simulated_requests(traffic, 16);
  EXPECT_EQ(shared_pages(r[0], r[3]), 12u);
  EXPECT_EQ(shared_pages(r[0], r[1]), 0u);
}

TEST(PlanTraffic, ChangesKeepTheRequests) {
  TrafficOptions options;
  options.requests = 1000;
  options.rate = 3;
  options.prompt = parse_length("lognormal:300,0.7", "prompt");
  options.output = parse_length("10..50", "output");
  const Trace traffic = make_traffic(options);
  const auto tokens = [](const Trace& t) {
    return std::accumulate(t.rows.begin(), t.rows.end(), 0.,
                           [](double sum, const TraceRow& row) { return sum + row.prompt_tokens; });
  };
  EXPECT_NEAR(with_rate(traffic, 4).requests_per_s(), 4 * traffic.requests_per_s(), 1e-9);
  EXPECT_NEAR(tokens(with_lengths(traffic, 1.5)) / tokens(traffic), 1.5, 0.01);
  const Trace bursts = with_bursts(traffic, 3);
  EXPECT_NEAR(bursts.duration_s() / traffic.duration_s(), 1, 0.1);
  for (const TraceRow& row : bursts.rows) EXPECT_LE(std::fmod(row.arrival_s, 30), 10 + 1e-9);
  EXPECT_TRUE(std::is_sorted(
      bursts.rows.begin(), bursts.rows.end(),
      [](const TraceRow& a, const TraceRow& b) { return a.arrival_s < b.arrival_s; }));
  const Trace part = between(traffic, 100, 200);
  EXPECT_NEAR(double(part.rows.size()), 300, 4 * std::sqrt(300.));
  EXPECT_GE(part.rows.front().arrival_s, 0);
  EXPECT_LT(part.rows.back().arrival_s, 100);
}

}  // namespace
}  // namespace ridge
