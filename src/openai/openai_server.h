// The OpenAI API over HTTP: routes and states of the model. Completions and chats go to the
// serving engine (openai_call.h); the rest is answered here.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "http/http.h"
#include "serving/replicas.h"

namespace ridge {

// Larger bodies have a lane of their own, and what was made of them goes back to the system.
inline constexpr size_t kLargeBodyBytes = size_t{1} << 20;

class OpenAiServer {
 public:
  // At least one name: the model's, then aliases.
  explicit OpenAiServer(std::vector<std::string> model_names);
  ~OpenAiServer();  // ends every request; HttpServer::run() must have returned

  // Called once, from any thread, with a replica of the model or more. Before it has returned,
  // requests get 503.
  void start(std::vector<ReplicaGroup::Parts> replicas);
  const std::string& model_name() const;
  void drain();  // from now on, new requests get 503; live streams end

  // The page's view of the engine: GET /api/serving and /api/live. Never throw.
  Json serving() const;
  void handle_live(const std::shared_ptr<HttpExchange>& exchange, bool profile) const;

  static bool serves(std::string_view path);   // whether handle() is for this path
  static bool is_open(std::string_view path);  // and needs no key
  // Answers now or when the request has ended, with these headers besides. Never throws.
  // refuse_head() of access.h comes before it.
  void handle(const std::shared_ptr<HttpExchange>& exchange,
              std::vector<std::pair<std::string, std::string>> headers);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ridge
