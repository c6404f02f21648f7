#include "serve/openai_access.h"

#include <algorithm>
#include <cctype>

namespace ridge {

bool equal_in_constant_time(std::string_view given, std::string_view key) {
  unsigned difference = given.size() == key.size() && !key.empty() ? 0 : 1;
  for (size_t i = 0; i < given.size() && !key.empty(); ++i) {
    difference |= static_cast<unsigned>(given[i] ^ key[i % key.size()]);
  }
  return difference == 0;
}

bool has_key(const HttpRequest& request, const std::vector<std::string>& keys) {
  if (keys.empty()) return true;
  constexpr std::string_view kBearer = "bearer ";  // the scheme's case does not matter
  const std::string_view header = request.authorization;
  const auto same = [](char wanted, char sent) {
    return wanted == std::tolower(static_cast<unsigned char>(sent));
  };
  const bool bearer = header.size() >= kBearer.size() &&
                      std::equal(kBearer.begin(), kBearer.end(), header.begin(), same);
  const std::string_view given =
      bearer ? header.substr(kBearer.size()) : std::string_view(request.api_key);
  bool found = false;
  for (const std::string& key : keys) found |= equal_in_constant_time(given, key);
  return found;
}

std::vector<std::pair<std::string, std::string>> cors_headers(
    const HttpRequest& request, const std::vector<std::string>& allowed) {
  const std::string& origin = request.origin;
  const auto is = [&](const std::string& text) { return text == origin || text == "*"; };
  if (origin.empty() || std::none_of(allowed.begin(), allowed.end(), is)) return {};
  return {
      {"Access-Control-Allow-Origin", origin},
      {"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
      // What a page asks for: clients send headers of their own (X-Stainless-...), and * does
      // not cover Authorization.
      {"Access-Control-Allow-Headers", request.requested_headers.empty()
                                           ? "Authorization, Content-Type, X-Api-Key, X-Request-Id"
                                           : request.requested_headers},
      {"Access-Control-Expose-Headers", "x-request-id, retry-after"},
      {"Cross-Origin-Resource-Policy", "cross-origin"},
      {"Vary", "Origin"}};
}

}  // namespace ridge
