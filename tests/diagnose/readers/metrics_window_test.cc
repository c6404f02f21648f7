#include "diagnose/readers/metrics_window.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "results_support.h"

namespace ridge {
namespace {

using results_test::has_note;
using results_test::observed_value;
using results_test::value_of;
using Q = Quantity;

std::vector<EvidenceFile> observe_texts(const std::vector<std::string>& texts, double window_s) {
  std::vector<MetricsPage> pages;
  for (const std::string& text : texts) {
    for (MetricsPage& page : parse_metrics(text, fmt::format("page{}", pages.size()))) {
      pages.push_back(std::move(page));
    }
  }
  return observe_metrics(pages, window_s);
}
EvidenceFile observe_one(const std::vector<std::string>& texts, double window_s = 0) {
  const std::vector<EvidenceFile> files = observe_texts(texts, window_s);
  EXPECT_EQ(files.size(), 1u);
  return files.front();
}

// An invented vLLM page after `steps` steps of 20 ms with 32 sequences each.
std::string vllm_page(double steps, double running = 32, const char* extra = "") {
  const double tokens = steps * 32;
  return fmt::format(
      "# TYPE vllm:num_requests_running gauge\n"
      "vllm:num_requests_running{{engine=\"0\",model_name=\"m\"}} {}\n"
      "vllm:num_requests_waiting{{engine=\"0\",model_name=\"m\"}} 4\n"
      "vllm:kv_cache_usage_perc{{engine=\"0\",model_name=\"m\"}} 0.5\n"
      "vllm:generation_tokens_total{{engine=\"0\",model_name=\"m\"}} {}\n"
      "vllm:generation_tokens_created{{engine=\"0\",model_name=\"m\"}} 1.7e9\n"
      "vllm:inter_token_latency_seconds_sum{{engine=\"0\",model_name=\"m\"}} {}\n"
      "vllm:inter_token_latency_seconds_count{{engine=\"0\",model_name=\"m\"}} {}\n"
      "vllm:iteration_tokens_total_sum{{engine=\"0\",model_name=\"m\"}} {}\n"
      "vllm:iteration_tokens_total_count{{engine=\"0\",model_name=\"m\"}} {}\n{}",
      running, tokens, tokens * 0.02, tokens, tokens + steps, steps, extra);
}

TEST(MetricsWindow, DifferencesOfTwoSnapshots) {
  const EvidenceFile file = observe_one({vllm_page(1000), vllm_page(2500, 30)}, 30);
  EXPECT_EQ(file.kind, "vLLM metrics (v1)");
  EXPECT_EQ(file.setup.engine, "vllm");
  EXPECT_EQ(file.setup.model, "m");
  EXPECT_EQ(file.window, "30.0 s between 2 snapshots");
  EXPECT_EQ(file.path, "page0, page1");
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 1600);
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl), 0.02);
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_step), 33);
  EXPECT_DOUBLE_EQ(value_of(file, Q::step_time), 0.02);
  EXPECT_DOUBLE_EQ(value_of(file, Q::running), 31);
  EXPECT_DOUBLE_EQ(value_of(file, Q::waiting), 4);
  EXPECT_DOUBLE_EQ(value_of(file, Q::kv_usage), 0.5);
  EXPECT_TRUE(file.unknown.empty());
  for (const Observed& o : file.observed) {
    const bool gauge =
        o.quantity == Q::running || o.quantity == Q::waiting || o.quantity == Q::kv_usage;
    EXPECT_EQ(o.trust, gauge ? Trust::instant : Trust::window) << quantity_info(o.quantity).name;
    EXPECT_EQ(o.window_s, 30);
    EXPECT_FALSE(o.origin.empty());
  }
}

TEST(MetricsWindow, ManySnapshotsAverageTheGauges) {
  std::vector<std::string> texts;
  for (int i = 0; i < 6; ++i) texts.push_back(vllm_page(1000 + 50 * i, 10 + i));
  const EvidenceFile file = observe_one(texts, 5);
  EXPECT_DOUBLE_EQ(value_of(file, Q::running), 12.5);
  EXPECT_EQ(file.observed.front().trust, Trust::window);
  EXPECT_DOUBLE_EQ(value_of(file, Q::step_time), 0.02);
}

