// The lab through the API: the list without results, results of a file, one run at a time.
#include "page/lab_service.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "base/wait_until.h"
#include "lab/experiment.h"
#include "lab/lab_results.h"

namespace ridge {
namespace {

// A user's folder of its own, so that kept results of this machine do not matter.
class LabServiceTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_);
    setenv("XDG_CONFIG_HOME", folder_.c_str(), 1);
  }
  void TearDown() override {
    unsetenv("XDG_CONFIG_HOME");
    std::filesystem::remove_all(folder_);
  }
  std::string file(const std::string& text) {
    const std::string path = folder_ + "/results.json";
    write_file(path, text);
    return path;
  }
  const std::string folder_ = testing::TempDir() + "ridge_lab_service";
};

HttpRequest lab_request(const std::string& method, const std::string& path,
                        std::map<std::string, std::string> query = {}) {
  HttpRequest request;
  request.method = method;
  request.path = path;
  request.query = std::move(query);
  if (method == "POST") request.content_type = "application/json";
  return request;
}

Json lab_state(LabService& service) {
  const HttpReply reply = service.reply(lab_request("GET", "/api/lab"));
  EXPECT_EQ(reply.status, 200);
  return Json::parse(reply.body);
}

testing::AssertionResult wait_for_end(LabService& service) {
  return wait_until("the end of the experiment",
                    [&] { return lab_state(service)["running"].is_null(); });
}

constexpr const char* kResults = R"({"device": "a machine", "date": "2026-01-01",
  "experiments": [{"name": "decode", "verdict": "confirmed", "claim": "an older claim",
  "series": [{"name": "a", "points": [{"x": 1, "measured": 2}]}]}]})";

TEST_F(LabServiceTest, ListsEveryExperimentWithoutResults) {
  LabService service({});
  const Json state = lab_state(service);
  ASSERT_EQ(state["experiments"].size(), experiments().size());
  for (const Json& e : state["experiments"]) {
    for (const char* field : {"name", "question", "claim", "command", "next"}) {
      EXPECT_FALSE(e[field].get<std::string>().empty()) << e["name"] << " " << field;
    }
    EXPECT_FALSE(e.contains("verdict")) << e["name"];
  }
  EXPECT_TRUE(state["running"].is_null());
}

TEST_F(LabServiceTest, ShowsResultsOfAFileAndOfTheLastRun) {
  const auto verdict_of = [](LabService& service) {
    const Json state = lab_state(service);
    for (const Json& e : state["experiments"]) {
      if (e["name"] == "decode") {
        EXPECT_NE(e["claim"], "an older claim");  // what the claim is, this version says
        return e.value("verdict", "none");
      }
    }
    return std::string("missing");
  };
  LabService given({file(kResults)});
  EXPECT_EQ(verdict_of(given), "confirmed");
  EXPECT_EQ(lab_state(given)["device"], "a machine");
  keep_results(Json::parse(kResults));
  LabService kept({});
  EXPECT_EQ(verdict_of(kept), "confirmed");
}

TEST_F(LabServiceTest, KeepsTheResultsOfEachDeviceApart) {
  Json cuda = Json::parse(kResults);
  cuda["backend"] = "cuda";
  cuda["device"] = "a GPU";
  keep_results(Json::parse(kResults));
  keep_results(cuda);
  LabService service({});
  EXPECT_EQ(lab_state(service)["device"], "a GPU");  // the last one
  EXPECT_EQ(lab_state(service)["devices"], Json({"cpu", "cuda"}));
  const auto of = [&](const char* device) {
    const HttpReply reply = service.reply(lab_request("GET", "/api/lab", {{"device", device}}));
    return reply.status == 200 ? Json::parse(reply.body) : Json();
  };
  EXPECT_EQ(of("cpu")["device"], "a machine");
  EXPECT_EQ(of("cuda")["experiments"][1]["command"], "ridge lab roofline --device cuda");
  EXPECT_EQ(of("cpu")["experiments"][1]["command"], "ridge lab roofline");
  EXPECT_TRUE(of("tpu").is_null());
  // An experiment that runs here joins the CPU's results and leaves the GPU's alone.
  ASSERT_EQ(service.reply(lab_request("POST", "/api/lab/run", {{"name", "history"}})).status, 202);
  ASSERT_TRUE(wait_for_end(service));
  EXPECT_TRUE(of("cpu")["experiments"][0].contains("verdict"));
  EXPECT_FALSE(of("cuda")["experiments"][0].contains("verdict"));
  EXPECT_EQ(lab_state(service)["device"], "a machine");
}

