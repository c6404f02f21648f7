// The figures: what a stream says, percentiles by hand, goodput, vLLM's names, the server's sums.
#include "load/summary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "load/completion_stream.h"
#include "serving/metrics.h"

namespace ridge {
namespace {

std::vector<std::string> events_of(const std::vector<std::string>& pieces) {
  EventStream stream;
  std::vector<std::string> events;
  for (const std::string& piece : pieces) {
    EXPECT_TRUE(stream.push(piece, [&](std::string_view data) { events.emplace_back(data); }));
  }
  return events;
}

TEST(EventStream, GivesTheSameEventsHoweverTheBytesAreCut) {
  const std::string text =
      ": ping\n\ndata: one\n\nevent: x\r\ndata:two\r\ndata: lines\r\n\r\nid: 3\n\ndata: "
      "[DONE]\n\nda";
  const std::vector<std::string> wanted{"one", "two\nlines", "[DONE]"};
  EXPECT_EQ(events_of({text}), wanted);
  for (size_t cut = 1; cut < text.size(); ++cut) {
    EXPECT_EQ(events_of({text.substr(0, cut), text.substr(cut)}), wanted) << cut;
  }
  EventStream endless;
  const std::string piece(1 << 20, 'x');
  bool read = true;
  for (int i = 0; i < 20 && read; ++i) read = endless.push(piece, [](std::string_view) {});
  EXPECT_FALSE(read);
}

// Times as vLLM's benchmark takes them: the role chunk is the first, the usage chunk none.
TEST(CompletionStream, TimesAnAnswer) {
  CompletionStream stream;
  stream.keep_text = true;
  stream.start(10);
  const auto event = [&](double time, const std::string& data) {
    stream.push("data: " + data + "\n\n", time);
  };
  event(10.5, R"({"choices":[{"delta":{"role":"assistant","content":null}}]})");
  event(10.6, R"({"choices":[{"delta":{"content":"a"}}]})");
  event(10.8, R"({"choices":[{"delta":{"content":"b"}}]})");
  EXPECT_FALSE(stream.whole());
  EXPECT_EQ(stream.output_tokens(), 2);
  event(10.9, R"({"choices":[{"delta":{},"finish_reason":"stop"}]})");
  event(11.9, R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5,)"
              R"("prompt_tokens_details":{"cached_tokens":4}}})");
  event(12.9, "[DONE]");
  EXPECT_TRUE(stream.whole());
  EXPECT_EQ(stream.first_s(), 10.5);
  EXPECT_EQ(stream.last_s(), 10.9);
  ASSERT_EQ(stream.gaps().size(), 1u);
  EXPECT_NEAR(stream.gaps()[0], 0.2, 1e-6);
  EXPECT_EQ(stream.prompt_tokens(), 7);
  EXPECT_EQ(stream.output_tokens(), 5);
  EXPECT_EQ(stream.cached_tokens(), 4);
  EXPECT_EQ(stream.text(), "ab");
  EXPECT_EQ(stream.error(), "");
}

TEST(CompletionStream, SurvivesWhatIsNoAnswer) {
  const auto pushed = [](const std::string& data) {
    CompletionStream stream;
    stream.start(0);
    stream.push("data: " + data + "\n\n", 1);
    return stream;
  };
  EXPECT_TRUE(pushed("{").malformed());
  EXPECT_TRUE(pushed("[]").malformed());
  EXPECT_TRUE(pushed("\xff").malformed());
  EXPECT_EQ(pushed(R"({"error":{"message":"no room"}})").error(), "no room");
  EXPECT_EQ(pushed(R"({"error":"no room"})").error(), "no room");
  for (const char* odd : {R"({"choices":{}})", R"({"choices":[1]})", R"({"choices":[{"text":3}]})",
                          R"({"choices":[{"delta":[]}],"usage":[]})", R"({"choices":[[]]})",
                          R"({"usage":{"completion_tokens":-1,"prompt_tokens":1e300}})"}) {
    const CompletionStream stream = pushed(odd);
    EXPECT_FALSE(stream.malformed()) << odd;
    EXPECT_EQ(stream.output_tokens(), 0) << odd;
  }
  CompletionStream refused;
  refused.push_error(R"({"error":{"mess)");
  refused.push_error(R"(age":"queue is full"}})");
  EXPECT_EQ(refused.error(), "queue is full");
}

TEST(LoadSummary, PercentilesByHand) {
  const Percentiles p = percentiles_of({5, 1, 4, 2, 3});
  EXPECT_EQ(p.count, 5u);
  EXPECT_NEAR(p.mean, 3, 1e-12);
  EXPECT_NEAR(p.deviation, std::sqrt(2.), 1e-12);
  EXPECT_NEAR(p.p50, 3, 1e-12);
  EXPECT_NEAR(p.p90, 4.6, 1e-12);  // 1 + 4 * 0.9
  EXPECT_NEAR(p.p95, 4.8, 1e-12);
  EXPECT_NEAR(p.p99, 4.96, 1e-12);
  EXPECT_EQ(p.max, 5);
  EXPECT_NEAR(percentiles_of({1, 2}).p50, 1.5, 1e-12);
  EXPECT_EQ(percentiles_of({7}).p99, 7);
  EXPECT_EQ(percentiles_of({}).p99, 0);
}