TEST(MetricsWindow, AnIdleEngineHasNoStepTime) {
  const EvidenceFile file = observe_one({vllm_page(1000), vllm_page(1010, 0)}, 30);
  EXPECT_FALSE(observed_value(file, Q::step_time));
  EXPECT_TRUE(observed_value(file, Q::tokens_per_step));
}

TEST(MetricsWindow, OneSnapshotIsALifetime) {
  const EvidenceFile file = observe_one({vllm_page(1000)});
  EXPECT_EQ(file.window, "since the server's start");
  EXPECT_FALSE(observed_value(file, Q::tokens_per_s));
  EXPECT_FALSE(observed_value(file, Q::step_time));
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl), 0.02);
  for (const Observed& o : file.observed) EXPECT_NE(o.trust, Trust::window);
}

TEST(MetricsWindow, TheSpanOfOneSnapshotNeedsItsOwnTime) {
  const std::string text = vllm_page(1000, 32, "process_start_time_seconds 1.7e9\n");
  std::vector<MetricsPage> pages = parse_metrics(text, "p");
  pages[0].time_s = 1.7e9 + 100;
  EvidenceFile file = observe_metrics(pages, 0).front();
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 320);
  EXPECT_EQ(file.window, "since the server's start, 1 m 40 s");
  pages[0].time_from_file = true;  // a hint: words, and no rates
  file = observe_metrics(pages, 0).front();
  EXPECT_FALSE(observed_value(file, Q::tokens_per_s));
  EXPECT_NE(file.window.find("modification time"), std::string::npos);
  pages[0].time_s = 1.6e9;  // before the start
  EXPECT_EQ(observe_metrics(pages, 0).front().window, "since the server's start");
}

TEST(MetricsWindow, PagesAreOrderedByTheirTimes) {
  std::vector<MetricsPage> pages;
  for (const double steps : {2000., 1000.}) {
    pages.push_back(parse_metrics(vllm_page(steps), "p").front());
    pages.back().time_s = 5e5 + steps / 50;
  }
  EXPECT_DOUBLE_EQ(value_of(observe_metrics(pages, 0).front(), Q::tokens_per_s), 1600);
  for (MetricsPage& page : pages) page.time_from_file = true;
  const EvidenceFile file = observe_metrics(pages, 0).front();
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 1600);
  EXPECT_NE(file.window.find("modification times"), std::string::npos);
  for (MetricsPage& page : pages) page.time_s = 5e5;  // unpacked together
  EXPECT_FALSE(observed_value(observe_metrics(pages, 0).front(), Q::tokens_per_s));
}

TEST(MetricsWindow, SnapshotsInTheWrongOrderAreTurned) {
  const EvidenceFile file = observe_one({vllm_page(2500), vllm_page(1000)}, 30);
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 1600);
  EXPECT_TRUE(has_note(file, "newest first"));
}

TEST(MetricsWindow, WithoutATimeThereAreNoRates) {
  const EvidenceFile file = observe_one({vllm_page(1000), vllm_page(2500)});
  EXPECT_FALSE(observed_value(file, Q::tokens_per_s));
  EXPECT_FALSE(observed_value(file, Q::step_time));
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl), 0.02);
  EXPECT_TRUE(has_note(file, "not known"));
}

TEST(MetricsWindow, ARestartBeginsTheWindow) {
  // Three snapshots ten seconds apart; the server restarts between the first two.
  const EvidenceFile file = observe_one({vllm_page(9000), vllm_page(100), vllm_page(600)}, 20);
  EXPECT_DOUBLE_EQ(value_of(file, Q::tokens_per_s), 1600);
  EXPECT_TRUE(has_note(file, "restarted"));
  // Between two: what the new server counted since its start.
  const char* first = "process_start_time_seconds 1000\n";
  const char* second = "process_start_time_seconds 2000\n";
  const EvidenceFile last =
      observe_one({vllm_page(9000, 32, first), vllm_page(100, 32, second)}, 20);
  EXPECT_DOUBLE_EQ(value_of(last, Q::itl), 0.02);
  EXPECT_FALSE(observed_value(last, Q::tokens_per_s));
  EXPECT_EQ(last.window, "since the server's start");
}

