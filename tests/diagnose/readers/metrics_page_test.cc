#include "diagnose/readers/metrics_page.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>

#include "base/error.h"

namespace ridge {
namespace {

std::vector<MetricsPage> pages_of(std::string_view text) { return parse_metrics(text, "t.prom"); }

TEST(MetricsPage, ReadsNamesLabelsAndValues) {
  const auto pages = pages_of(
      "# HELP vllm:a Something.\n"
      "# TYPE vllm:a gauge\n"
      "vllm:a{model_name=\"m, \\\"q\\\" \\\\ \\n\",engine=\"0\",} 1.5\n"
      "b 2\r\n"
      "c{} +Inf\n"
      "d { le = \"+Inf\" , x=\"}\" } NaN 1700000000123\n"
      "e_total 1.15e+011 # {trace_id=\"x\"} 0.5 1.2\n"
      "  f -3\n"
      "# EOF\n");
  ASSERT_EQ(pages.size(), 1u);
  const MetricsPage& page = pages[0];
  ASSERT_EQ(page.samples.size(), 6u);
  EXPECT_EQ(page.samples[0].name, "vllm:a");
  EXPECT_EQ(page.samples[0].label("model_name"), "m, \"q\" \\ \n");
  EXPECT_EQ(page.samples[0].label("engine"), "0");
  EXPECT_EQ(page.samples[0].label("absent"), "");
  EXPECT_EQ(page.samples[0].value, 1.5);
  EXPECT_EQ(page.samples[1].name, "b");
  EXPECT_TRUE(std::isinf(page.samples[2].value));
  EXPECT_TRUE(std::isnan(page.samples[3].value));
  EXPECT_EQ(page.samples[3].label("x"), "}");
  EXPECT_EQ(page.samples[4].value, 1.15e11);
  EXPECT_EQ(page.samples[5].value, -3);
  ASSERT_TRUE(page.time_s);
  EXPECT_NEAR(*page.time_s, 1700000000.123, 1e-6);
  ASSERT_EQ(page.types.size(), 1u);
  EXPECT_EQ(page.types[0].second, "gauge");
  EXPECT_TRUE(page.notes.empty());
}

TEST(MetricsPage, SplitsScrapesWhereASeriesOccursAgain) {
  const auto pages = pages_of(
      "# TYPE a counter\na{x=\"1\"} 1\na{x=\"2\"} 1\nb 5\n"
      "# TYPE a counter\na{x=\"1\"} 4\na{x=\"2\"} 2\nb 6\n"
      "# TYPE a counter\na{x=\"1\"} 9\na{x=\"2\"} 3\nb 7\nnew 1\n");
  ASSERT_EQ(pages.size(), 3u);
  EXPECT_EQ(pages[1].samples.size(), 3u);
  EXPECT_EQ(pages[2].samples.size(), 4u);
  EXPECT_EQ(pages[2].samples[0].value, 9);
  for (const MetricsPage& page : pages) {
    ASSERT_EQ(page.types.size(), 1u);
    EXPECT_EQ(page.source, "t.prom");
  }
}

TEST(MetricsPage, ASeriesThatOccursTwiceOnOnePageSplitsNothing) {
  const auto pages = pages_of("a_x 1\nb_x 2\nc_x 3\na_x 7\nd_x 4\ne_x 5\nf_x 6\n");
  ASSERT_EQ(pages.size(), 1u);
  EXPECT_EQ(pages[0].samples.size(), 6u);
  EXPECT_EQ(pages[0].samples[0].value, 1);
  EXPECT_EQ(pages[0].notes.size(), 1u);
}

TEST(MetricsPage, TimesBetweenScrapes) {
  const auto unix_times = pages_of("1763288266\na_x 1\n1763288296.5\na_x 2\n");
  ASSERT_EQ(unix_times.size(), 2u);
  EXPECT_EQ(*unix_times[1].time_s - *unix_times[0].time_s, 30.5);
  const auto dates = pages_of(
      "# 2026-11-16T10:00:00Z\na_x 1\n=== 2026-11-16 10:00:20 ===\na_x 2\n"
      "Mon Nov 16 10:00:50 UTC 2026\na_x 3\n");
  ASSERT_EQ(dates.size(), 3u);
  EXPECT_EQ(*dates[1].time_s - *dates[0].time_s, 20);
  EXPECT_EQ(*dates[2].time_s - *dates[0].time_s, 50);
}

TEST(MetricsPage, HttpHeadersBeforeIt) {
  const auto pages = pages_of(
      "HTTP/1.1 200 OK\r\nDate: Mon, 16 Nov 2026 10:17:06 GMT\r\nContent-Type: text/plain\r\n\r\n"
      "a_x 1\r\n"
      "HTTP/1.1 200 OK\r\ndate: Mon, 16 Nov 2026 10:17:16 GMT\r\n\r\na_x 1\r\n");
  ASSERT_EQ(pages.size(), 2u);
  EXPECT_EQ(*pages[1].time_s - *pages[0].time_s, 10);
  EXPECT_TRUE(pages[0].notes.empty());
}

TEST(MetricsPage, LinesThatAreNoSamplesBecomeNotes) {
  const auto pages =
      pages_of("a_x 1\nwhat is this\nb_x one\nc_x{y=\"1\" 3\n<html>\nd_x{y=\"unfini");
  ASSERT_EQ(pages.size(), 1u);
  EXPECT_EQ(pages[0].samples.size(), 1u);
  ASSERT_EQ(pages[0].notes.size(), 5u);
  EXPECT_EQ(pages[0].notes[0], "t.prom: line 2: not a sample");
  EXPECT_EQ(pages[0].notes[4], "t.prom: line 6: the text is cut off");
  std::string many = "a_x 1\n";
  for (int i = 0; i < 100; ++i) many += "bad line here\n";
  EXPECT_LE(pages_of(many)[0].notes.size(), 6u);
  EXPECT_THROW(pages_of("no samples here\n"), Error);
  EXPECT_THROW(pages_of(""), Error);
}

TEST(MetricsPage, RecognisedByContent) {
  EXPECT_TRUE(is_prometheus_text("# HELP a b\n"));
  EXPECT_TRUE(is_prometheus_text("vllm:num_requests_running{engine=\"0\"} 3.0\n"));
  EXPECT_TRUE(is_prometheus_text("vllm:num_requests_running 3"));
  EXPECT_TRUE(is_prometheus_text("HTTP/1.1 200 OK\r\nServer: uvicorn\r\n\r\ntgi_queue_size 0\r\n"));
  EXPECT_TRUE(is_prometheus_text("\n\nDCGM_FI_DEV_SM_CLOCK{gpu=\"0\"} 300\nDCGM_FI_DEV_SM_"));
  for (const char* other :
       {"{\"a\": 1}", "timestamp, name, power.draw [W]\n2024/10/30 18:42:33.189, A10G, 22 W\n",
        "# gpu   pwr gtemp\n# Idx     W     C\n    0    43    48\n", "\"ID\",\"Process ID\"\n",
        "INFO 11-16 10:00:00 metrics.py:1] Avg prompt throughput: 1.0 tokens/s\n", "hello 3\n", "",
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,4808,10\n"}) {
    EXPECT_FALSE(is_prometheus_text(other)) << other;
  }
}

TEST(MetricsPage, ALargePageTakesMilliseconds) {
  std::string text;
  for (int i = 0; text.size() < 100000; ++i) {
    text += "vllm:time_to_first_token_seconds_bucket{engine=\"0\",le=\"" + std::to_string(i) +
            "\",model_name=\"meta-llama/Llama-3.1-8B-Instruct\"} 12345.0\n";
  }
  double best = 1e9;
  for (int i = 0; i < 5; ++i) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(pages_of(text).size(), 1u);
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::printf("100 KB page: %.2f ms\n", best * 1e3);
  EXPECT_LT(best, 1);  // two thousand times what it takes alone on a machine of 2026
}

}  // namespace
}  // namespace ridge
