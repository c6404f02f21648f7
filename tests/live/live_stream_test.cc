// GET /api/serving and /api/live over real sockets with the shipped model.
#include "live/live_stream.h"

#include <unistd.h>

#include <set>

#include "engine/account/roof_system.h"
#include "live/machine_load.h"
#include "live/serving_json.h"
#include "live_support.h"
#include "machine/atlas.h"
#include "openai/openai_support.h"

namespace ridge {
namespace {

using Events = std::map<std::string, std::vector<nlohmann::json>>;

constexpr const char* kText = "/v1/completions";

// A prompt of 96 tokens: its pages are shared.
nlohmann::json long_prompt() {
  nlohmann::json tokens = nlohmann::json::array();
  for (int i = 0; i < 96; ++i) tokens.push_back(100 + i);
  return tokens;
}
Json continuation(int tokens) {
  return {
      {"prompt", long_prompt()}, {"max_tokens", tokens}, {"temperature", 0}, {"ignore_eos", true}};
}

ApiServer::Options with_predictions() {
  ApiServer::Options options;
  options.serving.system = find_system("h200");
  options.serving.stack = engine_stack(*options.serving.system);
  return options;
}

double sum_of(const std::vector<nlohmann::json>& messages, const char* field) {
  double sum = 0;
  for (const nlohmann::json& message : messages) {
    for (const nlohmann::json& step : message["steps"]) sum += step[field].get<double>();
  }
  return sum;
}

int ends_in(const Events& events) {
  int ends = 0;
  const auto found = events.find("requests");
  if (found == events.end()) return 0;
  for (const nlohmann::json& message : found->second) {
    for (const nlohmann::json& event : message["requests"]) ends += event.contains("end");
  }
  return ends;
}

// Generated tokens of the steps that have come.
double generated_in(const Events& events) {
  const auto found = events.find("steps");
  return found == events.end() ? 0 : sum_of(found->second, "generated_tokens");
}

// The value of a metric, all of its labelled series together.
double metric_sum(const ApiServer& server, const std::string& name) {
  std::istringstream lines(fetch(server.port(), "/metrics").body);
  double sum = 0;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(name + "{")) sum += std::stod(line.substr(line.rfind(' ')));
  }
  return sum;
}

TEST(LiveStream, SaysWhatIsServed) {
  ApiServer server(with_predictions());
  const nlohmann::json about = fetch(server.port(), "/api/serving").json();
  EXPECT_EQ(about["serving"], true);
  EXPECT_EQ(about["model"], "ridge-1m");
  EXPECT_EQ(about["machine"], "h200");
  EXPECT_EQ(about["max_sequences"], 8);
  EXPECT_EQ(about["max_drafts"], 0);
  EXPECT_EQ(about["page_tokens"], 16);
  EXPECT_EQ(about["pages"], 1024);
  EXPECT_FALSE(about["streams_from"]["level"].get<std::string>().empty());
  EXPECT_GT(about["streams_from"]["bytes_per_s"], 1e12);
  EXPECT_GT(about["peak_flops_per_s"], 1e12);
  EXPECT_GT(about["weight_bytes"], 1e6);
  EXPECT_GT(about["kv_bytes_per_token"], 100);
  EXPECT_EQ(about["profiles"], true);
  // The same roof by three sources; what one does not know is null.
  ASSERT_EQ(about["roofs"].size(), 3u);
  EXPECT_EQ(about["roofs"][0]["kind"], "datasheet");
  EXPECT_EQ(about["roofs"][0]["flops_per_s"], about["peak_flops_per_s"]);
  EXPECT_EQ(about["roofs"][1]["kind"], "measured");
  // ridge-1m stays in the L2, whose bandwidth was measured on an H200 and is on no datasheet.
  EXPECT_EQ(about["roofs"][1]["bytes_per_s"], about["streams_from"]["bytes_per_s"]);
  EXPECT_TRUE(about["roofs"][0]["bytes_per_s"].is_null());
  EXPECT_LT(about["roofs"][1]["flops_per_s"], about["peak_flops_per_s"]);
  EXPECT_EQ(about["roofs"][2]["kind"], "predicted");
  EXPECT_LE(about["roofs"][2]["bytes_per_s"], about["streams_from"]["bytes_per_s"]);
  EXPECT_LE(about["roofs"][2]["flops_per_s"], about["peak_flops_per_s"]);
  ApiServer unknown;  // without a machine
  EXPECT_TRUE(fetch(unknown.port(), "/api/serving").json()["streams_from"].is_null());
}