TEST(MetricsWindow, TimesOfCopiedFilesAreFoundOut) {
  std::vector<MetricsPage> pages;
  for (const double steps : {1000., 4000.}) {  // 60 s of steps
    pages.push_back(parse_metrics(vllm_page(steps), "p").front());
    pages.back().time_s = 1.7e9 + steps / 1000;  // written three seconds apart
    pages.back().time_from_file = true;
  }
  EvidenceFile file = observe_metrics(pages, 0).front();
  EXPECT_FALSE(observed_value(file, Q::tokens_per_s));
  EXPECT_TRUE(has_note(file, "not known"));
  EXPECT_DOUBLE_EQ(value_of(observe_metrics(pages, 60).front(), Q::tokens_per_s), 1600);
}

TEST(MetricsWindow, APartOfAPageIsNoFirstSnapshot) {
  const char* part = "vllm:num_requests_running{engine=\"0\",model_name=\"m\"} 32\n";
  const EvidenceFile file = observe_one({part, vllm_page(2500)}, 30);
  EXPECT_FALSE(observed_value(file, Q::tokens_per_s));
  EXPECT_FALSE(observed_value(file, Q::itl));
  EXPECT_EQ(value_of(file, Q::running), 32);
  EXPECT_TRUE(has_note(file, "lacks metrics"));
  // A counter that appears later began at zero.
  const EvidenceFile later =
      observe_one({vllm_page(1000), vllm_page(2500, 32, "vllm:num_preemptions_total 5\n")}, 30);
  EXPECT_EQ(value_of(later, Q::preemptions), 5);
}

TEST(MetricsWindow, NothingFinishedGivesNoMeans) {
  const EvidenceFile file = observe_one({vllm_page(1000), vllm_page(1000, 0)}, 30);
  EXPECT_EQ(value_of(file, Q::tokens_per_s), 0);
  for (const Q q : {Q::itl, Q::tokens_per_step, Q::step_time, Q::ttft}) {
    EXPECT_FALSE(observed_value(file, q));
  }
}

TEST(MetricsWindow, EnginesAddUpAndRanksDoNot) {
  std::string text;
  for (const char* dp : {"0", "1"}) {
    for (const char* tp : {"1", "0", "2"}) {
      text += fmt::format(
          "sglang:num_running_reqs{{dp_rank=\"{0}\",tp_rank=\"{1}\",pp_rank=\"0\"}} 5\n"
          "sglang:token_usage{{dp_rank=\"{0}\",tp_rank=\"{1}\",pp_rank=\"0\"}} 0.{0}5\n"
          "sglang:max_total_num_tokens{{dp_rank=\"{0}\",tp_rank=\"{1}\",pp_rank=\"0\"}} 1000\n",
          dp, tp);
    }
  }
  const EvidenceFile file = observe_one({text});
  EXPECT_EQ(value_of(file, Q::running), 10);
  EXPECT_EQ(value_of(file, Q::kv_tokens), 2000);
  EXPECT_DOUBLE_EQ(value_of(file, Q::kv_usage), 0.1);
  EXPECT_EQ(file.setup.dp, 2);
}

