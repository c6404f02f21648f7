// The API says what the command line says, and refuses in words what it cannot answer.
#include "page/api.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "diagnose/explain_options.h"
#include "diagnose/json.h"
#include "page/page.h"
#include "page/report.h"
#include "predict/json.h"
#include "support.h"

namespace ridge {
namespace {

Json ask(const char* path, const ApiOptions& options) {
  return answer(*find_api_endpoint(path), options);
}

std::string fault(const char* path, const ApiOptions& options) {
  try {
    ask(path, options);
  } catch (const OptionError& error) {
    return error.option() + ": " + error.what();
  } catch (const Error& error) {
    return error.what();
  }
  return "none";
}

TEST(Api, PredictsWhatTheCommandLinePredicts) {
  RequestOptions options;
  options.model = "llama-3-70b";
  options.machine = "8xh100-sxm";
  options.batch = "32";
  options.weights = "fp8";
  options.no_graphs = true;
  const Request request = make_request(options);
  const Json expected = to_json(request, predict(request));
  EXPECT_EQ(ask("/api/predict", {{"model", "llama-3-70b"},
                                 {"machine", "8xh100-sxm"},
                                 {"batch", "32"},
                                 {"weights", "fp8"},
                                 {"no-graphs", "true"}}),
            expected);
}

TEST(Api, ExplainsWhatTheCommandLineExplains) {
  ExplainOptions options;
  options.request = RequestOptions();
  options.request.context = "4096";
  options.stated[Quantity::tokens_per_s] = "280tok/s";
  options.stated[Quantity::batch] = "8";
  const Json expected = to_json(explain(options));
  EXPECT_EQ(ask("/api/explain", {{"context", "4096"}, {"observed", "280tok/s"}, {"batch", "8"}}),
            expected);
}

TEST(Api, NamesTheOptionAtFault) {
  EXPECT_TRUE(fault("/api/predict", {{"batch", "many"}}).starts_with("batch: "));
  EXPECT_TRUE(fault("/api/predict", {{"machine", "h1000"}}).starts_with("machine: "));
  EXPECT_TRUE(fault("/api/predict", {{"no-flash", "perhaps"}}).starts_with("no-flash: "));
  EXPECT_TRUE(fault("/api/predict", {{"batch", "1,2,4"}})
                  .starts_with("batch: --batch takes a single value"));
  EXPECT_TRUE(fault("/api/explain", {{"itl", "soon"}}).starts_with("itl: "));
  EXPECT_TRUE(fault("/api/users", {}).starts_with("target: "));
  EXPECT_TRUE(fault("/api/roofline", {{"compare", "h200,nothing"}}).starts_with("compare: "));
  EXPECT_NE(fault("/api/predict", {{"modle", "x"}}).find("did you mean model"), std::string::npos);
}

TEST(Api, ReadsNoFilesForStrangers) {
  EXPECT_NE(fault("/api/predict", {{"model", "/etc/passwd"}}).find("unknown model"),
            std::string::npos);
  EXPECT_NE(fault("/api/predict", {{"model", RIDGE_SOURCE_DIR "/atlas/models/llama-3-8b.json"}})
                .find("unknown model"),
            std::string::npos);
  EXPECT_NE(fault("/api/tiles", {{"machine", RIDGE_SOURCE_DIR "/atlas/machines/h200.json"}})
                .find("by name"),
            std::string::npos);
}

TEST(Api, BoundsTheWorkOfACall) {
  EXPECT_NE(fault("/api/sweep", {{"batch", "1..99999"}}).find("at most"), std::string::npos);
  EXPECT_NE(fault("/api/predict", {{"prompt", "1000000"}, {"chunk", "1"}}).find("too much"),
            std::string::npos);
}

TEST(Api, SweepMarksThePareto) {
  const Json sweep = ask("/api/sweep", {{"batch", "1,2,4..256"}, {"weights", "bf16,fp8"}});
  ASSERT_EQ(sweep["points"].size(), 18u);
  int marked = 0, unmarked = 0;
  for (const Json& a : sweep["points"]) {
    bool beaten = false;
    for (const Json& b : sweep["points"]) {
      const auto gain = [&](const char* key) {
        return b[key].get<double>() - a[key].get<double>();
      };
      const double user = gain("tokens_per_s_per_user"), device = gain("tokens_per_s_per_device");
      beaten |= b["fits"].get<bool>() && user >= 0 && device >= 0 && (user > 0 || device > 0);
    }
    EXPECT_EQ(a["pareto"].get<bool>(), a["fits"].get<bool>() && !beaten) << a.dump();
    marked += a["pareto"].get<bool>();
    unmarked += !a["pareto"].get<bool>();
  }
  EXPECT_GT(marked, 1);
  EXPECT_GT(unmarked, 1);
}

TEST(Api, UsersMeetTheTargetAndOneMoreDoesNot) {
  const ApiOptions base = {{"model", "llama-3-8b"}, {"machine", "h200"}, {"context", "1024"}};
  ApiOptions asked = base;
  asked["target"] = "12ms";
  const Json users = ask("/api/users", asked);
  const double most = users["by_latency"];
  ASSERT_GE(most, 1);
  const auto tpot = [&](double batch) {
    ApiOptions at = base;
    at["batch"] = std::to_string(static_cast<int>(batch));
    return ask("/api/predict", at)["tpot_s"].get<double>();
  };
  EXPECT_LE(tpot(most), 0.012);
  EXPECT_GT(tpot(most + 1), 0.012);
  EXPECT_LE(users["users"].get<double>(), users["by_memory"].get<double>());
}

TEST(Api, RooflinePlacesEveryOperatorAtItsTimes) {
  const Json view = ask("/api/roofline", {{"machine", "h200"}, {"compare", "b200,h100-sxm"}});
  EXPECT_EQ(view["machines"].size(), 3u);
  EXPECT_FALSE(view["sentence"].get<std::string>().empty());
  for (const Json& op : view["prediction"]["ops"]) {
    double longest = 0;
    for (const auto& [wall, seconds] : op["on_s"].items()) {
      longest = std::max(longest, seconds.get<double>());
    }
    EXPECT_GE(op["expected_s"].get<double>(), longest * (1 - 1e-9)) << op["name"];
  }
}

TEST(Api, RooflineSaysOnceThatItDoesNotFit) {
  const std::string text =
      ask("/api/roofline", {{"model", "llama-3-70b"}, {"machine", "h100-sxm"}})["sentence"];
  EXPECT_TRUE(text.starts_with("It does not fit: ")) << text;
  EXPECT_EQ(text.find(" fit", 13), std::string::npos) << text;
  EXPECT_NE(text.find("memory-bound"), std::string::npos) << text;
}

TEST(Api, SweepEndsAtTheLargestBatchThatFits) {
  const Json sweep = ask("/api/sweep", {{"model", "llama-3-8b"},
                                        {"machine", "h200"},
                                        {"context", "4096"},
                                        {"batch", "1,64,max"},
                                        {"weights", "bf16,int4"}});
  double before = 0;
  for (const Json& point : sweep["points"]) {
    if (point["batch"] != "max") continue;
    EXPECT_TRUE(point["fits"].get<bool>());
    EXPECT_GT(point["max_batch"].get<double>(), before);  // int4 leaves the cache more room
    before = point["max_batch"];
    ApiOptions same = {{"model", "llama-3-8b"}, {"machine", "h200"}, {"context", "4096"}};
    same["weights"] = point["weights"];
    same["batch"] = point["max_batch"].dump();
    EXPECT_EQ(ask("/api/predict", same)["tpot_s"], point["tpot_s"]);
  }
  EXPECT_GT(before, 64);
  const Json alone = ask("/api/predict", {{"machine", "h200"}, {"batch", "max"}});
  EXPECT_EQ(alone["decode"]["batch"], alone["memory"]["max_batch"]);
  // Where nothing fits there is no largest batch: one sequence, which does not fit.
  const Json never = ask("/api/predict", {{"model", "llama-3-70b"}, {"batch", "max"}});
  EXPECT_EQ(never["decode"]["batch"], 1);
  EXPECT_FALSE(never["memory"]["fits"].get<bool>());
  EXPECT_TRUE(fault("/api/predict", {{"batch", "max,2"}}).starts_with("batch: "));
}

TEST(Api, RooflineTellsWhatIsSwitchedOff) {
  const auto told = [](ApiOptions options) {
    options["context"] = "8192";
    return ask("/api/roofline", options)["techniques"].get<std::string>();
  };
  EXPECT_EQ(told({}), "");
  EXPECT_TRUE(
      told({{"no-flash", "true"}}).starts_with("FlashAttention is off: time to first token x"));
  EXPECT_NE(told({{"no-paging", "true"}, {"model", "llama-3.1-8b"}}).find("sequences that fit x0."),
            std::string::npos);
  EXPECT_NE(told({{"no-continuous", "true"}, {"batch", "32"}}).find("tokens per second x0."),
            std::string::npos);
  EXPECT_EQ(told({{"no-continuous", "true"}, {"batch", "1"}}),
            "Continuous batching is off, which changes nothing here.");
}

TEST(Api, TilesInFlightFollowLittlesLaw) {
  const Json tiles = ask("/api/tiles", {{"machine", "h200"}, {"stages", "1"}});
  EXPECT_DOUBLE_EQ(tiles["in_flight_bytes"].get<double>(),
                   tiles["memory_busy"].get<double>() * tiles["needed_bytes"].get<double>());
  EXPECT_LT(tiles["memory_busy"].get<double>(), 0.6);
}

TEST(Api, DescribesEveryEndpoint) {
  const Json api = openapi_json();
  for (const ApiEndpoint& endpoint : api_endpoints()) {
    EXPECT_TRUE(api["paths"].contains(endpoint.path)) << endpoint.path;
  }
  EXPECT_EQ(api["openapi"], "3.1.0");
}

TEST(PageReport, HoldsThePageAndItsAnswers) {
  const std::string html = report_html(
      {{"model", "llama-3-8b"}, {"machine", "h200"}, {"target", "50ms"}}, "</script><b>now");
  EXPECT_NE(html.find("id=\"frozen\""), std::string::npos);
  EXPECT_EQ(html.find("</script><b>now"), std::string::npos);  // nothing ends the script early
  EXPECT_EQ(html.find("src=\"/"), std::string::npos);
  EXPECT_EQ(html.find("href=\"/"), std::string::npos);
  EXPECT_THROW(report_html({{"model", "nothing"}}, ""), Error);
}

}  // namespace
}  // namespace ridge
