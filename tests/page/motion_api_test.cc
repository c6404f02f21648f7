// The animations' traces: counters that add up to totals, and inputs that are refused in words.
#include "page/motion_api.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/error.h"
#include "predict/request.h"

namespace ridge {
namespace {

Json motion_answer(const char* path, const ApiOptions& options) {
  return answer(*find_api_endpoint(path), options);
}

std::string motion_fault(const char* path, const ApiOptions& options) {
  try {
    motion_answer(path, options);
  } catch (const OptionError& error) {
    return error.option();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

double sum_of(const Json& list, const char* field) {
  double sum = 0;
  for (const Json& each : list) sum += each[field].get<double>();
  return sum;
}

TEST(MotionAttention, MovesAddUpToThePredictedOperator) {
  for (const bool flash : {false, true}) {
    const Json trace =
        motion_answer("/api/attention", {{"model", "llama-3-8b"}, {"prompt", "8192"}});
    ApiOptions options{{"model", "llama-3-8b"}, {"prompt", "8192"}};
    if (!flash) options["no-flash"] = "true";
    const Json& form = trace[flash ? "tiled" : "plain"];
    const double moved = sum_of(form["moves"], "bytes");
    EXPECT_EQ(form["bytes"].get<double>(), moved);
    const Json prediction = motion_answer("/api/predict", options);
    for (const Json& op : prediction["ops"]) {
      if (op["phase"] != "prefill" || op["name"] != "attention") continue;
      EXPECT_NEAR(moved, op["bytes"].get<double>(), 1e-9 * moved);
      EXPECT_NEAR(form["flops"].get<double>(), op["flops"].get<double>(), 1e-9 * moved);
      EXPECT_EQ(form["expected_s"], op["expected_s"]);
    }
  }
}

TEST(MotionAttention, BothWaysAgreeWithinTheRoundingBound) {
  for (const char* n : {"8", "63", "64", "256"}) {
    for (const char* block : {"1", "5", "8"}) {
      for (const char* seed : {"1", "2", "77"}) {
        const Json row =
            motion_answer("/api/attention", {{"n", n}, {"block", block}, {"seed", seed}})["row"];
        EXPECT_LE(row["difference"].get<double>(), row["bound"].get<double>());
        EXPECT_LE(row["engine_difference"].get<double>(), row["bound"].get<double>());
        EXPECT_LT(row["bound"].get<double>(), 1e-3);
        EXPECT_EQ(row["blocks"].back()["output"], row["tiled"]);
        EXPECT_EQ(sum_of(row["blocks"], "keys"), row["n"].get<double>());
        double before = -INFINITY;
        for (const Json& block_json : row["blocks"]) {
          EXPECT_GE(block_json["m"].get<double>(), before);  // the maximum never falls
          before = block_json["m"];
        }
      }
    }
  }
}

TEST(MotionPages, PagesAreConserved) {
  const Json trace = motion_answer("/api/pages", {});
  const int pages = trace["pages"];
  std::map<int, int> references;
  std::set<std::string> kinds;
  for (const Json& e : trace["trace"]) {
    const std::string kind = e["kind"];
    kinds.insert(kind);
    if (e["page"].is_null()) continue;
    const int page = e["page"];
    if (kind == "acquire" || kind == "copy") {
      EXPECT_EQ(references[page]++, 0);
    }
    if (kind == "share") ++references[page];
    if (kind == "release") --references[page];
    if (kind == "copy") {
      EXPECT_GT(references[e["from"].get<int>()]--, 1);
      EXPECT_LT(e["tokens"].get<int>(), 16);  // only a partly filled page is copied
    }
    EXPECT_EQ(references[page], e["references"].get<int>()) << e.dump();
    int held = 0;
    for (const auto& [number, count] : references) held += count > 0;
    // A copy's old page is counted one event late: it stays held by the other sequence.
    EXPECT_EQ(held + e["free"].get<int>(), pages) << e.dump();
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"acquire", "append", "copy", "release", "share"}));
}

TEST(MotionPages, AnExhaustedPoolRefuses) {
  const Json trace = motion_answer("/api/pages", {{"pages", "2"}, {"script", "append A 40"}});
  EXPECT_EQ(trace["trace"].back()["kind"], "refused");
}

TEST(MotionSchedule, EqualTokensUnderEveryPolicy) {
  const Json trace = motion_answer("/api/schedule", {{"policy", "static,continuous,chunked"}});
  const double asked = sum_of(trace["requests"], "output");
  ASSERT_EQ(trace["runs"].size(), 3u);
  for (const Json& run : trace["runs"]) {
    EXPECT_EQ(run["tokens"].get<double>(), asked);
    EXPECT_EQ(run["redone_tokens"].get<double>(), 0);
    double drawn = 0, prompt = 0, end = 0;
    for (const Json& step : run["steps"]) {
      std::set<int> seats;
      EXPECT_GE(step["start_s"].get<double>(), end * (1 - 1e-12));
      end = step["start_s"].get<double>() + step["seconds"].get<double>();
      for (const Json& row : step["rows"]) {
        EXPECT_TRUE(seats.insert(row["seat"].get<int>()).second);
        EXPECT_LT(row["seat"].get<int>(), trace["seats"].get<int>());
        drawn += row["drawn"].get<bool>();
        prompt += row["prompt"].get<double>();
      }
    }
    EXPECT_EQ(drawn, asked);
    EXPECT_EQ(prompt, sum_of(trace["requests"], "prompt"));
    for (size_t i = 0; i < run["requests"].size(); ++i) {
      const Json& r = run["requests"][i];
      EXPECT_GE(r["scheduled_s"].get<double>(), trace["requests"][i]["arrival_s"].get<double>());
      EXPECT_GT(r["first_token_s"].get<double>(), r["scheduled_s"].get<double>());
      EXPECT_GE(r["end_s"].get<double>(), r["first_token_s"].get<double>());
    }
  }
  const auto total = [&](int run, const char* field) {
    return trace["runs"][size_t(run)][field].get<double>();
  };
  EXPECT_GT(total(1, "tokens_per_s"), total(0, "tokens_per_s"));
  EXPECT_GT(total(1, "useful_seats"), total(0, "useful_seats"));
  EXPECT_LT(total(2, "longest_pause_s"), total(1, "longest_pause_s"));
}

TEST(MotionSchedule, FewPagesPreemptAndTokensAreComputedAgain) {
  int preemptions = 0;
  for (const char* tokens : {"4400", "4700", "5000"}) {
    const Json trace = motion_answer(
        "/api/schedule",
        {{"policy", "continuous"}, {"machine", "h200"}, {"kv-tokens", tokens}, {"seed", "3"}});
    const Json& run = trace["runs"][0];
    EXPECT_EQ(run["preemptions"].get<int>() > 0, run["redone_tokens"].get<double>() > 0);
    preemptions += run["preemptions"].get<int>();
  }
  EXPECT_GT(preemptions, 0);
}

TEST(MotionSchedule, GivenArrivalsKeepTheirTimesAndAStaticBatchLetsNobodyIn) {
  const Json trace = motion_answer("/api/schedule", {{"policy", "static,continuous"},
                                                     {"seats", "4"},
                                                     {"arrivals", "0:100:20,0:50:4,0.001:64:8"}});
  ASSERT_EQ(trace["requests"].size(), 3u);
  EXPECT_EQ(trace["requests"][2]["arrival_s"].get<double>(), 0.001);
  EXPECT_EQ(trace["requests"][2]["prompt"].get<int>(), 64);
  const auto time = [&](size_t run, size_t request, const char* field) {
    return trace["runs"][run]["requests"][request][field].get<double>();
  };
  EXPECT_EQ(trace["runs"][0]["tokens"].get<double>(), 32);
  EXPECT_GE(time(0, 2, "scheduled_s"), time(0, 0, "end_s"));
  EXPECT_LT(time(1, 2, "scheduled_s"), time(1, 0, "end_s"));
}

TEST(MotionSpeculation, RoundsAddUpAndTheGainIsThePredictors) {
  const ApiOptions options{{"model", "llama-3-8b"},   {"machine", "h200"}, {"context", "1024"},
                           {"draft", "llama-3.2-1b"}, {"batch", "1"},      {"rounds", "64"}};
  const Json trace = motion_answer("/api/speculation", options);
  EXPECT_EQ(sum_of(trace["rounds"], "tokens"), trace["tokens"].get<double>());
  for (const Json& round : trace["rounds"]) {
    EXPECT_EQ(round["tokens"].get<int>(), round["accepted"].get<int>() + 1);
    EXPECT_LE(round["accepted"].get<int>(), 4);
  }
  const double round_s = trace["round_s"];
  EXPECT_NEAR(4 * trace["draft_s"].get<double>() + trace["verify_s"].get<double>(), round_s,
              1e-12 * round_s);
  EXPECT_NEAR(trace["gain"].get<double>(),
              trace["tokens_per_round"].get<double>() * trace["step_s"].get<double>() / round_s,
              1e-9);
}

TEST(MotionApi, NamesTheOptionAtFault) {
  EXPECT_EQ(motion_fault("/api/attention", {{"n", "4"}}), "n");
  EXPECT_EQ(motion_fault("/api/attention", {{"n", "1e9"}}), "n");
  EXPECT_EQ(motion_fault("/api/attention", {{"n", "nan"}}), "n");
  EXPECT_EQ(motion_fault("/api/attention", {{"n", "16"}, {"block", "17"}}), "block");
  EXPECT_EQ(motion_fault("/api/attention", {{"seed", "-1"}}), "seed");
  EXPECT_EQ(motion_fault("/api/pages", {{"pages", "0"}}), "pages");
  for (const char* script :
       {"append", "append A", "append A 0", "append A 99999", "append AB 1", "append a 1",
        "fork A B", "append A 1,fork A A", "finish A", "finish A 3", "write A 1", ",",
        "append A 4096,append A 1", "append A 1 2"}) {
    EXPECT_EQ(motion_fault("/api/pages", {{"script", script}}), "script") << script;
  }
  std::string many = "append A 1";
  for (int i = 0; i < 64; ++i) many += ",append A 1";
  EXPECT_EQ(motion_fault("/api/pages", {{"script", many}}), "script");
  EXPECT_EQ(motion_fault("/api/schedule", {{"policy", "greedy"}}), "policy");
  EXPECT_EQ(motion_fault("/api/schedule", {{"policy", "static,static,static,static"}}), "policy");
  EXPECT_EQ(motion_fault("/api/schedule", {{"seats", "17"}}), "seats");
  for (const char* arrivals : {"1", "0:1", "0:1:0", "0:0:1", "0:1:1:1", "1:1:1,0:1:1", "nan:1:1",
                               "-1:1:1", "0:999999:1", "0:1:99999999999", ",", "0;1;1"}) {
    EXPECT_EQ(motion_fault("/api/schedule", {{"arrivals", arrivals}}), "arrivals") << arrivals;
  }
  EXPECT_EQ(motion_fault("/api/schedule", {{"requests", "2.5"}}), "requests");
  EXPECT_EQ(motion_fault("/api/schedule", {{"kv-tokens", "32"}}), "kv-tokens");
  EXPECT_EQ(motion_fault("/api/speculation", {{"speculate", "0"}}), "speculate");
  EXPECT_EQ(motion_fault("/api/speculation", {{"rounds", "65"}}), "rounds");
}

}  // namespace
}  // namespace ridge