TEST(MetricsWindow, QuantilesInsideBuckets) {
  const auto histogram = [](double a, double b, double c, double all, double sum) {
    return fmt::format(
        "vllm:inter_token_latency_seconds_bucket{{le=\"0.01\"}} {}\n"
        "vllm:inter_token_latency_seconds_bucket{{le=\"0.02\"}} {}\n"
        "vllm:inter_token_latency_seconds_bucket{{le=\"0.04\"}} {}\n"
        "vllm:inter_token_latency_seconds_bucket{{le=\"+Inf\"}} {}\n"
        "vllm:inter_token_latency_seconds_sum {}\n"
        "vllm:inter_token_latency_seconds_count {}\n",
        a, b, c, all, sum, all);
  };
  EvidenceFile file = observe_one({histogram(0, 800, 1000, 1000, 19)});
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl_p50), 0.01 + 0.01 * 500 / 800);
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl_p99), 0.02 + 0.02 * 190 / 200);
  file = observe_one({histogram(0, 800, 1000, 1000, 12)});  // the mean lies in the same bucket
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl_p50), 0.012);
  file = observe_one({histogram(900, 950, 950, 1000, 12)});
  EXPECT_FALSE(observed_value(file, Q::itl_p50));
  EXPECT_FALSE(observed_value(file, Q::itl_p99));
  EXPECT_TRUE(has_note(file, "below 0.01 s"));
  EXPECT_TRUE(has_note(file, "above 0.04 s"));
  file = observe_one({histogram(0, 8, 10, 10, 0.19)});  // ten observations have no 99th percentile
  EXPECT_TRUE(observed_value(file, Q::itl_p50));
  EXPECT_FALSE(observed_value(file, Q::itl_p99));
  file = observe_one({histogram(0, 800, 700, 1000, 19)});
  EXPECT_TRUE(has_note(file, "do not add up"));
  // Of the window, not of the lifetime.
  file =
      observe_one({histogram(5000, 5000, 5000, 5000, 1), histogram(5000, 5800, 6000, 6000, 20)}, 1);
  EXPECT_DOUBLE_EQ(value_of(file, Q::itl_p50), 0.01 + 0.01 * 500 / 800);
}

TEST(MetricsWindow, ValuesThatCannotBe) {
  const EvidenceFile file = observe_one(
      {"vllm:num_requests_running NaN\nvllm:num_requests_waiting -3\n"
       "vllm:kv_cache_usage_perc 57\nvllm:generation_tokens_total +Inf\n"
       "vllm:e2e_request_latency_seconds_sum -5\nvllm:e2e_request_latency_seconds_count 5\n"
       "vllm:num_preemptions_total 1\n"});
  EXPECT_FALSE(observed_value(file, Q::running));
  EXPECT_FALSE(observed_value(file, Q::waiting));
  EXPECT_FALSE(observed_value(file, Q::kv_usage));
  EXPECT_TRUE(has_note(file, "num_requests_waiting: -3"));
  EXPECT_TRUE(has_note(file, "kv_cache_usage_perc: 57"));
  EXPECT_EQ(value_of(file, Q::preemptions), 1);
}

TEST(MetricsWindow, UnknownNamesAreListed) {
  const EvidenceFile file = observe_one(
      {vllm_page(10, 1,
                 "vllm:brand_new_thing_total 3\nvllm:other_seconds_bucket{le=\"1\"} 0\n"
                 "vllm:other_seconds_sum 1\nvllm:request_params_n_count 1\nhttp_x 1\n")});
  EXPECT_EQ(file.unknown, (std::vector<std::string>{"vllm:brand_new_thing", "vllm:other_seconds"}));
}

TEST(MetricsWindow, MixedPagesGiveAFileEach) {
  const std::string device = "DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-1\"} 90\n";
  const std::vector<EvidenceFile> files =
      observe_texts({vllm_page(1000), device, "tgi_queue_size 3\n", vllm_page(2500)}, 0);
  ASSERT_EQ(files.size(), 3u);
  EXPECT_EQ(files[0].setup.engine, "vllm");
  EXPECT_EQ(files[0].path, "page0, page3");
  EXPECT_EQ(files[1].setup.engine, "tgi");
  EXPECT_EQ(files[2].kind, "dcgm-exporter metrics");
  EXPECT_EQ(files[2].path, "page1");
  EXPECT_EQ(value_of(files[1], Q::waiting), 3);
}

TEST(MetricsWindow, OtherPagesAreAnError) {
  EXPECT_THROW(observe_texts({"node_cpu_seconds_total 5\n"}, 0), Error);
  EXPECT_THROW(observe_metrics({}, 0), Error);
}

TEST(MetricsWindow, ABusyServerProcessIsNoted) {
  const EvidenceFile file = observe_one({vllm_page(1000, 8, "process_cpu_seconds_total 100\n"),
                                         vllm_page(2000, 8, "process_cpu_seconds_total 129\n")},
                                        30);
  EXPECT_TRUE(has_note(file, "0.97 CPU cores"));
}

}  // namespace
}  // namespace ridge
