#include "serve/server.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <utility>

#include "base/error.h"
#include "serve/api.h"
#include "serve/busy_error.h"
#include "serve/explain_files.h"
#include "serve/lab_service.h"
#include "serve/openai_server.h"
#include "serve/page.h"
#include "serve/serving_json.h"

namespace ridge {
namespace {

HttpReply json_reply(const Json& json, int status = 200) {
  HttpReply reply;
  reply.status = status;
  // Names from a user's atlas may hold bytes that are not UTF-8.
  reply.body = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return reply;
}

HttpReply error_reply(int status, const std::string& message, const std::string& option = "") {
  Json error{{"message", message}};
  if (!option.empty()) error["option"] = option;
  return json_reply({{"error", error}}, status);
}

// Without the port.
std::string_view host_name(std::string_view host) {
  const size_t colon = host.rfind(':');
  const bool bare_v6 = host.ends_with(']');
  return colon == std::string_view::npos || bare_v6 ? host : host.substr(0, colon);
}

std::string text_of(const nlohmann::json& value, const std::string& name) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "true" : "false";
  if (value.is_number()) return value.dump();
  if (value.is_array()) {
    std::string list;
    for (const nlohmann::json& part : value) {
      if (part.is_structured()) break;
      list += (list.empty() ? "" : ",") + text_of(part, name);
    }
    return list;
  }
  throw OptionError(name, fmt::format("{} must be text, a number, true or false, or a list", name));
}

ApiOptions options_in(const HttpRequest& request) {
  if (!request.repeated.empty()) {
    throw OptionError(request.repeated, fmt::format("{} was given twice", request.repeated));
  }
  ApiOptions options = request.query;
  if (request.method != "POST") return options;
  const nlohmann::json body = parse_json(request.body, "the body");
  if (!body.is_object()) throw Error("the body must be a JSON object of options");
  for (const auto& [name, value] : body.items()) {
    if (!value.is_null()) options[name] = text_of(value, name);
  }
  return options;
}

template <typename Work>  // gives JSON
HttpReply reply_with(Work work) {
  try {
    return json_reply(work());
  } catch (const OptionError& error) {
    return error_reply(400, error.what(), error.option());
  } catch (const BusyError& error) {
    HttpReply reply = error_reply(503, error.what());
    reply.headers.emplace_back("Retry-After", "5");
    return reply;
  } catch (const Error& error) {
    return error_reply(400, error.what());
  } catch (const std::exception& error) {
    return error_reply(500, fmt::format("a fault of Ridge: {}", error.what()));
  }
}

HttpReply files_reply(const HttpRequest& request, const std::string& bound_host) {
  if (request.method != "POST") return error_reply(405, "POST with the files");
  if (!is_loopback(bound_host)) {
    return error_reply(403, "files are taken on a loopback address only; elsewhere: ridge explain");
  }
  if (request.content_type != kExplainFilesType) {
    return error_reply(415, fmt::format("the body must be {}", kExplainFilesType));
  }
  return reply_with([&] { return explain_files(request.body); });
}

HttpReply page(const HttpRequest& request, const PageFile& file) {
  HttpReply reply;
  reply.type = file.type;
  reply.cacheable = true;
  reply.gzipped = request.takes_gzip;
  reply.body = request.takes_gzip ? std::string(file.gzip) : unzip(file.gzip);
  return reply;
}

bool may_answer(const HttpRequest& request, const std::string& bound_host) {
  const std::string_view host = host_name(request.host);
  return !is_loopback(bound_host) || host.empty() || is_loopback(host);
}

constexpr const char* kServingPath = "/api/serving";
constexpr const char* kLivePath = "/api/live";

// The only option of both: ?profile=1 at /api/live. Throws OptionError.
bool wants_live_profile(const HttpRequest& request) {
  if (!request.repeated.empty()) {
    throw OptionError(request.repeated, fmt::format("{} was given twice", request.repeated));
  }
  bool profile = false;
  for (const auto& [name, value] : request.query) {
    if (name != "profile" || request.path != kLivePath) {
      throw OptionError(name, fmt::format("unknown option '{}'", name.substr(0, 64)));
    }
    profile = value == "1" || value == "true" || value.empty();
    if (profile || value == "0" || value == "false") continue;
    throw OptionError(name, "profile is true or false");
  }
  return profile;
}

void answer_live(const std::shared_ptr<HttpExchange>& exchange, const std::string& host,
                 const OpenAiServer* api) {
  const HttpRequest& request = exchange->request();
  const bool streams = request.path == kLivePath;
  const auto fail = [&](int status, const std::string& message, const std::string& option = "") {
    exchange->reply(error_reply(status, message, option));
  };
  if (!may_answer(request, host)) return fail(421, "this server answers to local names only");
  if (request.method != "GET" && (streams || request.method != "HEAD")) {
    return fail(405, "only GET here");
  }
  const std::string why = "no model is served: ridge serve was started with --no-model";
  try {
    const bool profile = wants_live_profile(request);
    if (!streams) {
      exchange->reply(json_reply(api != nullptr ? api->serving() : not_serving_json(why)));
    } else if (api == nullptr) {
      fail(404, why);
    } else {
      api->handle_live(exchange, profile);
    }
  } catch (const OptionError& error) {
    fail(400, error.what(), error.option());
  }
}

}  // namespace