// Two seconds after somebody listens, and again when it has changed.
TEST(LiveStream, SaysWhoElseUsesTheMachine) {
  ApiServer server;
  LiveClient client(server.port());
  ASSERT_TRUE(client.wait_for("load"));
  const nlohmann::json load = client.events("load")[0];
  EXPECT_GE(load["others"], 0);
  EXPECT_LE(load["others"], 1);
  EXPECT_TRUE(load["busy"].is_boolean());
}

// This process alone keeps a core busy: it is not among the others.
TEST(MachineLoad, LeavesOutItsOwnTime) {
  const double tick = 1.0 / double(::sysconf(_SC_CLK_TCK));
  const Disturbance before{.steal = 5, .busy = 100, .total = 1000};
  Disturbance after{.steal = 5, .busy = 150, .total = 1200};
  const auto taken = [&](double own_ticks) {
    after.own_s = own_ticks * tick;
    return taken_by_others(before, after);
  };
  EXPECT_DOUBLE_EQ(taken(50), 0);
  EXPECT_DOUBLE_EQ(taken(10), 0.2);
  EXPECT_DOUBLE_EQ(taken(60), 0);  // ticks are coarse
  after.steal += 30;
  EXPECT_DOUBLE_EQ(taken(50), 0.15);
  EXPECT_DOUBLE_EQ(taken_by_others(before, before), 0);
  EXPECT_EQ(load_json(0.149), R"({"others":0.1,"busy":false})");
  EXPECT_EQ(load_json(0.42), R"({"others":0.4,"busy":true})");
}

TEST(LiveStream, NeedsAModel) {
  TestServer bare;
  EXPECT_EQ(fetch(bare.port(), "/api/serving").json()["serving"], false);
  EXPECT_EQ(fetch(bare.port(), "/api/live").status, 404);
  EXPECT_TRUE(fetch(bare.port(), "/api/live").json()["error"].contains("message"));
  ApiServer::Options options;
  options.load = false;
  ApiServer loading(std::move(options));
  EXPECT_EQ(fetch(loading.port(), "/api/serving").json()["why"], "the model is being loaded");
  EXPECT_EQ(fetch(loading.port(), "/api/live").status, 503);
}

TEST(LiveStream, IsGuardedAsTheOtherPathsAre) {
  ApiServer server;
  for (const std::string path : {"/api/serving", "/api/live"}) {
    Connection stranger(server.port());
    stranger.send("GET " + path + " HTTP/1.1\r\nHost: evil.example\r\n\r\n");
    EXPECT_EQ(parse_answer(stranger.receive()).status, 421) << path;
    EXPECT_EQ(fetch(server.port(), path + "?profil=1").status, 400) << path;
    EXPECT_EQ(fetch(server.port(), path, "Content-Type: application/json\r\n", "POST", "{}").status,
              405);
  }
  EXPECT_EQ(fetch(server.port(), "/api/live?profile=often").json()["error"]["option"], "profile");
  const nlohmann::json paths = fetch(server.port(), "/api/openapi.json").json()["paths"];
  EXPECT_TRUE(paths.contains("/api/serving"));
  EXPECT_TRUE(paths.contains("/api/live"));
}

