// Objects of a JSON file, whether it holds one, a list, one a line, or several one after another.
#pragma once

#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace ridge {

// Calls visit(object, line) for every outermost object of the text; brackets and commas around them
// do not matter. NaN and Infinity, which Python writes, are read as null. An object that is cut off
// is read up to its last complete field; one that is no JSON is skipped. Both become a note that
// names the line. Returns the number of objects visited. Values that are as short as a digit take
// 40 times their bytes in memory: an object may have kMostRecordValues, and one more for each
// kBytesPerRecordValue of its text; one with more is skipped.
inline constexpr size_t kMostRecordValues = 500'000, kBytesPerRecordValue = 8;
size_t for_json_records(std::string_view text,
                        const std::function<void(const nlohmann::json&, size_t line)>& visit,
                        std::vector<std::string>& notes);

// The text begins with an object or with a list of objects.
bool begins_json(std::string_view text);

// --- Fields as files of others have them: missing, null or of another type is nullopt or nothing.

const nlohmann::json* json_at(const nlohmann::json& object,
                              std::initializer_list<std::string_view> path);
std::optional<double> json_number(const nlohmann::json& object, std::string_view key);
std::optional<double> json_number_at(const nlohmann::json& object,
                                     std::initializer_list<std::string_view> path);
std::string json_text(const nlohmann::json& object, std::string_view key);

// "12.5", "1,234.5", "12.5 ms" without what follows the number; nullopt where it does not begin
// with a finite number.
std::optional<double> leading_number(std::string_view text);

}  // namespace ridge
