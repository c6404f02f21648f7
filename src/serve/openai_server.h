// The OpenAI API over HTTP: routes, keys and states of the model. Completions and chats go to the
// serving engine (openai_call.h); the rest is answered here.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "serve/http.h"
#include "serving/replicas.h"

namespace ridge {

struct OpenAiOptions {
  std::vector<std::string> model_names;   // at least one: the model's name, then aliases
  std::vector<std::string> keys = {};     // clients need one, but for /health; none: open to all
  std::vector<std::string> origins = {};  // of web pages that may use the API; "*": all
};

class OpenAiServer {
 public:
  explicit OpenAiServer(OpenAiOptions options);
  ~OpenAiServer();  // ends every request; HttpServer::run() must have returned

  // Called once, from any thread, with a replica of the model or more. Before it has returned,
  // requests get 503.
  void start(std::vector<ReplicaGroup::Parts> replicas);
  const std::string& model_name() const;
  void drain();  // from now on, new requests get 503; live streams end

  // The page's view of the engine: GET /api/serving and /api/live. Never throw.
  Json serving() const;
  void handle_live(const std::shared_ptr<HttpExchange>& exchange, bool profile) const;

  static bool serves(std::string_view path);  // whether handle() is for this path
  // Answers now or when the request has ended. Never throws.
  void handle(const std::shared_ptr<HttpExchange>& exchange);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ridge