// Two requests at once: every step, token and page is what /metrics says.
TEST(LiveStream, AddsUpToTheMetrics) {
  ApiServer server(with_predictions());
  LiveClient client(server.port());
  ASSERT_EQ(client.status(), 200);
  ASSERT_TRUE(client.wait_for("pages"));
  ASSERT_TRUE(client.wait_for("hello"));
  EXPECT_EQ(client.events("hello")[0]["model"], "ridge-1m");
  std::thread other([&] { server.ask(kText, continuation(150)); });
  Json different = continuation(120);
  different["prompt"][50] = 7;
  server.ask(kText, different);
  other.join();
  server.ask(kText, continuation(20));  // finds its prompt cached
  ASSERT_TRUE(client.wait([](const Events& events) { return ends_in(events) == 3; }));
  ASSERT_TRUE(client.wait([](const Events& events) { return generated_in(events) == 290; }));
  // The last pages: none is held any more.
  ASSERT_TRUE(client.wait([](const Events& events) {
    const nlohmann::json& last = events.at("pages").back();
    return last["held"] == 0 && last["cached"] > 0;
  }));

  const auto steps = client.events("steps");
  EXPECT_EQ(sum_of(steps, "steps"), metric_sum(server, "ridge:step_measured_seconds_count"));
  EXPECT_NEAR(sum_of(steps, "measured_s"), metric_sum(server, "ridge:step_measured_seconds_sum"),
              1e-4);
  EXPECT_NEAR(sum_of(steps, "roof_s"), metric_sum(server, "ridge:step_roof_seconds_total"), 1e-6);
  EXPECT_EQ(sum_of(steps, "generated_tokens"), metric_sum(server, "vllm:generation_tokens_total"));
  EXPECT_GT(sum_of(steps, "flops"), 1e6);
  EXPECT_GT(sum_of(steps, "bytes"), 1e6);
  double prefill_rows = 0, generated_rows = 0, dropped = 0, last = 0;
  std::set<int> ids;
  for (const nlohmann::json& message : steps) {
    dropped += message["dropped"].get<double>();
    for (const nlohmann::json& step : message["steps"]) {
      EXPECT_GE(step["at_s"].get<double>(), last - 1e-6);
      last = step["until_s"];
      EXPECT_FALSE(step["wall"].is_null());
      for (const nlohmann::json& row : step["rows"]) {
        ids.insert(row[0].get<int>());
        (row[1] == "prefill" ? prefill_rows : generated_rows) += row[2].get<double>();
      }
    }
  }
  EXPECT_EQ(dropped, 0);
  EXPECT_EQ(ids.size(), 3u);
  EXPECT_EQ(prefill_rows, sum_of(steps, "prefill_tokens"));
  EXPECT_EQ(generated_rows + 3, 290);  // each first token is drawn by a prompt's last chunk

  std::map<std::string, int> stages;
  double cached = 0;
  for (const nlohmann::json& message : client.events("requests")) {
    for (const nlohmann::json& event : message["requests"]) {
      ++stages[event["event"]];
      if (event["event"] == "admitted") cached += event["cached_tokens"].get<double>();
    }
  }
  EXPECT_EQ(stages, (std::map<std::string, int>{
                        {"arrived", 3}, {"admitted", 3}, {"first_token", 3}, {"finished", 3}}));
  EXPECT_GE(cached, 80);
  EXPECT_EQ(cached, metric_sum(server, "vllm:prefix_cache_hits_total"));

  const auto pages = client.events("pages");
  EXPECT_EQ(pages.front()["full"], true);
  std::vector<int64_t> owners(1024, 99);
  int most_sharers = 0;
  for (const nlohmann::json& message : pages) {
    EXPECT_EQ(
        message["free"].get<int>() + message["cached"].get<int>() + message["held"].get<int>(),
        1024);
    for (const nlohmann::json& run : message["changes"]) {
      for (size_t i = 0; i < run[1].get<size_t>(); ++i)
        owners.at(run[0].get<size_t>() + i) = run[2];
      most_sharers = std::max(most_sharers, run[3].get<int>());
    }
  }
  EXPECT_EQ(std::count(owners.begin(), owners.end(), 0), pages.back()["free"]);
  EXPECT_EQ(std::count(owners.begin(), owners.end(), -1), pages.back()["cached"]);
  EXPECT_EQ(pages.back()["cached"],
            metric_sum(server, "ridge:pages") - 1024 + pages.back()["cached"].get<int>());

  // The tree holds the cached pages.
  ASSERT_TRUE(client.wait_for("tree"));
  ASSERT_TRUE(client.wait([&](const Events& events) {
    int in_tree = 0;
    for (const nlohmann::json& node : events.at("tree").back()["nodes"])
      in_tree += node["pages"].get<int>();
    return in_tree == pages.back()["cached"];
  }));
}

