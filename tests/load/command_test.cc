// `ridge load` as a user calls it.
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>

#include "fake_server.h"

namespace ridge {
namespace {

struct Output {
  int code = 0;
  std::string text;
};

Output ridge_load(const std::string& arguments) {
  Output output;
  FILE* pipe = popen((std::string(RIDGE_BINARY) + " load " + arguments + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return {.code = -1, .text = "no pipe"};
  std::array<char, 4096> buffer{};
  while (fgets(buffer.data(), buffer.size(), pipe) != nullptr) output.text += buffer.data();
  output.code = WEXITSTATUS(pclose(pipe));
  return output;
}

bool answers(const FakeServer::Request& request, const FakeServer::Connection& connection) {
  return answer_probe(request, connection) || answer_completion(request, connection, 1);
}

TEST(LoadCommand, PrintsJsonForVllmsTools) {
  FakeServer server(answers);
  const Output output =
      ridge_load(server.url() + "/v1 --requests 20 --concurrency 4 -p 10..20 --output 5 --json");
  ASSERT_EQ(output.code, 0) << output.text;
  const nlohmann::json json = nlohmann::json::parse(output.text);
  EXPECT_EQ(json["completed"], 20);
  EXPECT_EQ(json["failed"], 0);
  EXPECT_EQ(json["model_id"], "fake");
  EXPECT_EQ(json["total_output_tokens"], 100);
  EXPECT_EQ(json["max_concurrency"], 4);
  EXPECT_GT(json["p99_ttft_ms"].get<double>(), 0);
  EXPECT_EQ(json["ridge"]["token_ids"], true);
  EXPECT_TRUE(json["ridge"]["server"].is_null());
}

TEST(LoadCommand, PrintsATableForPeople) {
  FakeServer server(answers);
  const Output output = ridge_load(
      server.url() + " --rate 200 --requests 30 --output 5 --goodput ttft:9999 tpot:9999");
  EXPECT_EQ(output.code, 0) << output.text;
  for (const char* part : {"30 completed, 0 failed", "30 of 30 within the targets", "TTFT", "TPOT",
                           "ITL", "E2E", "% of requests"}) {
    EXPECT_NE(output.text.find(part), std::string::npos) << part << "\n" << output.text;
  }
}

TEST(LoadCommand, RefusesInOneLine) {
  FakeServer server(answers);
  for (const std::string& arguments :
       {std::string("http://192.0.2.1"), std::string("https://localhost"),
        std::string("http://127.0.0.1:1"), server.url() + " -p 0", server.url() + " --goodput x",
        server.url() + " -p 5000", server.url() + " -m other", server.url() + " --duration 0",
        server.url() + " --prefix-groups 3", server.url() + " --trace /nowhere"}) {
    const Output output = ridge_load(arguments);
    EXPECT_EQ(output.code, 2) << arguments;
    EXPECT_EQ(std::count(output.text.begin(), output.text.end(), '\n'), 1) << output.text;
  }
}

TEST(LoadCommand, FailsWhereNothingCompletes) {
  FakeServer server([](const FakeServer::Request& request, const FakeServer::Connection& c) {
    return answer_probe(request, c) || c.reply(429, R"({"error":{"message":"full"}})");
  });
  const Output output = ridge_load(server.url() + " --requests 5");
  EXPECT_EQ(output.code, 1);
  EXPECT_NE(output.text.find("5 http 429 (full)"), std::string::npos) << output.text;
}

}  // namespace
}  // namespace ridge
