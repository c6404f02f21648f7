// The OpenAI API with a small model inside, on a free loopback port, and a client of its streams.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/weights/weights.h"
#include "openai/openai_server.h"
#include "page/support.h"
#include "serving/test_pace.h"

namespace ridge {

inline constexpr const char* kCompletions = "/v1/completions";

class ApiServer {
 public:
  struct Options {
    std::vector<std::string> model_names = {"ridge-1m", "tiny"};
    AccessRules access = {};
    // Invariant: answers are compared whose prompts were cached or not.
    RunnerOptions runner = {
        .threads = 1, .cache_tokens = 16384, .max_sequences = 8, .invariant = true};
    ServingOptions serving;  // of one replica
    int replicas = 1;  // more: with default options, but for the pace, and for `lost` by replica
    std::function<std::function<std::string()>(int replica)> lost = {};
    bool load = true;
  };
  ApiServer() : ApiServer(Options{}) {}
  explicit ApiServer(Options options)
      : api_(options.model_names),
        server_(page_handler(options.access, &api_), page_limits(options.access, patient_limits())),
        port_(server_.bind("127.0.0.1", 0)),
        thread_([this] { server_.run(); }) {
    if (!options.load) return;
    std::vector<ReplicaGroup::Parts> replicas;
    for (int r = 0; r < options.replicas; ++r) {
      ReplicaGroup::Parts& parts = replicas.emplace_back();
      parts.runner = make_cpu_runner(load_weights("ridge-1m"), options.runner);
      if (options.replicas == 1) {
        parts.options = std::move(options.serving);
      } else {
        parts.options.pace = options.serving.pace;
      }
      parts.options = paced(std::move(parts.options));
      if (options.lost) parts.options.lost = options.lost(r);
    }
    api_.start(std::move(replicas));
  }
  ~ApiServer() {
    server_.stop();
    thread_.join();
  }
  int port() const { return port_; }
  OpenAiServer& api() { return api_; }

  Answer post(const std::string& path, const Json& body, const std::string& headers = "") const {
    return fetch(port_, path, "Content-Type: application/json\r\n" + headers, "POST", body.dump());
  }
  // The answer to a request that must succeed.
  Json ask(const std::string& path, const Json& body) const {
    const Answer answer = post(path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return Json::parse(answer.body);
  }
  std::string metric(const std::string& name) const {  // the rest of its line; "" where missing
    const std::string text = fetch(port_, "/metrics").body;
    const size_t at = text.find("\n" + name);
    return at == text.npos ? "" : text.substr(at + 1, text.find('\n', at + 1) - at - 1);
  }

 private:
  OpenAiServer api_;
  HttpServer server_;
  int port_;
  std::thread thread_;
};

struct Stream {
  Answer answer;
  std::vector<Json> events;
  bool done = false;  // [DONE] came, and nothing after it

  // Of choice `index`: the concatenated text, or content of a chat.
  std::string text(int index = 0) const {
    std::string text;
    for (const Json& event : events) {
      for (const Json& choice : event.value("choices", Json::array())) {
        if (choice["index"] != index) continue;
        const Json part = choice.contains("delta") ? choice["delta"].value("content", Json())
                                                   : choice.value("text", Json());
        if (part.is_string()) text += part.get<std::string>();
      }
    }
    return text;
  }
  std::string finish_reason(int index = 0) const {  // all of them: once per choice
    std::string reasons;
    for (const Json& event : events) {
      for (const Json& choice : event.value("choices", Json::array())) {
        const Json reason = choice.value("finish_reason", Json());
        if (choice["index"] == index && reason.is_string()) reasons += reason.get<std::string>();
      }
    }
    return reasons;
  }
};

inline Stream read_stream(const std::string& text) {
  Stream stream;
  stream.answer = parse_answer(text);
  const std::string body = dechunked(stream.answer.body).value_or("");
  for (size_t at = 0; at < body.size();) {
    const size_t end = body.find("\n\n", at);
    EXPECT_NE(end, body.npos) << body.substr(at);
    if (end == body.npos) break;
    const std::string line = body.substr(at, end - at);
    EXPECT_TRUE(line.starts_with("data: ")) << line;
    EXPECT_FALSE(stream.done) << "after [DONE]: " << line;
    if (line == "data: [DONE]") {
      stream.done = true;
    } else {
      stream.events.push_back(Json::parse(line.substr(6)));
    }
    at = end + 2;
  }
  return stream;
}

inline Stream stream(const ApiServer& server, const std::string& path, Json body) {
  body["stream"] = true;
  Connection connection(server.port());
  connection.send(request_text(path, body.dump()));
  return read_stream(connection.receive_all());
}

}  // namespace ridge
