// The generator against endpoints that answer well, badly, slowly or not at all.
#include "load/generator.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "base/thread_cpu.h"
#include "base/wait_until.h"
#include "fake_server.h"
#include "load/summary.h"

namespace ridge {
namespace {

using Request = FakeServer::Request;
using Connection = FakeServer::Connection;

WorkloadOptions workload_of(int requests, const char* prompt = "8", const char* output = "4") {
  WorkloadOptions options;
  options.requests = requests;
  options.prompt = parse_length(prompt, "prompt");
  options.output = parse_length(output, "output");
  return options;
}

LoadRecord load(const FakeServer& server, const WorkloadOptions& workload, LoadOptions options = {},
                double timeout_s = double(kPatience.count())) {
  const auto client = [&](double patience_s) {
    return HttpClient(parse_http_target(server.url()),
                      {.allow_remote = false, .timeout_s = patience_s, .api_key = {}});
  };
  HttpClient patient = client(double(kPatience.count())), timed = client(timeout_s);
  const LoadEndpoint endpoint = probe_endpoint(patient, "");
  return run_load(timed, endpoint, Workload(workload), options);
}

TEST(Load, ClosedLoopKeepsSoManyInFlight) {
  std::atomic<int> in_flight = 0, most = 0, began = 0;
  FakeServer server([&](const Request& request, const Connection& connection) {
    if (answer_probe(request, connection)) return true;
    const int now = ++in_flight;
    for (int seen = most; seen < now && !most.compare_exchange_weak(seen, now);) {
    }
    if (++began <= 5) {  // the first five are in flight together
      EXPECT_TRUE(wait_until("five requests in flight", [&] { return most >= 5; }));
    }
    const nlohmann::json body = request.json();
    EXPECT_EQ(body["model"], "fake");
    EXPECT_EQ(body["stream"], true);
    EXPECT_EQ(body["stream_options"]["include_usage"], true);
    EXPECT_EQ(body["ignore_eos"], true);
    EXPECT_EQ(body["prompt"].size(), 8u);
    for (const auto& id : body["prompt"]) EXPECT_TRUE(id >= 100 && id < 200);
    --in_flight;  // before the client can start the next
    return answer_completion(request, connection);
  });
  LoadOptions options;
  options.concurrency = 5;
  const LoadRecord record = load(server, workload_of(60), options);
  const LoadSummary s = summarize(record, {});
  EXPECT_EQ(s.completed, 60);
  EXPECT_EQ(s.failed, 0);
  EXPECT_EQ(most, 5);
  EXPECT_EQ(record.peak_in_flight, 5);
  EXPECT_EQ(s.input_tokens, 60 * 8);
  EXPECT_EQ(s.output_tokens, 60 * 4);
  EXPECT_EQ(s.cached_tokens, 60 * 3);
  EXPECT_EQ(s.ttft.count, 60u);
  EXPECT_EQ(s.itl.count, 60u * 3);
  EXPECT_EQ(s.without_usage, 0);
  // Connections are used again: five, and one for each question before the load at most.
  EXPECT_LE(server.connections(), 5 + 3);
}

TEST(Load, TimesAreThoseOfTheServer) {
  FakeServer server([&](const Request& request, const Connection& connection) {
    if (answer_probe(request, connection)) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    return answer_completion(request, connection, 10);
  });
  LoadOptions options;
  options.concurrency = 1;
  const LoadRecord record = load(server, workload_of(8), options);
  const LoadSummary s = summarize(record, {});
  ASSERT_EQ(s.completed, 8);
  // Sleeps are never shorter. How much longer they are, the machine decides; but the requests came
  // one after the other.
  EXPECT_GE(s.ttft.p50, 0.040);
  EXPECT_GE(s.tpot.p50, 0.0099);
  EXPECT_GE(s.e2el.p50, 0.0699);
  EXPECT_LE(8 * s.e2el.mean, record.duration_s);
  EXPECT_LE(8 * (s.ttft.mean + 3 * s.tpot.mean), record.duration_s * (1 + 1e-9));
  EXPECT_NEAR(s.itl.mean, s.tpot.mean, 0.02);
}

TEST(Load, ErrorsAreCountedByKind) {
  std::atomic<int> count = 0;
  FakeServer server([&](const Request& request, const Connection& connection) {
    if (answer_probe(request, connection, false)) return true;
    EXPECT_TRUE(request.json()["prompt"].is_string());  // no /tokenize: words
    switch (count++ % 9) {
      case 0:
        return connection.reply(429, R"({"error":{"message":"the queue is full"}})");
      case 1:
        return connection.reply(500, "broken");
      case 2:
        connection.begin_stream();
        connection.event(R"({"choices":[{"text":"a","finish_reason":null}]})");
        return false;  // closes in the middle of a chunked body
      case 3:
        connection.begin_stream();
        connection.event(R"({"choices":[{"text":"a","finish_reason":null}]})");
        return connection.send("0\r\n\r\n");  // whole HTTP, but no end of the answer
      case 4:
        connection.begin_stream();
        connection.event(R"({"error":{"message":"the model failed"}})");
        return connection.end_stream();
      case 5:
        connection.begin_stream();
        connection.event("{not json");
        return connection.end_stream();
      case 6:
        connection.send("garbage\r\n\r\n");
        return false;
      case 7:
        return connection.begin_stream() && connection.end_stream();
      default:
        return answer_completion(request, connection);
    }
  });
  LoadOptions options;
  options.concurrency = 3;
  const LoadSummary s = summarize(load(server, workload_of(90), options), {});
  EXPECT_EQ(s.completed, 10);
  EXPECT_EQ(s.failed, 80);
  EXPECT_EQ(s.errors.at("http 429"), 10);
  EXPECT_EQ(s.errors.at("http 500"), 10);
  EXPECT_EQ(s.errors.at("cut"), 20);
  EXPECT_EQ(s.errors.at("error in stream"), 10);
  EXPECT_EQ(s.errors.at("malformed"), 20);
  EXPECT_EQ(s.errors.at("no tokens"), 10);
  EXPECT_EQ(s.messages.at("http 429"), "the queue is full");
  EXPECT_EQ(s.messages.at("error in stream"), "the model failed");
}

TEST(Load, SlowAnswersTimeOut) {
  std::atomic<bool> done = false;
  FakeServer server([&](const Request& request, const Connection& connection) {
    if (answer_probe(request, connection)) return true;
    connection.begin_stream();
    while (!done && connection.event(R"({"choices":[{"text":"a","finish_reason":null}]})")) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return false;
  });
  LoadOptions options;
  options.concurrency = 4;
  const LoadRecord record = load(server, workload_of(4), options, 0.3);
  done = true;
  EXPECT_EQ(summarize(record, {}).errors.at("timeout"), 4);
  EXPECT_LT(record.duration_s, double(kPatience.count()));
}

// A server may close a connection after an answer without saying so: the request goes over a new
// one.
TEST(Load, ClosedConnectionsAreReplaced) {
  FakeServer server([&](const Request& request, const Connection& connection) {
    if (answer_probe(request, connection)) return true;
    answer_completion(request, connection);
    return false;
  });
  LoadOptions options;
  options.concurrency = 4;
  const LoadSummary s = summarize(load(server, workload_of(80), options), {});
  EXPECT_EQ(s.completed, 80);
}

TEST(Load, ArrivalsDecideTheStartInOpenLoop) {
  FakeServer server([&](const Request& request, const Connection& connection) {
    if (answer_probe(request, connection)) return true;
    return answer_completion(request, connection, 25);  // 100 ms: ten overlap
  });
  WorkloadOptions workload = workload_of(50);
  workload.rate = 100;
  LoadOptions options;
  options.open_loop = true;
  options.concurrency = 1000;
  const LoadRecord record = load(server, workload, options);
  ASSERT_EQ(record.requests.size(), 50u);
  EXPECT_GT(record.peak_in_flight, 3);
  EXPECT_GE(record.duration_s, 0.5);
  std::vector<double> starts;
  for (const LoadRequest& request : record.requests) starts.push_back(request.start_s);
  std::sort(starts.begin(), starts.end());
  const std::vector<double> arrivals = Workload(workload).arrivals();
  for (size_t i = 0; i < starts.size(); ++i) EXPECT_GE(starts[i], arrivals[i] - 1e-4);
  // With room for one, arrivals wait; the wait is told.
  options.concurrency = 1;
  workload.requests = 5;
  const LoadRecord crowded = load(server, workload, options);
  EXPECT_EQ(crowded.peak_in_flight, 1);
  EXPECT_GT(crowded.latest_start_s, 0.1);
}

TEST(Load, DurationAndInterruptEndIt) {
  std::atomic<bool> done = false;
  std::atomic<int> left = 1'000'000;  // requests until the interrupt
  FakeServer server([&](const Request& request, const Connection& connection) {
    if (answer_probe(request, connection)) return true;
    if (--left == 0) done = true;
    return answer_completion(request, connection, 5);
  });
  LoadOptions options;
  options.duration_s = 0.3;
  const LoadRecord record = load(server, workload_of(1'000'000), options);
  EXPECT_GE(record.duration_s, 0.3);
  EXPECT_GE(summarize(record, {}).completed, 1);
  EXPECT_LT(summarize(record, {}).completed, 1'000'000);
  EXPECT_EQ(summarize(record, {}).failed, 0);

  options.duration_s = 600;
  options.interrupted = &done;
  left = 3;
  WorkloadOptions rare = workload_of(1000);
  rare.rate = 10;
  options.open_loop = true;
  const LoadRecord ended = load(server, rare, options);
  EXPECT_TRUE(ended.interrupted);
  EXPECT_LT(ended.requests.size(), 1000u);
}

TEST(Load, TurnsSendTheHistory) {
  std::mutex mutex;
  std::vector<nlohmann::json> bodies;
  FakeServer server([&](const Request& request, const Connection& connection) {
    if (answer_probe(request, connection)) return true;
    EXPECT_EQ(request.path, "/v1/chat/completions");
    {
      const std::lock_guard lock(mutex);
      bodies.push_back(request.json());
    }
    return answer_completion(request, connection);
  });
  WorkloadOptions workload = workload_of(3, "5", "2");
  workload.turns = 3;
  workload.prefix_groups = 1;
  workload.prefix_tokens = 4;
  LoadOptions options;
  options.chat = true;
  EXPECT_EQ(summarize(load(server, workload, options), {}).completed, 3);
  ASSERT_EQ(bodies.size(), 3u);
  const nlohmann::json& last = bodies[2]["messages"];
  ASSERT_EQ(last.size(), 6u);  // system, then three users with two answers between
  EXPECT_EQ(last[0]["role"], "system");
  EXPECT_EQ(last[1], bodies[0]["messages"][1]);
  EXPECT_EQ(last[2]["role"], "assistant");
  EXPECT_EQ(last[2]["content"], " t0 t1");
  EXPECT_EQ(last[5]["role"], "user");
}

TEST(Load, SendsTheKey) {
  FakeServer server([&](const Request& request, const Connection& connection) {
    if (request.head.find("Authorization: Bearer secret") == std::string::npos) {
      return connection.reply(401, R"({"error":{"message":"no"}})");
    }
    return answer_probe(request, connection);
  });
  const HttpTarget target = parse_http_target(server.url());
  HttpClient with(target, {.allow_remote = false, .timeout_s = 5, .api_key = "secret"});
  EXPECT_EQ(probe_endpoint(with, "").model, "fake");
  EXPECT_THROW(probe_endpoint(with, "other"), OptionError);
  HttpClient without(target, {.allow_remote = false, .timeout_s = 5, .api_key = {}});
  try {
    probe_endpoint(without, "");
    ADD_FAILURE();
  } catch (const OptionError& error) {
    EXPECT_EQ(error.option(), "api-key");
  }
}

// A model with random weights has no tokenizer: any id below the vocabulary's size will do.
TEST(Load, SendsIdsWhereOnlyTheVocabularyIsKnown) {
  FakeServer server([&](const Request& request, const Connection& connection) {
    if (request.path == "/v1/models") {
      return connection.reply(200, R"({"data":[{"id":"fake","meta":{"n_vocab":300}}]})");
    }
    if (answer_probe(request, connection, false)) return true;
    const nlohmann::json body = request.json();
    for (const auto& id : body["prompt"]) EXPECT_TRUE(id >= 0 && id < 300);
    return answer_completion(request, connection);
  });
  const LoadSummary s = summarize(load(server, workload_of(3, "500")), {});
  EXPECT_EQ(s.completed, 3);
  EXPECT_EQ(s.input_tokens, 1500);
}

TEST(Load, WaitsWhileTheModelIsLoaded) {
  std::atomic<int> asked = 0;
  FakeServer server([&](const Request& request, const Connection& connection) {
    if (request.path == "/health") return connection.reply(++asked < 3 ? 503 : 200, "{}");
    EXPECT_EQ(asked, 3);
    return answer_probe(request, connection) || answer_completion(request, connection);
  });
  EXPECT_EQ(summarize(load(server, workload_of(2)), {}).completed, 2);
}

TEST(Load, RefusesOtherMachinesUnlessAllowed) {
  try {
    HttpClient client(parse_http_target("http://192.0.2.1:9"), {});
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("--allow-remote"), std::string::npos);
  }
}

TEST(Load, ReadsAddresses) {
  const HttpTarget target = parse_http_target("http://localhost:9000/base/v1/");
  EXPECT_EQ(target.host, "localhost");
  EXPECT_EQ(target.port, 9000);
  EXPECT_EQ(target.path, "/base/v1");
  EXPECT_EQ(parse_http_target("127.0.0.1:80").url(), "http://127.0.0.1:80");
  EXPECT_EQ(parse_http_target("http://[::1]:8080/v1").url(), "http://[::1]:8080/v1");
  EXPECT_EQ(parse_http_target("http://[::1]:8080/v1").host, "::1");
  for (const char* bad : {"", "https://localhost", "ftp://x", "http://", "http://:80",
                          "localhost:0", "localhost:99999", "localhost:x", "a b", "http://u@h",
                          "http://[::1", "http://[::1]80", "http://h/?q", "http://h/\xc3\xa9"}) {
    EXPECT_THROW(parse_http_target(bad), Error) << bad;
  }
}

// What parsing a chunk costs alone, in this thread's CPU time.
double parse_cpu_s() {
  const std::string chunk =
      R"({"id":"c","object":"text_completion","choices":[{"index":0,"text":" t0",)"
      R"("delta":{"content":" t0"},"finish_reason":null}],"usage":null})";
  constexpr int kChunks = 20'000;
  const double before = thread_cpu_s();
  size_t parsed = 0;
  for (int i = 0; i < kChunks; ++i) parsed += nlohmann::json::parse(chunk).size();
  EXPECT_EQ(parsed, 4u * kChunks);
  return (thread_cpu_s() - before) / kChunks;
}

// Chunks one by one on 64 connections; counted in the generator's own CPU time, because the
// server's threads share the machine, and compared with the parsing of JSON on it.
TEST(Load, TakesAChunkForTheCpuTimeOfSomeParsings) {
  FakeServer server([&](const Request& request, const Connection& connection) {
    return answer_probe(request, connection) || answer_completion(request, connection);
  });
  LoadOptions options;
  options.concurrency = 64;
  const double before = thread_cpu_s();
  const LoadRecord record = load(server, workload_of(256, "64", "200"), options);
  const double cpu_s = thread_cpu_s() - before;
  const LoadSummary s = summarize(record, {});
  EXPECT_EQ(s.completed, 256);
  EXPECT_EQ(s.output_tokens, 256 * 200);
  const double rate = 256 * 200 / cpu_s;
  const double parsings = 1 / (rate * parse_cpu_s());
  fmt::print("{:.0f} chunks a second of CPU time, {:.0f} a second; one as {:.1f} parsings\n", rate,
             256 * 200 / record.duration_s, parsings);
#ifdef NDEBUG  // not under sanitizers
  EXPECT_LT(parsings, 15);
#endif
}

}  // namespace
}  // namespace ridge
