#include <gtest/gtest.h>

#include <atomic>

#include "base/error.h"
#include "diagnose/readers/live.h"
#include "diagnose/readers/metrics_window.h"
#include "load/fake_server.h"
#include "results_support.h"

namespace ridge {
namespace {

// A server that generates 1000 tokens between two scrapes.
FakeServer metrics_server(std::atomic<int>& scrapes, int broken_after = 1 << 30) {
  return FakeServer([&scrapes, broken_after](const FakeServer::Request& request,
                                             const FakeServer::Connection& connection) {
    if (request.path != "/metrics") return connection.reply(404, "no");
    const int number = scrapes++;
    if (number >= broken_after) return connection.reply(500, "no");
    return connection.reply(200, fmt::format("vllm:num_requests_running 3\n"
                                             "python_info 1\n"
                                             "vllm:generation_tokens_total {}\n",
                                             1000 * number));
  });
}

TEST(LiveMetrics, SamplesForATime) {
  std::atomic<int> scrapes = 0;
  const FakeServer server = metrics_server(scrapes);
  int ticks = 0;
  const auto pages = sample_metrics(fmt::format("http://127.0.0.1:{}", server.port()), 0.6, 0.1,
                                    [&ticks](double) { return ++ticks > 0; });
  ASSERT_GE(pages.size(), 3u);
  EXPECT_LE(pages.size(), 8u);
  EXPECT_EQ(ticks, int(pages.size()));
  EXPECT_EQ(pages[0].samples.size(), 2u);  // without Python's
  const double seconds = *pages.back().time_s - *pages.front().time_s;
  EXPECT_GE(seconds, 0.5);
  const EvidenceFile file = observe_metrics(pages, 0).front();
  EXPECT_NEAR(results_test::value_of(file, Quantity::tokens_per_s),
              1000 * double(pages.size() - 1) / seconds, 1e-3);
}

TEST(LiveMetrics, TwoScrapesAtLeastAndAnEarlyEnd) {
  std::atomic<int> scrapes = 0;
  const FakeServer server = metrics_server(scrapes);
  const std::string url = fmt::format("http://127.0.0.1:{}/metrics", server.port());
  EXPECT_EQ(sample_metrics(url, 0.1, 5, nullptr).size(), 2u);
  EXPECT_EQ(sample_metrics(url, 60, 0.05, [](double gone) { return gone < 0.12; }).size() < 10,
            true);
}

TEST(LiveMetrics, OneClearLineWhereItFails) {
  std::atomic<int> scrapes = 0;
  const FakeServer server = metrics_server(scrapes, 2);
  const std::string host = fmt::format("http://127.0.0.1:{}", server.port());
  EXPECT_THROW(sample_metrics(host + "/other", 1, 1, nullptr), Error);
  EXPECT_THROW(sample_metrics("ftp://x", 1, 1, nullptr), Error);
  EXPECT_THROW(sample_metrics("http://127.0.0.1:1", 1, 1, nullptr), Error);
  const auto pages = sample_metrics(host, 0.3, 0.1, nullptr);  // later failures become notes
  EXPECT_EQ(pages.size(), 2u);
  ASSERT_EQ(pages.back().notes.size(), 1u);
  EXPECT_NE(pages.back().notes[0].find("status 500"), std::string::npos);
}

}  // namespace
}  // namespace ridge
