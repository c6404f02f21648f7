#include "openai/openai_server.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>

#include "base/error.h"
#include "base/free_memory.h"
#include "http/http_text.h"
#include "live/serving_json.h"
#include "openai/openai_call.h"
#include "openai/openai_reply.h"
#include "openai/openai_request.h"
#include "openai/output_router.h"
#include "openai/served_model.h"

namespace ridge {

struct OpenAiServer::Impl {
  struct Route {
    const char* path;  // without /v1
    bool post;
    void (Impl::*handle)(const ApiExchange&);
    bool open = false;  // needs no key
  };
  static const Route* find_route(std::string_view path);  // null: none

  explicit Impl(std::vector<std::string> names) : model_names(std::move(names)) {}
  ~Impl();

  ServedModel& ready_model();                                     // throws OpenAiFailure: 503
  const std::string& check_name(const std::string& model) const;  // 404; the name to reply with

  void answer(const ApiExchange& exchange);
  void health(const ApiExchange& exchange);
  void version(const ApiExchange& exchange);
  void metrics(const ApiExchange& exchange);
  void list_models(const ApiExchange& exchange);
  void one_model(const ApiExchange& exchange, const std::string& name);
  void completion(const ApiExchange& exchange);
  void chat(const ApiExchange& exchange);
  void tokenize(const ApiExchange& exchange);
  void detokenize(const ApiExchange& exchange);
  void begin_call(const ApiExchange& exchange, OpenAiRequest request, ServedModel& model);
  Json model_json(const std::string& name);