TEST(LabView, CountsTheAgreementOfWhatItShows) {
  const auto results = [](double measured) {
    return Json::parse(R"({"name": "decode", "verdict": "confirmed", "series": [{"name": "a",
      "points": [{"x": 1, "measured": )" +
                       std::to_string(measured) + R"(, "predicted": 2, "low": 1, "high": 3}]}]})");
  };
  Json old{{"device", "a machine"}, {"agreement", {{"points", 99}}}};
  old["experiments"] = Json::array({results(2)});
  EXPECT_EQ(lab_view(old)["agreement"]["inside"], 1);
  EXPECT_EQ(lab_view(old)["agreement"]["points"], 1);
  EXPECT_EQ(lab_view(old, {{"decode", results(9)}})["agreement"]["inside"], 0);
  Json quick = results(9);
  quick["quick"] = true;
  EXPECT_EQ(lab_view(old, {{"decode", quick}})["agreement"]["points"], 0);
}

TEST_F(LabServiceTest, WrongFilesAreErrors) {
  EXPECT_THROW(LabService({folder_ + "/none.json"}), Error);
  for (const char* text :
       {"[]", "{}", R"({"device": "a", "experiments": [1]})",
        R"({"device": "a", "experiments": [{"name": "decode"}]})",
        R"({"device": "a", "experiments": [{"name": "x", "series": [{"points": [{"x": 1}]}]}]})"}) {
    EXPECT_THROW(LabService({file(text)}), Error) << text;
  }
}

TEST_F(LabServiceTest, RefusesWhatCannotOrMustNotRun) {
  const auto status = [](LabService& service, const HttpRequest& request) {
    return service.reply(request).status;
  };
  LabService service({});
  EXPECT_EQ(status(service, lab_request("GET", "/api/lab/run", {{"name", "history"}})), 405);
  EXPECT_EQ(status(service, lab_request("POST", "/api/lab")), 405);
  EXPECT_EQ(status(service, lab_request("POST", "/api/lab/run")), 400);
  EXPECT_EQ(status(service, lab_request("POST", "/api/lab/run", {{"name", "nothing"}})), 400);
  EXPECT_EQ(status(service, lab_request("POST", "/api/lab/run", {{"name", "gpu-util"}})), 400);
  const HttpRequest run = lab_request("POST", "/api/lab/run", {{"name", "history"}});
  LabService serving({"", true, true}), remote({"", false, false});
  EXPECT_EQ(status(serving, run), 409);
  EXPECT_EQ(status(remote, run), 403);
  EXPECT_FALSE(lab_state(serving)["why_not"].get<std::string>().empty());
}

TEST_F(LabServiceTest, WrongOptionsAreNamed) {
  LabService service({});
  const auto option = [&](const HttpRequest& request) {
    const HttpReply reply = service.reply(request);
    EXPECT_EQ(reply.status, 400) << reply.body;
    return Json::parse(reply.body)["error"].value("option", "none");
  };
  const auto run = [](std::map<std::string, std::string> query) {
    return lab_request("POST", "/api/lab/run", std::move(query));
  };
  EXPECT_EQ(option(run({})), "name");
  EXPECT_EQ(option(run({{"name", "nothing"}})), "name");
  EXPECT_EQ(option(run({{"name", "history"}, {"quik", "true"}})), "quik");
  EXPECT_EQ(option(run({{"name", "history"}, {"quick", "maybe"}})), "quick");
  EXPECT_EQ(option(lab_request("POST", "/api/lab/stop", {{"name", "history"}})), "name");
  EXPECT_EQ(option(lab_request("GET", "/api/lab", {{"quick", "true"}})), "quick");
  HttpRequest body = run({{"name", "history"}});
  body.body = R"({"quick": "perhaps"})";
  EXPECT_EQ(option(body), "quick");
  body.body = "[]";
  EXPECT_EQ(option(body), "none");
  HttpRequest twice = run({{"name", "history"}});
  twice.repeated = "name";
  EXPECT_EQ(option(twice), "name");
  EXPECT_TRUE(lab_state(service)["running"].is_null());
}

TEST_F(LabServiceTest, RunsOneAtATimeAndStops) {
  LabService service({});
  const auto start = [&](const char* name) {
    return service.reply(lab_request("POST", "/api/lab/run", {{"name", name}, {"quick", "true"}}))
        .status;
  };
  const auto wait = [&] {
    EXPECT_TRUE(wait_for_end(service));
    return lab_state(service);
  };
  ASSERT_EQ(start("history"), 202);
  const Json after = wait();
  EXPECT_EQ(after["experiments"][0]["name"], "history");
  EXPECT_EQ(after["experiments"][0]["verdict"], "refuted");
  EXPECT_EQ(after["failure"], "");
  ASSERT_EQ(start("roofline"), 202);  // which measures for seconds, on every machine
  EXPECT_EQ(start("history"), 409);
  EXPECT_EQ(service.reply(lab_request("POST", "/api/lab/stop")).status, 200);
  const Json stopped = wait();
  EXPECT_TRUE(stopped["running"].is_null());
  EXPECT_EQ(stopped["failure"], "roofline: stopped");
}

}  // namespace
}  // namespace ridge