bool is_loopback(std::string_view host) {
  if (host == "localhost" || host == "::1" || host == "[::1]") return true;
  in_addr address{};  // "127.example.com" is no address
  return inet_pton(AF_INET, std::string(host).c_str(), &address) == 1 &&
         (ntohl(address.s_addr) >> 24) == 127;
}

HttpReply reply_to(const HttpRequest& request, const std::string& bound_host) {
  if (!may_answer(request, bound_host)) {
    return error_reply(421, "this server answers to local names only");
  }
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (const ApiEndpoint* endpoint = find_api_endpoint(request.path)) {
    if (!reads && request.method != "POST") {
      return error_reply(405, "GET with a query, or POST with a JSON object");
    }
    if (!reads && !request.content_type.starts_with("application/json")) {
      return error_reply(415, "a body must be application/json");
    }
    return reply_with([&] { return answer(*endpoint, options_in(request)); });
  }
  if (request.path == kExplainFilesPath) return files_reply(request, bound_host);
  if (!reads) return error_reply(405, "only GET here");
  if (request.path == "/healthz") return json_reply({{"status", "ok"}});
  const std::string path = request.path == "/" ? "index.html" : request.path.substr(1);
  if (const PageFile* file = find_page_file(path)) return page(request, *file);
  return error_reply(404, "nothing here; /api/openapi.json lists what is");
}

HttpLimits page_limits(const std::string& bound_host) {
  HttpLimits limits;
  limits.body_bytes = [local = is_loopback(bound_host)](std::string_view path) {
    return local && path == kExplainFilesPath ? kExplainFilesBytes : default_body_bytes(path);
  };
  return limits;
}

HttpHandler page_handler(std::string bound_host, OpenAiServer* api, LabService* lab) {
  return [host = std::move(bound_host), api, lab](const std::shared_ptr<HttpExchange>& exchange) {
    const HttpRequest& request = exchange->request();
    if (api != nullptr && OpenAiServer::serves(request.path) && may_answer(request, host)) {
      return api->handle(exchange);
    }
    if (request.path == kServingPath || request.path == kLivePath) {
      return answer_live(exchange, host, api);
    }
    if (lab != nullptr && LabService::serves(request.path) && may_answer(request, host)) {
      return exchange->reply(lab->reply(request));
    }
    exchange->reply(reply_to(request, host));
  };
}

bool is_quick(const HttpRequest& request) {
  return request.path == "/healthz" || request.path == "/health" || request.path == "/v1/models";
}

}  // namespace ridge