TEST(LiveStream, TimesOperatorsForThoseWhoAsk) {
  ApiServer server(with_predictions());
  LiveClient plain(server.port()), profiled(server.port(), "?profile=1");
  ASSERT_TRUE(plain.wait_for("pages"));
  ASSERT_TRUE(profiled.wait_for("pages"));
  Json body = continuation(600);
  server.ask(kText, body);
  server.ask(kText, body);
  ASSERT_TRUE(profiled.wait_for("profile"));
  const nlohmann::json profile = profiled.events("profile")[0];
  double sum = profile["unattributed_s"];
  std::set<std::string> names;
  for (const nlohmann::json& op : profile["ops"]) {
    names.insert(op["name"]);
    EXPECT_GT(op["count"], 0);
    EXPECT_GT(op["roof_s"], 0);
    if (op["measured_s"].is_number()) sum += op["measured_s"].get<double>();
  }
  EXPECT_TRUE(names.contains("attention"));
  EXPECT_TRUE(names.contains("down"));
  EXPECT_NEAR(sum, profile["step_s"], 1e-5 * profile["step_s"].get<double>() + 1e-9);
  EXPECT_TRUE(plain.events("profile").empty());
}

TEST(LiveStream, BoundsDraftsByRequest) {
  ApiServer::Options options;
  options.runner.max_logit_rows = 40;
  options.serving.max_drafts = 4;
  ApiServer server(std::move(options));
  LiveClient client(server.port());
  ASSERT_TRUE(client.wait_for("pages"));
  Json body = continuation(150);
  body["max_drafts"] = 0;
  const Json without = server.ask(kText, body);
  ASSERT_TRUE(client.wait(
      [](const Events& events) { return ends_in(events) == 1 && generated_in(events) == 150; }));
  EXPECT_EQ(sum_of(client.events("steps"), "draft_tokens"), 0);
  body.erase("max_drafts");
  EXPECT_EQ(server.ask(kText, body)["choices"][0]["text"], without["choices"][0]["text"]);
  ASSERT_TRUE(client.wait(
      [](const Events& events) { return ends_in(events) == 2 && generated_in(events) == 300; }));
  double drafts = 0, accepted = 0;
  for (const nlohmann::json& message : client.events("steps")) {
    for (const nlohmann::json& step : message["steps"]) {
      for (const nlohmann::json& row : step["rows"]) {
        if (row[1] != "draft") continue;
        accepted += row[3].get<double>();
        drafts += row[4].get<double>();
      }
    }
  }
  EXPECT_GT(drafts, 0);
  EXPECT_EQ(drafts, sum_of(client.events("steps"), "draft_tokens"));
  EXPECT_EQ(accepted, sum_of(client.events("steps"), "accepted_tokens"));
  body["max_drafts"] = 5;
  const Answer refused = server.post(kText, body);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.json()["error"]["param"], "max_drafts");
}

TEST(LiveStream, HasFourPlaces) {
  ApiServer server;
  std::vector<std::unique_ptr<LiveClient>> clients;
  for (int i = 0; i < 4; ++i) clients.push_back(std::make_unique<LiveClient>(server.port()));
  for (const auto& client : clients) ASSERT_TRUE(client->wait_for("tree"));
  const Answer fifth = fetch(server.port(), "/api/live");
  EXPECT_EQ(fifth.status, 503);
  EXPECT_TRUE(fifth.json()["error"].contains("message"));
  clients.pop_back();  // a place becomes free
  EXPECT_TRUE(
      wait_until("a place is free", [&] { return LiveClient(server.port()).status() == 200; }));
}

