#include "serve/api_http.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include "serve/explain_files.h"
#include "serve/http_text.h"

namespace ridge {
namespace {

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

// Browsers send Sec-Fetch-Site and let no page change it; other clients do not send it. "none" is
// an address that a person typed.
bool comes_from_another_site(const HttpRequest& request) {
  const std::string& site = request.fetch_site;
  return !site.empty() && site != "same-origin" && site != "none";
}

}  // namespace

bool is_loopback(std::string_view host) {
  if (host == "localhost" || host == "::1" || host == "[::1]") return true;
  in_addr address{};  // "127.example.com" is no address
  return inet_pton(AF_INET, std::string(host).c_str(), &address) == 1 &&
         (ntohl(address.s_addr) >> 24) == 127;
}

bool may_answer(const HttpRequest& request, std::string_view bound_host) {
  const std::string_view host = host_name(request.host);
  return !is_loopback(bound_host) || host.empty() || is_loopback(host);
}

std::optional<HttpReply> refuse_head(const HttpRequest& request, std::string_view bound_host) {
  if (!may_answer(request, bound_host)) {
    return api_error_reply(421, "this server answers to local names only");
  }
  if (!request.path.starts_with("/api/")) return std::nullopt;
  if (comes_from_another_site(request)) {
    return api_error_reply(403, "/api answers no web page of another origin");
  }
  if (request.method != "POST") return std::nullopt;
  if (request.path == kExplainFilesPath) {
    if (!is_loopback(bound_host)) {
      return api_error_reply(403,
                             "files are taken on a loopback address only; elsewhere: ridge "
                             "explain");
    }
    if (!has_media_type(request.content_type, kExplainFilesType)) {
      return api_error_reply(415, fmt::format("the body must be {}", kExplainFilesType));
    }
  } else if (!has_media_type(request.content_type, "application/json")) {
    return api_error_reply(415,
                           "a body must be JSON: send the header Content-Type: application/json");
  }
  return std::nullopt;
}

ApiOptions api_options_in(const HttpRequest& request) {
  if (!request.repeated.empty()) {
    throw OptionError(request.repeated, fmt::format("{} was given twice", request.repeated));
  }
  ApiOptions options = request.query;
  if (request.method != "POST" || request.body.empty()) return options;
  const nlohmann::json body = parse_json(request.body, "the body");
  if (!body.is_object()) throw Error("the body must be a JSON object of options");
  for (const auto& [name, value] : body.items()) {
    if (!value.is_null()) options[name] = text_of(value, name);
  }
  return options;
}

HttpReply api_json_reply(const Json& json, int status) {
  HttpReply reply;
  reply.status = status;
  // Names from a user's atlas may hold bytes that are not UTF-8.
  reply.body = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  return reply;
}

HttpReply api_error_reply(int status, const std::string& message, const std::string& option) {
  Json error{{"message", message}};
  if (!option.empty()) error["option"] = option;
  return api_json_reply({{"error", error}}, status);
}

}  // namespace ridge