  const std::vector<std::string> model_names;
  const std::chrono::system_clock::time_point created = std::chrono::system_clock::now();
  std::atomic<bool> draining = false;
  OutputRouter router;                        // outlives the engines, which push into it
  std::unique_ptr<ServedModel> owned;         // by start()
  std::atomic<ServedModel*> model = nullptr;  // null: not loaded
};

namespace {

constexpr std::string_view kModelPath = "/models/";

std::string_view without_version(std::string_view path) {
  return path.starts_with("/v1/") ? path.substr(3) : path;
}

void check_method(const HttpRequest& request, bool post) {
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (post ? request.method != "POST" : !reads) {
    const char* const allowed = post ? "POST" : "GET, HEAD";
    OpenAiError error{405, fmt::format("only {} here", allowed), "", "method_not_allowed"};
    error.headers = {{"Allow", allowed}};
    throw OpenAiFailure(std::move(error));
  }
  // Which web pages cannot send without asking first.
  if (post && !has_media_type(request.content_type, "application/json")) {
    throw OpenAiFailure({415,
                         "the body must be JSON: send the header Content-Type: application/json",
                         "", "unsupported_media_type"});
  }
}

}  // namespace

const OpenAiServer::Impl::Route* OpenAiServer::Impl::find_route(std::string_view path) {
  static constexpr Route kRoutes[] = {
      {"/chat/completions", true, &Impl::chat},  {"/completions", true, &Impl::completion},
      {"/models", false, &Impl::list_models},    {"/tokenize", true, &Impl::tokenize},
      {"/detokenize", true, &Impl::detokenize},  {"/health", false, &Impl::health, true},
      {"/version", false, &Impl::version, true}, {"/metrics", false, &Impl::metrics, true},
  };
  const auto found = std::find_if(std::begin(kRoutes), std::end(kRoutes),
                                  [&](const Route& route) { return path == route.path; });
  return found == std::end(kRoutes) ? nullptr : found;
}

OpenAiServer::Impl::~Impl() {
  if (!owned) return;
  for (const RequestId id : router.requests()) owned->engines().cancel(id);
  router.wait_until_empty();  // calls refer to the engine
}

ServedModel& OpenAiServer::Impl::ready_model() {
  ServedModel* const ready = model;
  if (ready == nullptr) {
    throw OpenAiFailure({503, "the model is being loaded", "", "model_loading"});
  }
  if (const auto failure = ready->engines().failure()) {
    throw OpenAiFailure({503, "the engine failed: " + *failure, "", "engine_failed"});
  }
  if (draining) throw OpenAiFailure({503, "the server is shutting down", "", "shutting_down"});
  return *ready;
}

const std::string& OpenAiServer::Impl::check_name(const std::string& name) const {
  if (name.empty()) return model_names.front();
  const auto found = std::find(model_names.begin(), model_names.end(), name);
  if (found == model_names.end()) {
    throw OpenAiFailure(
        {404,
         fmt::format("the model {} does not exist; {} is served here", name, model_names.front()),
         "model", "model_not_found"});
  }
  return *found;
}

void OpenAiServer::Impl::answer(const ApiExchange& exchange) {
  const HttpRequest& request = exchange.http->request();
  const std::string_view path = without_version(request.path);
  const Route* const route = find_route(path);
  if (route != nullptr) {
    check_method(request, route->post);
    return (this->*route->handle)(exchange);
  }
  if (path.starts_with(kModelPath)) {
    check_method(request, false);
    return one_model(exchange, std::string(path.substr(kModelPath.size())));
  }
  throw OpenAiFailure({404, fmt::format("nothing at {}", request.path), "", "not_found"});
}

void OpenAiServer::Impl::health(const ApiExchange& exchange) {
  const ReplicaGroup& engines = ready_model().engines();
  if (engines.size() == 1) return exchange.reply(openai_json({{"status", "ok"}}));
  const int serving = engines.serving();
  exchange.reply(openai_json({{"status", serving == engines.size() ? "ok" : "degraded"},
                              {"replicas", engines.size()},
                              {"replicas_serving", serving}}));
}

void OpenAiServer::Impl::version(const ApiExchange& exchange) {
  exchange.reply(openai_json({{"version", RIDGE_VERSION}}));
}

void OpenAiServer::Impl::metrics(const ApiExchange& exchange) {
  HttpReply reply;
  reply.type = kMetricsContentType;
  // Also of an engine that failed or drains: that is when somebody looks.
  ServedModel* const loaded = model;
  reply.body = (loaded != nullptr ? *loaded : ready_model()).metrics().text();
  exchange.reply(std::move(reply));
}

Json OpenAiServer::Impl::model_json(const std::string& name) {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(created.time_since_epoch()).count();
  Json json{{"id", name}, {"object", "model"}, {"created", seconds}, {"owned_by", "ridge"}};
  if (const ServedModel* ready = model) {
    json["max_model_len"] = ready->engines().max_context();
    json["meta"] = {{"n_vocab", ready->vocab()}};  // as llama.cpp tells it
  }
  return json;
}

void OpenAiServer::Impl::list_models(const ApiExchange& exchange) {
  Json list = Json::array();
  for (const std::string& name : model_names) list.push_back(model_json(name));
  exchange.reply(openai_json({{"object", "list"}, {"data", list}}));
}

void OpenAiServer::Impl::one_model(const ApiExchange& exchange, const std::string& name) {
  exchange.reply(openai_json(model_json(check_name(name))));
}

void OpenAiServer::Impl::begin_call(const ApiExchange& exchange, OpenAiRequest request,
                                    ServedModel& ready) {
  const std::string name = check_name(request.model);
  std::make_shared<OpenAiCall>(exchange, std::move(request), name, ready)->start(router);
}

void OpenAiServer::Impl::completion(const ApiExchange& exchange) {
  ServedModel& ready = ready_model();
  OpenAiRequest request = read_completion_request(exchange.http->request().body, ready.vocab());
  exchange.http->release_body();
  begin_call(exchange, std::move(request), ready);
}

void OpenAiServer::Impl::chat(const ApiExchange& exchange) {
  ServedModel& ready = ready_model();
  OpenAiRequest request = read_chat_request(exchange.http->request().body, ready.vocab());
  exchange.http->release_body();
  begin_call(exchange, std::move(request), ready);
}

void OpenAiServer::Impl::tokenize(const ApiExchange& exchange) {
  ServedModel& ready = ready_model();
  TokenizeRequest request = read_tokenize_request(exchange.http->request().body);
  exchange.http->release_body();
  check_name(request.model);
  const auto gone = [&exchange] { return exchange.http->closed(); };
  const std::vector<Token> tokens =
      request.prompt ? ready.encode(*request.prompt, request.add_special_tokens, gone)
                     : ready.encode_chat(request.chat, gone);
  // Written without a tree, which would take 16 bytes and more for each token.
  HttpReply reply = openai_json({});
  reply.body = fmt::format(R"({{"count":{},"max_model_len":{},"tokens":[{}],"token_strs":)",
                           tokens.size(), ready.engines().max_context(), fmt::join(tokens, ","));
  if (request.return_token_strings) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      reply.body += i > 0 ? ',' : '[';
      reply.body += json_text(token_text(ready.tokenizer(), tokens[i]));
    }
    reply.body += tokens.empty() ? "[]}" : "]}";
  } else {
    reply.body += "null}";
  }
  exchange.reply(std::move(reply));
}

