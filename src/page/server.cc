#include "page/server.h"

#include <optional>
#include <utility>

#include "live/serving_json.h"
#include "openai/openai_server.h"
#include "page/api_http.h"
#include "page/api_options.h"
#include "page/explain_files.h"
#include "page/lab_service.h"
#include "page/page.h"

namespace ridge {
namespace {

HttpReply page(const HttpRequest& request, const PageFile& file) {
  HttpReply reply;
  reply.type = file.type;
  reply.cacheable = true;
  reply.gzipped = request.takes_gzip;
  reply.body = request.takes_gzip ? std::string(file.gzip) : unzip(file.gzip);
  return reply;
}

constexpr const char* kServingPath = "/api/serving";
constexpr const char* kLivePath = "/api/live";

// The only option of both paths: ?profile=1 at /api/live. Throws OptionError.
bool wants_live_profile(const HttpRequest& request) {
  const ApiOptions options = api_options_in(request);
  const bool streams = request.path == kLivePath;
  check_known_options(options,
                      streams ? std::vector<std::string>{"profile"} : std::vector<std::string>{});
  return flag_option(options, "profile");
}

void answer_live(const std::shared_ptr<HttpExchange>& exchange, const OpenAiServer* api) {
  const HttpRequest& request = exchange->request();
  const bool streams = request.path == kLivePath;
  const auto fail = [&](int status, const std::string& message, const std::string& option = "") {
    exchange->reply(api_error_reply(status, message, option));
  };
  if (request.method != "GET" && (streams || request.method != "HEAD")) {
    return fail(405, "only GET here");
  }
  const std::string why = "no model is served: ridge serve was started with --no-model";
  try {
    const bool profile = wants_live_profile(request);
    if (!streams) {
      exchange->reply(api_json_reply(api != nullptr ? api->serving() : not_serving_json(why)));
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

HttpReply reply_to(const HttpRequest& request, const AccessRules& rules,
                   const Cancelled& cancelled) {
  const bool reads = request.method == "GET" || request.method == "HEAD";
  if (const ApiEndpoint* endpoint = find_api_endpoint(request.path)) {
    if (!reads && request.method != "POST") {
      return api_error_reply(405, "GET with a query, or POST with a JSON object");
    }
    return api_reply_with([&] { return answer(*endpoint, api_options_in(request), cancelled); });
  }
  if (request.path == kExplainFilesPath) {
    if (request.method != "POST") return api_error_reply(405, "POST with the files");
    return api_reply_with([&] { return explain_files(request.body); });
  }
  if (request.path == kLoginPath) {
    try {
      return log_in(request, rules);
    } catch (const Error& error) {
      return api_error_reply(400, error.what());
    }
  }
  if (!reads) return api_error_reply(405, "only GET here");
  if (request.path == "/healthz") return api_json_reply({{"status", "ok"}});
  const std::string path = request.path == "/" ? "index.html" : request.path.substr(1);
  if (const PageFile* file = find_page_file(path)) return page(request, *file);
  return api_error_reply(404, "nothing here; /api/openapi.json lists what is");
}

namespace {

enum Lane { kModelLane, kLargeBodyLane, kApiLane, kWatchLane, kLanes };

bool is_health(const HttpRequest& request) {
  return request.path == "/healthz" || request.path == "/health";
}

int lane_of(const HttpRequest& request) {
  const std::string& path = request.path;
  if (is_health(request) || path == "/v1/models") return kIoLane;
  if (OpenAiServer::serves(path)) {
    if (OpenAiServer::is_open(path)) return kWatchLane;
    return request.body.size() > kLargeBodyBytes ? kLargeBodyLane : kModelLane;
  }
  const bool watches = path == kServingPath || path == kLivePath || path == kLoginPath;
  return path.starts_with("/api/") && !watches ? kApiLane : kWatchLane;
}

}  // namespace

HttpLimits page_limits(const AccessRules& rules, HttpLimits limits) {
  limits.body = [](const HttpRequest& request) {
    if (request.path == kExplainFilesPath) return HttpBodyRule{kExplainFilesBytes, true};
    if (request.path == kLoginPath) return HttpBodyRule{4 << 10};
    return default_body_rule(request);
  };
  limits.refuse_head = [rules](const HttpRequest& request) { return refuse_head(request, rules); };
  limits.lane = lane_of;
  limits.reserve = [](const HttpRequest& request) {
    return is_health(request) || request.path == "/metrics";
  };
  limits.lanes.resize(kLanes);
  limits.lanes[kLargeBodyLane] = {.threads = 1, .niceness = 5};
  limits.lanes[kApiLane] = {.threads = 2, .niceness = 10};
  limits.lanes[kWatchLane].threads = 1;
  return limits;
}

HttpHandler page_handler(AccessRules rules, OpenAiServer* api, LabService* lab) {
  return [rules = std::move(rules), api, lab](const std::shared_ptr<HttpExchange>& exchange) {
    const HttpRequest& request = exchange->request();
    if (std::optional<HttpReply> refusal = refuse_head(request, rules)) {
      return exchange->reply(*std::move(refusal));
    }
    if (api != nullptr && OpenAiServer::serves(request.path)) {
      auto headers = openai_headers(request, rules.origins);
      if (is_preflight(request, rules.origins)) {
        HttpReply allowed;
        allowed.headers = std::move(headers);
        return exchange->reply(std::move(allowed));
      }
      return api->handle(exchange, std::move(headers));
    }
    if (request.path == kServingPath || request.path == kLivePath) {
      return answer_live(exchange, api);
    }
    if (lab != nullptr && LabService::serves(request.path)) {
      return exchange->reply(lab->reply(request));
    }
    HttpReply reply = reply_to(request, rules, [&exchange] { return exchange->closed(); });
    exchange->release_body();  // who has the answer may send the next
    exchange->reply(std::move(reply));
  };
}

}  // namespace ridge
