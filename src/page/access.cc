#include "page/access.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "base/error.h"
#include "base/json.h"
#include "http/http_text.h"
#include "hub/hash.h"
#include "openai/openai_reply.h"
#include "openai/openai_server.h"
#include "page/api_http.h"
#include "page/explain_files.h"

namespace ridge {
namespace {

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

// Of a Host header, in lower case and without the port: a host's name does not depend on its case,
// and "localhost." is "localhost".
std::string host_name(std::string_view host) {
  const size_t colon = host.rfind(':');
  const bool has_port = colon != host.npos && !host.ends_with(']');
  std::string name = in_lower_case(has_port ? host.substr(0, colon) : host);
  if (name.ends_with('.')) name.pop_back();
  return name;
}

// No web page has one for its name.
bool is_numeric_address(const std::string& host) {
  in6_addr address{};
  if (host.starts_with('[') && host.ends_with(']')) {
    return inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), &address) == 1;
  }
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

std::string machine_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? in_lower_case(name.data()) : "";
}

bool is_own_name(const HttpRequest& request, const AccessRules& rules) {
  const std::string host = host_name(request.host);
  if (host.empty() || is_loopback(host)) return true;  // HTTP/1.0 needs no Host
  for (const std::string& allowed : rules.allowed_hosts) {
    if (allowed == "*" || host_name(allowed) == host) return true;
  }
  if (is_loopback(rules.bound_host)) return false;
  const std::string machine = machine_name();
  return is_numeric_address(host) || host == host_name(rules.bound_host) || host == machine ||
         host == machine.substr(0, machine.find('.'));
}

// Browsers send Sec-Fetch-Site (over TLS or to a local name) and let no page change it; other
// clients do not send it. "none" is an address that a person typed.
bool comes_from_another_site(const HttpRequest& request) {
  const std::string& site = request.fetch_site;
  return !site.empty() && site != "same-origin" && site != "none";
}

bool comes_from_another_origin(const HttpRequest& request) {
  if (comes_from_another_site(request)) return true;
  const std::string& origin = request.origin;
  const size_t scheme = origin.find("://");
  return !origin.empty() && (scheme == origin.npos || in_lower_case(origin.substr(scheme + 3)) !=
                                                          in_lower_case(request.host));
}

// What the cookie holds instead of the key.
std::string cookie_value(const std::string& key) {
  Sha256 hash;
  hash.update("Ridge's page with the key " + key);
  return hash.hex();
}

constexpr std::string_view kCookie = "ridge_key";

// Servers on several ports of a machine share its cookies, so that each needs a name of its own.
std::string cookie_name(const HttpRequest& request) {
  const size_t colon = request.host.rfind(':');
  const std::string port = colon == std::string::npos ? "" : request.host.substr(colon + 1);
  const bool numeric = !port.empty() && port.find_first_not_of("0123456789") == port.npos;
  return fmt::format("{}{}{}", kCookie, numeric ? "_" : "", numeric ? port : "");
}

std::string_view cookie_of(const HttpRequest& request) {
  const std::string name = cookie_name(request) + "=";
  std::string_view rest = request.cookie;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(';'), rest.size());
    std::string_view one = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    one.remove_prefix(std::min(one.find_first_not_of(' '), one.size()));
    if (one.starts_with(name)) return one.substr(name.size());
  }
  return {};
}

std::string_view key_of(const HttpRequest& request) {
  constexpr std::string_view kBearer = "bearer ";  // the scheme's case does not matter
  const std::string_view header = request.authorization;
  const bool bearer =
      header.size() >= kBearer.size() && in_lower_case(header.substr(0, kBearer.size())) == kBearer;
  return bearer ? header.substr(kBearer.size()) : std::string_view(request.api_key);
}

bool is_key(std::string_view given, const std::vector<std::string>& keys) {
  bool found = false;
  for (const std::string& key : keys) found |= equal_in_constant_time(given, key);
  return found;
}

bool has_key(const HttpRequest& request, const std::vector<std::string>& keys) {
  if (is_key(key_of(request), keys)) return true;
  const std::string_view cookie = cookie_of(request);
  if (cookie.empty() || comes_from_another_origin(request)) return false;
  bool found = false;
  for (const std::string& key : keys) found |= equal_in_constant_time(cookie, cookie_value(key));
  return found;
}

bool needs_key(const HttpRequest& request, const AccessRules& rules) {
  if (rules.keys.empty()) return false;
  if (OpenAiServer::serves(request.path)) {
    return !OpenAiServer::is_open(request.path) && !is_preflight(request, rules.origins);
  }
  return rules.exposed() && request.path.starts_with("/api/") && request.path != kLoginPath;
}

