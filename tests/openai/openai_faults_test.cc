// Clients that behave badly, over real sockets: they go away at any time, read slowly, send what is
// no request, or want more than the pool holds. Whoever waits gets the answer he gets alone, and
// nothing is left behind.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "openai_support.h"

namespace ridge {
namespace {

constexpr const char* kPath = "/v1/completions";

std::vector<Json> kinds() {
  std::vector<Json> bodies;
  const std::vector<std::string> prompts = {"Once upon a time", "The memory of a computer is",
                                            "🙂 emoji 日本語", "a b a b a b a b",
                                            "The roof of the house of the roof of"};
  for (size_t i = 0; i < prompts.size(); ++i) {
    for (const double temperature : {0.0, 0.9}) {
      Json body{{"prompt", prompts[i]},
                {"max_tokens", 4 + 3 * int(i)},
                {"temperature", temperature},
                {"seed", i}};
      if (i % 2 == 0) body["stop"] = {"e", "the m"};
      if (i == 3) body["frequency_penalty"] = 1;
      bodies.push_back(std::move(body));
    }
  }
  return bodies;
}

long resident_kb() {
  long pages = 0, resident = 0;
  FILE* file = std::fopen("/proc/self/statm", "r");
  if (file == nullptr || std::fscanf(file, "%ld %ld", &pages, &resident) != 2) resident = 0;
  if (file != nullptr) std::fclose(file);
  return resident * (::sysconf(_SC_PAGESIZE) / 1024);
}

void expect_nothing_left(const ApiServer& server) {
  // The engine ends what its clients left before its next step.
  for (const char* gauge :
       {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"}) {
    EXPECT_TRUE(wait_until(gauge, [&] { return server.metric(gauge).ends_with(" 0"); }));
  }
  EXPECT_EQ(fetch(server.port(), "/health").status, 200);
}

TEST(OpenAiFaults, LoseNoRequestAndChangeNoAnswer) {
  const std::vector<Json> bodies = kinds();
  std::vector<std::string> wanted;
  {
    ApiServer alone;
    for (const Json& body : bodies) {
      wanted.push_back(alone.ask(kPath, body)["choices"][0]["text"]);
    }
  }
  ApiServer::Options options;
  options.runner = {.threads = 1, .cache_tokens = 192, .max_tokens = 32, .max_sequences = 6};
  options.serving.preempt_every = 3;
  options.serving.max_waiting = 64;
  ApiServer server(std::move(options));
  constexpr int kClients = 8, kEach = 150;
  std::atomic<int> answered = 0, refused = 0;
  [[maybe_unused]] long before_kb = 0;
  const auto client = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < kEach; ++i) {
      const size_t kind = random() % bodies.size();
      Json body = bodies[kind];
      switch (random() % 8) {
        case 0: {  // goes away before, while or after the answer comes
          body["stream"] = random() % 2 == 0;
          Connection connection(server.port());
          connection.send(request_text(kPath, body.dump()));
          if (random() % 2 == 0) connection.reset_on_close();
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
          break;
        }
        case 1: {  // no request, or one that can never run
          const std::string bad[] = {"{", R"({"prompt": 5.5})", R"({"prompt": "x", "n": 0})",
                                     R"({"prompt": "\xff"})",
                                     R"({"prompt": "x", "temperature": "hot"})"};
          const Answer answer = parse_answer([&] {
            Connection connection(server.port());
            connection.send(request_text(kPath, bad[random() % 5]));
            return connection.receive_all();
          }());
          EXPECT_EQ(answer.status, 400) << answer.body;
          EXPECT_TRUE(answer.json()["error"]["message"].is_string());
          break;
        }
        case 2: {  // larger than the pool
          body["prompt"] = std::vector<int>(500, 3);
          EXPECT_EQ(server.post(kPath, body).status, 400);
          break;
        }
        case 3:
        case 4: {  // a stream, read slowly
          body["stream"] = true;
          Connection connection(server.port(), 2048);
          connection.send(request_text(kPath, body.dump()));
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 10000));
          const Stream streamed = read_stream(connection.receive_all());
          if (streamed.answer.status == 429) {
            ++refused;
            break;
          }
          EXPECT_TRUE(streamed.done);
          EXPECT_EQ(streamed.text(), wanted[kind]);
          ++answered;
          break;
        }
        default: {
          const Answer answer = server.post(kPath, body);
          if (answer.status == 429) {
            ++refused;
            break;
          }
          ASSERT_EQ(answer.status, 200) << answer.body;
          EXPECT_EQ(answer.json()["choices"][0]["text"], wanted[kind]);
          ++answered;
        }
      }
    }
  };
  const auto wave = [&](unsigned salt) {
    std::vector<std::thread> clients;
    for (unsigned c = 0; c < kClients; ++c) clients.emplace_back(client, salt + c);
    for (std::thread& each : clients) each.join();
  };
  wave(100);
  before_kb = resident_kb();
  wave(200);
  EXPECT_GT(answered, kClients * kEach);  // of two waves, about 5 in 8
  expect_nothing_left(server);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep what was freed
  // The second wave needs no more memory than the first did.
  EXPECT_LT(resident_kb() - before_kb, 32 * 1024);
#endif
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they keep what was freed
TEST(OpenAiFaults, GivesTheMemoryOfLargeBodiesBack) {
  ApiServer server;
  server.ask(kPath, {{"prompt", "x"}, {"max_tokens", 1}});
  std::string list = "[{}";
  for (int i = 0; i < 1'000'000; ++i) list += ",{}";
  std::vector<std::string> requests;
  for (const char* name : {"messages", "x", "tools", "messages"}) {
    requests.push_back(
        request_text("/v1/chat/completions", fmt::format("{{\"{}\":{}]}}", name, list)));
  }
  const long before_kb = resident_kb();  // with what the clients send
  std::vector<std::thread> clients;
  for (const std::string& request : requests) {
    clients.emplace_back([&] {
      Connection connection(server.port());
      connection.send(request);
      EXPECT_EQ(parse_answer(connection.receive_all()).status, 400);
    });
  }
  for (std::thread& each : clients) each.join();
  EXPECT_TRUE(
      wait_until("the memory is back", [&] { return resident_kb() - before_kb < 32 * 1024; }));
}
#endif

}  // namespace
}  // namespace ridge