void OpenAiServer::Impl::detokenize(const ApiExchange& exchange) {
  ServedModel& ready = ready_model();
  const DetokenizeRequest request =
      read_detokenize_request(exchange.http->request().body, ready.vocab());
  exchange.http->release_body();
  check_name(request.model);
  exchange.reply(openai_json({{"prompt", ready.decode(request.tokens)}}));
}

OpenAiServer::OpenAiServer(std::vector<std::string> names)
    : impl_(std::make_unique<Impl>(std::move(names))) {}
OpenAiServer::~OpenAiServer() = default;

void OpenAiServer::start(std::vector<ReplicaGroup::Parts> replicas) {
  impl_->owned =
      std::make_unique<ServedModel>(std::move(replicas), impl_->model_names.front(),
                                    [impl = impl_.get()](std::vector<RequestOutput>&& outputs) {
                                      impl->router.push(std::move(outputs));
                                    });
  impl_->model = impl_->owned.get();
}

const std::string& OpenAiServer::model_name() const { return impl_->model_names.front(); }

void OpenAiServer::drain() {
  impl_->draining = true;
  if (const ServedModel* loaded = impl_->model) loaded->live().end();
}

Json OpenAiServer::serving() const {
  const ServedModel* const loaded = impl_->model;
  if (loaded == nullptr) return not_serving_json("the model is being loaded");
  if (const auto failure = loaded->engines().failure()) {
    return not_serving_json("the engine failed: " + *failure);
  }
  return loaded->live().about();
}

void OpenAiServer::handle_live(const std::shared_ptr<HttpExchange>& exchange, bool profile) const {
  const ServedModel* const loaded = impl_->model;
  const auto refuse = [&](const std::string& message) {
    exchange->reply(openai_json({{"error", {{"message", message}}}}, 503));
  };
  if (loaded == nullptr) return refuse("the model is being loaded");
  if (impl_->draining) return refuse("the server is shutting down");
  if (const auto failure = loaded->engines().failure())
    return refuse("the engine failed: " + *failure);
  if (!loaded->live().listen(exchange, profile)) {
    refuse(fmt::format("at most {} pages can listen at once", LiveStream::kMaxListeners));
  }
}

bool OpenAiServer::serves(std::string_view path) {
  const std::string_view bare = without_version(path);
  return path.starts_with("/v1/") || Impl::find_route(bare) != nullptr ||
         bare.starts_with(kModelPath);
}

bool OpenAiServer::is_open(std::string_view path) {
  const Impl::Route* const route = Impl::find_route(without_version(path));
  return route != nullptr && route->open;
}

void OpenAiServer::handle(const std::shared_ptr<HttpExchange>& exchange,
                          std::vector<std::pair<std::string, std::string>> headers) {
  const ApiExchange api{exchange, std::move(headers)};
  const size_t body_bytes = exchange->request().body.size();
  try {
    impl_->answer(api);
  } catch (const OpenAiFailure& failure) {
    api.reply(openai_error_reply(failure.error()));
  } catch (const OptionError& error) {
    api.reply(openai_error_reply({400, error.what(), error.option()}));
  } catch (const Error& error) {
    api.reply(openai_error_reply({400, error.what()}));
  } catch (const std::exception& error) {
    api.reply(openai_error_reply({500, fmt::format("a fault of Ridge: {}", error.what())}));
  }
  if (body_bytes > kLargeBodyBytes) return_free_memory();
}

}  // namespace ridge
