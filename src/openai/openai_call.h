// One client request on its way: its choices at the engine, its answer on the connection.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "http/http.h"
#include "openai/openai_choice.h"
#include "openai/output_router.h"
#include "openai/served_model.h"

namespace ridge {

// An exchange whose answer gets further headers: x-request-id, CORS.
struct ApiExchange {
  std::shared_ptr<HttpExchange> http;
  std::vector<std::pair<std::string, std::string>> headers;

  void reply(HttpReply reply) const;
  void begin_stream() const;  // of server-sent events
};

class OpenAiCall final : public OutputReceiver, public std::enable_shared_from_this<OpenAiCall> {
 public:
  // Tokenizes and checks: throws OptionError or OpenAiFailure for what can never run. `model` must
  // outlive it.
  OpenAiCall(ApiExchange exchange, OpenAiRequest request, const std::string& model_name,
             ServedModel& model);

  // Submits all choices and answers when they have ended; 429 where the queue is full.
  void start(OutputRouter& router);
  void deliver(size_t choice, RequestOutput&& output) override;

 private:
  Cancelled client_gone() const;
  bool submit_all(OutputRouter& router);
  ServingRequest make_request(size_t choice) const;
  int token_limit(size_t prompt) const;  // throws OpenAiFailure where the context does not suffice
  void cancel() const;
  void fail(const RequestOutput& output);
  void send_chunks(OpenAiChoice& choice);
  void finish();
  TokenUsage usage() const;

  const ApiExchange exchange_;
  OpenAiRequest request_;  // once constructed: without its prompts, messages and tools
  ServedModel* const model_;
  const ReplyHead head_;
  const std::shared_ptr<const Grammar> grammar_;
  uint64_t seed_;
  std::vector<std::vector<Token>> prompts_;
  std::vector<int> limits_;     // tokens to generate, by prompt
  std::vector<RequestId> ids_;  // by choice: prompt-major, then n

  std::mutex mutex_;  // of what follows: outputs may come while requests are still submitted
  std::vector<OpenAiChoice> choices_;
  size_t open_ = 0;    // choices that go on
  bool over_ = false;  // answered, or the client is gone
};

}  // namespace ridge
