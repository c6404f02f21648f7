// Who may ask for what: the names of this server, keys and the page's cookie, and the web pages of
// other origins. Decided from a request's header, before its body is read.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "http/http.h"

namespace ridge {

struct AccessRules {
  std::string bound_host = "127.0.0.1";         // what is listened on
  std::vector<std::string> allowed_hosts = {};  // further names of this server; "*": any
  std::vector<std::string> keys = {};
  std::vector<std::string> origins = {};  // of web pages that may use the OpenAI API; "*": all

  // Others than the users of this machine may ask: the server listens beyond the loopback
  // addresses, or has names by which a proxy brings others here.
  bool exposed() const;
};

bool is_loopback(std::string_view host);

// The reply to a request that is refused for its header alone; nothing where it may go on.
//   - Its Host must be a name of this server, in any case (421), so that no web page reaches it
//     through a name of its own (DNS rebinding). A server that is listened for on a loopback
//     address has the local names and `allowed_hosts`, any other the machine's name and numeric
//     addresses besides.
//   - Where there are keys, the OpenAI API needs one, and /api/ where the rules are `exposed`
//   (401):
//     "Authorization: Bearer KEY", "X-Api-Key: KEY", or the cookie of log_in() from this origin.
//     /health, /healthz, /version, /metrics, the page's files and /api/login never do.
//   - /api/ answers no web page of another origin (Sec-Fetch-Site, 403), whose <img> or <script>
//     would make this server work, and takes no body that a form could send (415).
//   - Files to explain are taken from users of this machine, or with a key (403).
std::optional<HttpReply> refuse_head(const HttpRequest& request, const AccessRules& rules);

// POST /api/login with {"key": KEY}: 204 and a cookie that stands for the key in this browser.
// Throws Error where the body is wrong.
inline constexpr std::string_view kLoginPath = "/api/login";
HttpReply log_in(const HttpRequest& request, const AccessRules& rules);

// Takes a time that does not depend on how much of the text is right.
bool equal_in_constant_time(std::string_view given, std::string_view key);

// What every answer of the OpenAI API has: x-request-id, and where the request comes from a web
// page of one of `origins`, what lets that page read the answer.
std::vector<std::pair<std::string, std::string>> openai_headers(
    const HttpRequest& request, const std::vector<std::string>& origins);
bool is_preflight(const HttpRequest& request, const std::vector<std::string>& origins);

}  // namespace ridge
