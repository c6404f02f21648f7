// JSON at the edge: bounded parsing and fields that fail with a line a user can act on.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace ridge {

using Json = nlohmann::ordered_json;  // output keeps the order in which it was written

inline constexpr size_t kMaxJsonBytes = 64u << 20;
inline constexpr int kMaxJsonDepth = 64;

// Strict JSON after a BOM or none, in bounds of size and depth; finite numbers; no NUL anywhere.
// Throws Error "WHERE: line 3: ...". `where` names the file or input.
nlohmann::json parse_json(std::string_view text, std::string_view where);
nlohmann::json read_json(const std::string& path);

// In one line of valid UTF-8: bytes that are no characters become U+FFFD.
std::string json_text(const Json& json);

// Fields of an object. A missing or null key gives nullopt; a wrong type or a number outside
// [low, high] throws Error "WHERE: KEY must be ...".
std::optional<double> number_field(const nlohmann::json& object, std::string_view key,
                                   std::string_view where, double low, double high);
std::optional<int64_t> integer_field(const nlohmann::json& object, std::string_view key,
                                     std::string_view where, int64_t low, int64_t high);
std::optional<bool> bool_field(const nlohmann::json& object, std::string_view key,
                               std::string_view where);
std::optional<std::string> string_field(const nlohmann::json& object, std::string_view key,
                                        std::string_view where);

}  // namespace ridge
