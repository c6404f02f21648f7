// Who may use the API: keys, and the web pages of other origins.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/http.h"

namespace ridge {

// Takes a time that does not depend on how much of the text is right.
bool equal_in_constant_time(std::string_view given, std::string_view key);

// Whether the request has one of `keys`, as "Authorization: Bearer KEY" or "X-Api-Key: KEY".
// Without keys everybody may.
bool has_key(const HttpRequest& request, const std::vector<std::string>& keys);

// The headers that let a page of `origin` read the answer; none where it is not among `allowed`
// ("*": all).
std::vector<std::pair<std::string, std::string>> cors_headers(
    const HttpRequest& request, const std::vector<std::string>& allowed);

}  // namespace ridge