TEST(LiveStream, EndsWithTheServer) {
  auto server = std::make_unique<ApiServer>();
  LiveClient drained(server->port());
  ASSERT_TRUE(drained.wait_for("pages"));
  server->api().drain();
  EXPECT_TRUE(drained.wait_for_end());
  EXPECT_TRUE(drained.ended_whole());
  EXPECT_EQ(fetch(server->port(), "/api/live").status, 503);
  server = std::make_unique<ApiServer>();
  LiveClient stopped(server->port());
  ASSERT_TRUE(stopped.wait_for("pages"));
  server.reset();
  EXPECT_TRUE(stopped.wait_for_end());
}

// An exchange without a socket: the HTTP server drops it after so many bytes.
class FakeExchange : public HttpExchange {
 public:
  explicit FakeExchange(size_t unsent_bytes) : unsent_(unsent_bytes) {}
  const HttpRequest& request() const override { return request_; }
  void release_body() override {}
  void reply(HttpReply) override {}
  void begin_stream(HttpReply) override {}
  bool write(std::string_view bytes) override {
    if (closed_) return false;
    closed_ = (written_ += bytes.size()) > unsent_;
    return !closed_;
  }
  void end() override { ended_ = true; }
  void on_closed(std::function<void()>) override {}
  bool closed() const override { return closed_; }
  size_t written() const { return written_; }
  bool ended() const { return ended_; }

 private:
  HttpRequest request_;
  size_t unsent_;
  std::atomic<size_t> written_ = 0;
  std::atomic<bool> closed_ = false, ended_ = false;
};

TEST(LiveStream, ForgetsSlowReadersAndKeepsToItsRate) {
  RunnerOptions bounds{.threads = 1, .cache_tokens = 16384, .max_sequences = 8};
  LiveFeed feed(1024, 8);
  ServingEngine engine(
      make_cpu_runner(load_weights("ridge-1m"), bounds), paced({}), [](auto&&) {}, &feed);
  LiveStream live(serving_json("ridge-1m", engine.runner(), {}, {}, {}), {{&feed, &engine}}, {},
                  {});
  std::vector<std::shared_ptr<FakeExchange>> slow;
  for (int i = 0; i < 3; ++i) {
    slow.push_back(std::make_shared<FakeExchange>(600));
    EXPECT_TRUE(live.listen(slow.back(), false));
  }
  const auto quick = std::make_shared<FakeExchange>(1 << 30);
  EXPECT_TRUE(live.listen(quick, false));
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < 8; ++i) {
    ServingRequest request;
    request.id = engine.new_id();
    request.prompt = {1, 2, Token(3 + i)};
    request.generate.max_tokens = 900;
    request.generate.ignore_end = true;
    engine.submit(std::move(request));
  }
  EXPECT_TRUE(wait_until("the engine is idle", [&] { return engine.idle(); }));
  for (const auto& each : slow) {
    EXPECT_TRUE(wait_until("a slow reader is dropped", [&] { return each->closed(); }));
  }
  const auto another = std::make_shared<FakeExchange>(1 << 20);
  EXPECT_TRUE(wait_until("their places are free", [&] { return live.listen(another, false); }));
  EXPECT_TRUE(wait_until("the quick one gets more", [&] { return quick->written() > 1000; }));
  const auto written = double(quick->written());
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  EXPECT_LT(written, LiveStream::kBytesPerSecond * (seconds + 1) + 8192);
  live.end();
  EXPECT_TRUE(wait_until("the stream ends", [&] { return quick->ended(); }));
  EXPECT_FALSE(live.listen(std::make_shared<FakeExchange>(1), false));
}

}  // namespace
}  // namespace ridge
