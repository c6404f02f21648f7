// The API before several replicas: metrics, live events and health are of all of them.
#include <gtest/gtest.h>

#include <atomic>
#include <regex>
#include <set>

#include "live/live_support.h"
#include "openai/openai_support.h"

namespace ridge {
namespace {

Json completion(int first, int max_tokens) {
  Json prompt = Json::array();
  for (int i = 0; i < 40; ++i) prompt.push_back(5 + (first + 7 * i) % 400);
  return {{"prompt", prompt}, {"max_tokens", max_tokens}, {"temperature", 0}, {"ignore_eos", true}};
}

// The values of a metric without other labels, by engine.
std::map<std::string, double> by_engine(const std::string& page, const std::string& name) {
  std::map<std::string, double> values;
  const std::regex line("\n" + name + "\\{engine=\"(\\d+)\",model_name=\"[^\"]*\"\\} ([0-9.e+]+)");
  for (std::sregex_iterator at(page.begin(), page.end(), line), end; at != end; ++at) {
    values[(*at)[1]] += std::stod((*at)[2]);
  }
  return values;
}

TEST(ReplicasServer, CountsAllReplicas) {
  ApiServer::Options options;
  options.replicas = 2;
  ApiServer server(std::move(options));
  ApiServer one;
  const Json about = fetch(server.port(), "/api/serving").json();
  EXPECT_EQ(about["replicas"], 2);
  EXPECT_EQ(about["pages"], 2048);
  EXPECT_EQ(about["max_sequences"], 16);
  const nlohmann::json health = fetch(server.port(), "/health").json();
  EXPECT_EQ(health, nlohmann::json({{"status", "ok"}, {"replicas", 2}, {"replicas_serving", 2}}));

  LiveClient client(server.port());
  ASSERT_TRUE(client.wait_for("pages"));
  for (int i = 0; i < 4; ++i) {
    const Json body = completion(31 * i, 10 + i);
    EXPECT_EQ(server.ask(kCompletions, body)["choices"], one.ask(kCompletions, body)["choices"]);
  }
  const std::string page = fetch(server.port(), "/metrics").body;
  const std::map<std::string, double> tokens = by_engine(page, "vllm:generation_tokens_total");
  EXPECT_EQ(tokens, (std::map<std::string, double>{{"0", 10 + 12}, {"1", 11 + 13}}));
  EXPECT_EQ(by_engine(page, "ridge:engine_up"),
            (std::map<std::string, double>{{"0", 1}, {"1", 1}}));
  // A page may say a family's type only once.
  std::set<std::string> families;
  const std::regex type("# TYPE ([^ ]+) ");
  for (std::sregex_iterator at(page.begin(), page.end(), type), end; at != end; ++at) {
    EXPECT_TRUE(families.insert((*at)[1]).second) << (*at)[1];
  }

  // The stream: every token, the steps of both, and pages behind each other.
  const auto generated = [](const auto& events) {
    int sum = 0;
    if (!events.contains("steps")) return sum;
    for (const auto& message : events.at("steps")) {
      for (const auto& step : message["steps"]) sum += step["generated_tokens"].template get<int>();
    }
    return sum;
  };
  ASSERT_TRUE(client.wait([&](const auto& events) { return generated(events) == 46; }));
  std::set<int> replicas;
  for (const nlohmann::json& message : client.events("steps")) {
    for (const nlohmann::json& step : message["steps"]) replicas.insert(step["replica"].get<int>());
  }
  EXPECT_EQ(replicas, (std::set<int>{0, 1}));
  ASSERT_TRUE(client.wait([](const auto& events) {
    const nlohmann::json& last = events.at("pages").back();
    return last["held"] == 0 && last["cached"] == 4 * 3;  // 40 prompt tokens and 10 to 13 more
  }));
  std::vector<int64_t> owners(2048, 99);
  for (const nlohmann::json& message : client.events("pages")) {
    for (const nlohmann::json& run : message["changes"]) {
      for (size_t i = 0; i < run[1].get<size_t>(); ++i)
        owners.at(run[0].get<size_t>() + i) = run[2];
    }
  }
  EXPECT_EQ(std::count(owners.begin(), owners.begin() + 1024, -1), 6);
  EXPECT_EQ(std::count(owners.begin() + 1024, owners.end(), -1), 6);
  ASSERT_TRUE(client.wait([](const auto& events) {
    if (!events.contains("tree")) return false;
    int in_tree = 0;
    for (const auto& node : events.at("tree").back()["nodes"])
      in_tree += node["pages"].template get<int>();
    return in_tree == 12;
  }));
}

TEST(ReplicasServer, GoesOnWithoutAReplicaAndSaysSo) {
  std::atomic<bool> broken = false;
  ApiServer::Options options;
  options.replicas = 2;
  options.lost = [&](int replica) -> std::function<std::string()> {
    return [&broken, replica] { return broken && replica == 1 ? "rank 1 was killed" : ""; };
  };
  ApiServer server(std::move(options));
  LiveClient client(server.port());
  ASSERT_TRUE(client.wait_for("pages"));
  broken = true;
  const auto health = [&] { return fetch(server.port(), "/health").json(); };
  EXPECT_TRUE(wait_until("a replica failed", [&] { return health()["status"] != "ok"; }));
  EXPECT_EQ(health(),
            nlohmann::json({{"status", "degraded"}, {"replicas", 2}, {"replicas_serving", 1}}));
  for (int i = 0; i < 3; ++i) server.ask(kCompletions, completion(31 * i, 4));
  const std::string page = fetch(server.port(), "/metrics").body;
  EXPECT_EQ(by_engine(page, "ridge:engine_up"),
            (std::map<std::string, double>{{"0", 1}, {"1", 0}}));
  EXPECT_EQ(by_engine(page, "vllm:generation_tokens_total")["0"], 12);
  // Pages are still told: the failed replica's keep their places.
  ASSERT_TRUE(client.wait([](const auto& events) {
    return events.at("pages").back()["cached"].template get<int>() > 0;
  }));
}

}  // namespace
}  // namespace ridge