LoadRecord three_requests() {
  LoadRecord record;
  record.duration_s = 4;
  record.peak_in_flight = 2;
  record.itl_s = {0.1f, 0.1f, 0.2f};
  record.chunks_per_second = {3, 9, 1};
  const auto add = [&](double ttft, double latency, int tokens, const char* error) {
    LoadRequest request;
    request.ttft_s = ttft;
    request.latency_s = latency;
    request.prompt_tokens = 100;
    request.output_tokens = tokens;
    request.has_usage = true;
    request.error = error;
    record.requests.push_back(request);
  };
  add(0.1, 1.1, 11, "");    // TPOT 0.1
  add(0.3, 0.7, 5, "");     // TPOT 0.1
  add(0.2, 0.2, 1, "");     // no TPOT
  add(0.9, 0.9, 4, "cut");  // counts for nothing
  return record;
}

TEST(LoadSummary, CountsCompletedRequests) {
  const GoodputTargets targets = parse_goodput({"ttft:250", "e2el:1000"});
  const LoadSummary s = summarize(three_requests(), targets);
  EXPECT_EQ(s.completed, 3);
  EXPECT_EQ(s.failed, 1);
  EXPECT_EQ(s.errors.at("cut"), 1);
  EXPECT_EQ(s.good, 1);  // the third: the first is too long, the second starts too late
  EXPECT_EQ(s.input_tokens, 300);
  EXPECT_EQ(s.output_tokens, 17);
  EXPECT_EQ(s.tpot.count, 2u);
  EXPECT_NEAR(s.tpot.mean, 0.1, 1e-12);
  EXPECT_NEAR(s.ttft.mean, 0.2, 1e-12);
  EXPECT_NEAR(s.ttft.p50, 0.2, 1e-12);
  EXPECT_EQ(s.itl.count, 3u);
}

TEST(LoadSummary, JsonHasTheNamesOfVllmBenchServe) {
  const LoadSummary s = summarize(three_requests(), parse_goodput({"tpot:50"}));
  LoadDescription load;
  load.model = "m";
  load.planned = 4;
  load.concurrency = 2;
  const Json json = load_json(load, s, std::nullopt);
  EXPECT_EQ(json["completed"], 3);
  EXPECT_EQ(json["failed"], 1);
  EXPECT_EQ(json["num_prompts"], 4);
  EXPECT_EQ(json["request_rate"], "inf");
  EXPECT_EQ(json["max_concurrency"], 2);
  EXPECT_EQ(json["total_input_tokens"], 300);
  EXPECT_EQ(json["total_output_tokens"], 17);
  EXPECT_EQ(json["max_output_tokens_per_s"], 9);
  EXPECT_EQ(json["max_concurrent_requests"], 2);
  EXPECT_NEAR(json["request_throughput"].get<double>(), 0.75, 1e-12);
  EXPECT_NEAR(json["output_throughput"].get<double>(), 17 / 4., 1e-12);
  EXPECT_NEAR(json["total_token_throughput"].get<double>(), 317 / 4., 1e-12);
  EXPECT_NEAR(json["request_goodput"].get<double>(), 0.25, 1e-12);  // one token: TPOT 0
  EXPECT_NEAR(json["mean_ttft_ms"].get<double>(), 200, 1e-9);
  EXPECT_NEAR(json["median_e2el_ms"].get<double>(), 700, 1e-9);
  for (const char* metric : {"ttft", "tpot", "itl", "e2el"}) {
    for (const char* what : {"mean", "median", "std", "p50", "p90", "p95", "p99"}) {
      EXPECT_TRUE(json.contains(fmt::format("{}_{}_ms", what, metric)));
    }
  }
  EXPECT_EQ(json["ridge"]["errors"]["cut"], 1);
}

TEST(LoadSummary, BadTargetsAreNamed) {
  for (const char* text : {"ttft", "ttft:", "ttft:x", "tpot:-1", "tpot:0", "speed:3", ":5", ""}) {
    EXPECT_THROW(parse_goodput({text}), OptionError) << text;
  }
}

TEST(ServerTotals, AreTheDifferenceOfTheServersOwnMetrics) {
  ServingMetrics metrics({.model_name = "m", .page_tokens = 16, .pages = 4, .max_context = 64});
  const StepReport decode{.measured_s = 0.004,
                          .predicted_s = 0.003,
                          .roof_s = 0.002,
                          .host_gap_s = 0.001,
                          .decode_sequences = 2,
                          .drafted_sequences = 1,
                          .draft_tokens = 4,
                          .accepted_tokens = 3};
  metrics.on_step(decode);
  const auto before = parse_server_totals(metrics.text());
  ASSERT_TRUE(before);
  metrics.on_step(decode);
  metrics.on_step(decode);
  metrics.on_step({.measured_s = 0.02, .prefill_tokens = 9, .decode_sequences = 1});
  const ServerTotals d = *parse_server_totals(metrics.text()) - *before;
  EXPECT_EQ(d.phases[0].steps, 0);
  EXPECT_EQ(d.phases[1].steps, 2);
  EXPECT_NEAR(d.phases[1].measured_s, 0.008, 1e-9);
  EXPECT_NEAR(d.phases[1].predicted_s, 0.006, 1e-9);
  EXPECT_NEAR(d.phases[1].roof_s, 0.004, 1e-9);
  EXPECT_EQ(d.phases[2].steps, 1);
  EXPECT_EQ(d.phases[2].predicted_steps, 0);
  EXPECT_NEAR(d.gap_s, 0.002, 1e-9);
  EXPECT_EQ(d.drafts, 8);
  EXPECT_EQ(d.accepted, 6);
  EXPECT_FALSE(parse_server_totals("# HELP x y\nvllm:num_requests_running 1\n\nx{ 3\n{} y"));
}

}  // namespace
}  // namespace ridge
