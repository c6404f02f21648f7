// ridge serve --dp: replicas of ranks, one of which is killed, and what is refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "page/support.h"
#include "running_program.h"

namespace ridge {
namespace {

int port_of(RunningProgram& program) {
  if (!program.wait_for_text("OpenAI API at")) return 0;
  const std::string local = "127.0.0.1:";
  return std::stoi(program.text().substr(program.text().find(local) + local.size()));
}

Answer complete(int port, const std::string& prompt, int max_tokens) {
  const nlohmann::json body{
      {"prompt", prompt}, {"max_tokens", max_tokens}, {"temperature", 0}, {"ignore_eos", true}};
  return fetch(port, "/v1/completions", "Content-Type: application/json\r\n", "POST", body.dump());
}

TEST(ReplicasCommand, OutlivesTheRanksOfAReplica) {
  RunningProgram program({RIDGE_BINARY, "serve", "ridge-1m", "--dp", "2", "--tp", "2", "--port",
                          "0", "--kv-tokens", "4096", "-t", "1", "--step-pace", "stdin"},
                         ProgramInput::written);
  const int port = port_of(program);
  ASSERT_NE(port, 0) << program.text();
  const std::vector<pid_t> ranks = program.children();
  ASSERT_EQ(ranks.size(), 2u);  // rank 1 of each replica
  const std::string first = complete(port, "The memory of a computer", 20).json()["choices"].dump();
  const std::string again = complete(port, "The memory of a computer", 20).json()["choices"].dump();
  EXPECT_EQ(first, again);  // the other replica's, or the same: equal

  // The prompt fills no page, so the two go to the two replicas in turn. One loses its rank.
  // Until then no answer may end.
  program.say("1s");
  ASSERT_TRUE(program.wait_for_text("pace: 1s"));
  Answer answers[2];
  std::vector<std::thread> clients;
  for (Answer& answer : answers) {
    clients.emplace_back([&] { answer = complete(port, "Once upon", 900); });
  }
  const auto runs = [&](const std::string& engine) {
    const std::string gauge =
        "vllm:num_requests_running{engine=\"" + engine + "\",model_name=\"ridge-1m\"} 1";
    return fetch(port, "/metrics").body.find(gauge) != std::string::npos;
  };
  EXPECT_TRUE(wait_until("both replicas run", [&] { return runs("0") && runs("1"); }));
  kill(ranks[0], SIGKILL);
  program.say("go");
  for (std::thread& client : clients) client.join();
  std::sort(std::begin(answers), std::end(answers),
            [](const Answer& a, const Answer& b) { return a.status < b.status; });
  EXPECT_EQ(answers[0].status, 200) << answers[0].body;
  EXPECT_EQ(answers[1].status, 500) << answers[1].body;
  EXPECT_NE(answers[1].body.find("rank 1 was killed by signal 9"), std::string::npos);
  EXPECT_EQ(fetch(port, "/health").json()["replicas_serving"], 1);
  EXPECT_EQ(complete(port, "The memory of a computer", 20).json()["choices"].dump(), first);

  kill(ranks[1], SIGKILL);
  EXPECT_EQ(program.wait(), 2) << program.text();
  EXPECT_NE(program.text().find("replica 0 failed, 1 still serving: rank 1 was killed by signal 9"),
            std::string::npos)
      << program.text();
  EXPECT_NE(program.text().find("the engine failed: rank 1 was killed by signal 9"),
            std::string::npos)
      << program.text();
}

TEST(ReplicasCommand, RefusesWhatReplicasCannotBe) {
  RunningProgram cuda({RIDGE_BINARY, "serve", "ridge-1m", "--dp", "2", "--device", "cuda"});
  EXPECT_EQ(cuda.wait(), 2);
  EXPECT_NE(cuda.text().find("--dp 2: replicas run on the CPU"), std::string::npos) << cuda.text();
  RunningProgram bench({RIDGE_BINARY, "bench", "ridge-1m", "--dp", "2"});
  EXPECT_EQ(bench.wait(), 2);
  EXPECT_NE(bench.text().find("--dp"), std::string::npos) << bench.text();
}

}  // namespace
}  // namespace ridge