HttpReply key_error(const HttpRequest& request, const AccessRules& rules) {
  HttpReply reply = openai_error_reply(
      {401, "this server asks for a key: Authorization: Bearer KEY", "", "invalid_api_key"});
  reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (OpenAiServer::serves(request.path)) {
    for (auto& header : openai_headers(request, rules.origins)) reply.headers.push_back(header);
  }
  return reply;
}

}  // namespace

bool AccessRules::exposed() const { return !is_loopback(bound_host) || !allowed_hosts.empty(); }

bool is_loopback(std::string_view host) {
  if (host == "localhost" || host == "::1" || host == "[::1]") return true;
  in_addr address{};  // "127.example.com" is no address
  return inet_pton(AF_INET, std::string(host).c_str(), &address) == 1 &&
         (ntohl(address.s_addr) >> 24) == 127;
}

std::optional<HttpReply> refuse_head(const HttpRequest& request, const AccessRules& rules) {
  if (!is_own_name(request, rules)) {
    return api_error_reply(421,
                           is_loopback(rules.bound_host)
                               ? "this server answers to local names only; another is added by "
                                 "--allowed-hosts NAME"
                               : "this server does not have that name; --allowed-hosts NAME "
                                 "adds it");
  }
  if (needs_key(request, rules) && !has_key(request, rules.keys)) {
    return key_error(request, rules);
  }
  if (!request.path.starts_with("/api/")) return std::nullopt;
  if (comes_from_another_site(request)) {
    return api_error_reply(403, "/api answers no web page of another origin");
  }
  if (request.method != "POST") return std::nullopt;
  if (request.path == kExplainFilesPath) {
    if (rules.exposed() && rules.keys.empty()) {
      return api_error_reply(
          403,
          "without a key, files are taken from users of the server's machine only; "
          "elsewhere: ridge explain");
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

HttpReply log_in(const HttpRequest& request, const AccessRules& rules) {
  if (request.method != "POST") return api_error_reply(405, "POST with the key");
  const nlohmann::json body = parse_json(request.body, "the body");
  const std::optional<std::string> key =
      body.is_object() ? string_field(body, "key", "the body") : std::nullopt;
  if (!key) throw Error("the body must be {{\"key\": KEY}}");
  if (!rules.keys.empty() && !is_key(*key, rules.keys)) return api_error_reply(401, "a wrong key");
  constexpr int kYear_s = 365 * 24 * 3600;
  HttpReply reply;
  reply.status = 204;
  reply.headers.emplace_back("Set-Cookie",
                             fmt::format("{}={}; Path=/; Max-Age={}; HttpOnly; SameSite=Strict",
                                         cookie_name(request), cookie_value(*key), kYear_s));
  return reply;
}

bool equal_in_constant_time(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() && !key.empty() ? 0 : 1;
  for (size_t i = 0; i < given.size() && !key.empty(); ++i) {
    difference |= static_cast<unsigned>(given[i] ^ key[i % key.size()]);
  }
  return difference == 0;
}

namespace {

bool is_from_one_of(const HttpRequest& request, const std::vector<std::string>& origins) {
  return !request.origin.empty() &&
         std::any_of(origins.begin(), origins.end(), [&](const std::string& origin) {
           return origin == request.origin || origin == "*";
         });
}

// A client's id, if it can stand in a header and in a log line.
std::string request_id(const HttpRequest& request) {
  const std::string& id = request.request_id;
  const bool plain = std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c < 127; });
  return !id.empty() && id.size() <= 128 && plain ? id : random_id("req_");
}

}  // namespace

bool is_preflight(const HttpRequest& request, const std::vector<std::string>& origins) {
  return request.method == "OPTIONS" && is_from_one_of(request, origins);
}

std::vector<std::pair<std::string, std::string>> openai_headers(
    const HttpRequest& request, const std::vector<std::string>& origins) {
  std::vector<std::pair<std::string, std::string>> headers = {
      {"x-request-id", request_id(request)}};
  if (!is_from_one_of(request, origins)) return headers;
  headers.insert(headers.end(), {{"Access-Control-Allow-Origin", request.origin},
                                 {"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
                                 // What a page asks for: clients send headers of their own
                                 // (X-Stainless-...), and * does not cover Authorization.
                                 {"Access-Control-Allow-Headers",
                                  request.requested_headers.empty()
                                      ? "Authorization, Content-Type, X-Api-Key, X-Request-Id"
                                      : request.requested_headers},
                                 {"Access-Control-Expose-Headers", "x-request-id, retry-after"},
                                 {"Cross-Origin-Resource-Policy", "cross-origin"},
                                 {"Vary", "Origin"}});
  return headers;
}

}  // namespace ridge
