#include "serve/openai_access.h"

#include <algorithm>

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
  constexpr std::string_view kBearer = "Bearer ";
  const std::string_view header = request.authorization;
  const std::string_view given =
      header.starts_with(kBearer) ? header.substr(kBearer.size()) : request.api_key;
  bool found = false;
  for (const std::string& key : keys) found |= equal_in_constant_time(given, key);
  return found;
}

std::vector<std::pair<std::string, std::string>> cors_headers(
    const std::string& origin, const std::vector<std::string>& allowed) {
  const auto is = [&](const std::string& text) { return text == origin || text == "*"; };
  if (origin.empty() || std::none_of(allowed.begin(), allowed.end(), is)) return {};
  return {{"Access-Control-Allow-Origin", origin},
          {"Access-Control-Allow-Methods", "GET, POST, OPTIONS"},
          {"Access-Control-Allow-Headers", "Authorization, Content-Type, X-Api-Key, X-Request-Id"},
          {"Access-Control-Expose-Headers", "x-request-id, retry-after"},
          {"Cross-Origin-Resource-Policy", "cross-origin"},
          {"Vary", "Origin"}};
}

}  // namespace ridge
