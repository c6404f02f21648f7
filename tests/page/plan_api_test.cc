// /api/plan answers as `ridge plan --json` does, and refuses what a server should not begin.
#include "page/plan_api.h"

#include <gtest/gtest.h>

#include <atomic>

#include "base/error.h"
#include "plan/json.h"
#include "plan/plan_options.h"
#include "support.h"

namespace ridge {
namespace {

const ApiOptions kSmall = {{"model", "llama-3-8b"}, {"machine", "h100-sxm,l40s=1.5"},
                           {"rate", "8"},           {"prompt", "600"},
                           {"output", "100"},       {"ttft", "1s"},
                           {"itl", "40ms"},         {"count", "1500"}};

TEST(PlanApi, AnswersAsTheCommandLineDoes) {
  PlanOptions options;
  options.request.model = "llama-3-8b";
  options.request.machine = "h100-sxm,l40s=1.5";
  options.rate = 8;
  options.prompt = "600";
  options.output = "100";
  options.ttft = "1s";
  options.itl = "40ms";
  options.count = 1500;
  const PlanTask task = plan_task(options);
  const Json expected = plan_answer_json(task, make_plan(options, task, plan_candidates(options)));
  const Json got = plan_answer_for(kSmall);
  EXPECT_EQ(got, expected);
  EXPECT_FALSE(got["best"].is_null());
  EXPECT_EQ(task.prices.at("l40s"), 1.5);
}

TEST(PlanApi, RefusesInOneLine) {
  const auto fault = [](const ApiOptions& changes) -> std::string {
    ApiOptions options = kSmall;
    for (const auto& [name, value] : changes) options[name] = value;
    try {
      plan_answer_for(options);
    } catch (const OptionError& error) {
      return error.option() + ": " + error.what();
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_TRUE(fault({{"rate", "many"}}).starts_with("rate: "));
  EXPECT_TRUE(fault({{"rate", "nan"}}).starts_with("rate: "));
  EXPECT_TRUE(fault({{"clients", "5"}}).starts_with("rate: "));
  EXPECT_TRUE(fault({{"clients", "1.5"}, {"rate", ""}}).starts_with("clients: "));
  EXPECT_TRUE(fault({{"itl", "soon"}}).starts_with("itl: "));
  EXPECT_TRUE(fault({{"output", "100000"}}).starts_with("output: "));
  EXPECT_TRUE(fault({{"count", "1000000"}}).starts_with("count: "));
  EXPECT_TRUE(fault({{"max-machines", "100000"}}).starts_with("max-machines: "));
  EXPECT_NE(fault({{"ttft", ""}, {"itl", ""}}).find("needs a target"), std::string::npos);
  EXPECT_NE(fault({{"rate", ""}}).find("needs traffic"), std::string::npos);
  EXPECT_NE(fault({{"machine", "/etc/passwd"}}).find("by name"), std::string::npos);
  EXPECT_NE(fault({{"machine", "h100-sxm=cheap"}}).find("price"), std::string::npos);
  EXPECT_NE(
      fault({{"weights", "bf16,fp8,int8,int4"}, {"kv", "bf16,fp8"}, {"machine", ""}}).find("128"),
      std::string::npos);
}

TEST(PlanApi, ASearchEndsWhereItsLimitsSaySo) {
  PlanOptions options;
  options.request.machine = "h100-sxm";
  options.rate = 8;
  options.itl = "40ms";
  PlanTask task = plan_task(options);
  std::atomic<int> looks = 0;
  task.check_limits = [&] {
    if (++looks == 10) throw Error("enough");
  };
  EXPECT_THROW(search_plan(task, plan_candidates(options)), Error);
  EXPECT_GE(looks, 10);
}

TEST(PlanApi, ASearchEndsWhenItsClientHasGone) {
  std::atomic<int> looks = 0;
  try {
    plan_answer_for(kSmall, [&] { return ++looks >= 10; });
    FAIL() << "it went on";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "the client has gone");
  }
  EXPECT_FALSE(plan_answer_for(kSmall)["best"].is_null());  // the next one is not refused
}

TEST(PlanApi, IsServed) {
  TestServer server;
  const Answer answer = fetch(server.port(), "/api/plan?rate=2&count=300&itl=50ms&machine=h200");
  EXPECT_EQ(answer.status, 200) << answer.body;
  EXPECT_FALSE(answer.json()["best"]["launch"].get<std::string>().empty());
  EXPECT_EQ(fetch(server.port(), "/api/plan?rate=2").status, 400);
}

}  // namespace
}  // namespace ridge
