#include "diagnose/readers/json_records.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace ridge {
namespace {

using nlohmann::json;

constexpr std::string_view kJsonBlank = " \t\r\n";
constexpr size_t kMaxRecordNotes = 5;

// Where an outermost object ends, and where its last complete field does.
struct ObjectExtent {
  size_t end = 0;         // one past the closing brace; the text's size where there is none
  size_t last_comma = 0;  // the last comma between fields of the object itself; 0: none
  size_t values = 0;      // at most, of all depths
  int deepest = 0;
  bool closed = false;
};

// `text` ends where the object may end at the latest.
ObjectExtent object_extent(std::string_view text, size_t begin) {
  ObjectExtent extent;
  int depth = 0;
  for (size_t i = begin; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i) {
        if (text[i] == '\\') ++i;
      }
    } else if (c == '{' || c == '[') {
      extent.deepest = std::max(extent.deepest, ++depth);
      ++extent.values;
    } else if (c == '}' || c == ']') {
      if (--depth == 0) {
        extent.end = i + 1;
        extent.closed = true;
        return extent;
      }
    } else if (c == ',') {
      if (depth == 1) extent.last_comma = i;
      ++extent.values;
    }
  }
  extent.end = text.size();
  return extent;
}

// Python's json module writes NaN, Infinity and -Infinity, which are no JSON.
std::string without_nan(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    if (text[i] == '"') {
      size_t end = i + 1;
      while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
      end = std::min(end + 1, text.size());
      result.append(text.substr(i, end - i));
      i = end;
      continue;
    }
    const std::string_view rest = text.substr(i);
    size_t skipped = 0;
    for (const std::string_view word : {"NaN", "-Infinity", "Infinity"}) {
      if (rest.starts_with(word)) skipped = word.size();
    }
    if (skipped > 0) {
      result += "null";
      i += skipped;
    } else {
      result += text[i++];
    }
  }
  return result;
}

// Discarded where the text is no JSON. Broken objects may be many: nothing is thrown.
json parse_record(std::string_view text) {
  const bool python = text.find("NaN") != text.npos || text.find("Infinity") != text.npos;
  const std::string standard = python ? without_nan(text) : std::string();
  if (python) text = standard;
  return json::parse(text.begin(), text.end(), nullptr, false);
}

}  // namespace

size_t for_json_records(std::string_view text,
                        const std::function<void(const json&, size_t)>& visit,
                        std::vector<std::string>& notes) {
  size_t visited = 0, line = 1, line_end = 0, counted = 0, bad = 0;
  // Broken objects are scanned again from their next line. Where that adds up, an object may only
  // be one line, so that the time stays linear.
  size_t budget = 4 * text.size();
  for (size_t begin = text.find('{'); begin < text.size(); begin = text.find('{', begin)) {
    line += static_cast<size_t>(
        std::count(text.begin() + long(counted), text.begin() + long(begin), '\n'));
    counted = begin;
    if (begin >= line_end) line_end = std::min(text.find('\n', begin), text.size());
    const ObjectExtent extent = object_extent(budget > 0 ? text : text.substr(0, line_end), begin);
    budget -= std::min(budget, extent.end - begin);
    const size_t bytes = extent.end - begin;
    const bool too_many = extent.values > kMostRecordValues + bytes / kBytesPerRecordValue;
    json object = json::value_t::discarded;
    if (too_many || bytes > kMaxJsonBytes || extent.deepest > kMaxJsonDepth) {
      // Skipped.
    } else if (extent.closed) {
      object = parse_record(text.substr(begin, bytes));
    } else if (extent.last_comma > begin) {
      object = parse_record(std::string(text.substr(begin, extent.last_comma - begin)) + "}");
      if (!object.is_discarded()) {
        notes.push_back(
            fmt::format("line {}: the JSON is cut off; what comes before is used", line));
      }
    }
    if (!object.is_discarded()) {
      ++visited;
      visit(object, line);
      begin = extent.end;
      continue;
    }
    if (too_many) {
      notes.push_back(fmt::format("line {}: an object of more than {} values is not read", line,
                                  kMostRecordValues));
      begin = extent.end;
      continue;
    }
    if (++bad <= kMaxRecordNotes) notes.push_back(fmt::format("line {}: not valid JSON", line));
    // A broken line must not hide those after it.
    begin = line_end;
  }
  if (bad > kMaxRecordNotes) {
    notes.push_back(fmt::format("{} objects in all are not valid JSON", bad));
  }
  return visited;
}

bool begins_json(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  const size_t first = text.find_first_not_of(kJsonBlank);
  if (first == text.npos || text[first] == '{') return first != text.npos;
  // A log line may begin with a date in brackets.
  const size_t second = text.find_first_not_of(kJsonBlank, first + 1);
  return text[first] == '[' && second != text.npos && text[second] == '{';
}

const json* json_at(const json& object, std::initializer_list<std::string_view> path) {
  const json* value = &object;
  for (const std::string_view key : path) {
    if (!value->is_object()) return nullptr;
    const auto found = value->find(key);
    if (found == value->end()) return nullptr;
    value = &*found;
  }
  return value->is_null() ? nullptr : value;
}

std::optional<double> json_number_at(const json& object,
                                     std::initializer_list<std::string_view> path) {
  const json* value = json_at(object, path);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return leading_number(value->get_ref<const std::string&>());
  if (!value->is_number()) return std::nullopt;
  const double number = value->get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::optional<double> json_number(const json& object, std::string_view key) {
  return json_number_at(object, {key});
}

std::string json_text(const json& object, std::string_view key) {
  const json* value = json_at(object, {key});
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

std::optional<double> leading_number(std::string_view text) {
  const size_t first = text.find_first_not_of(kJsonBlank);
  if (first == text.npos) return std::nullopt;
  std::string digits;
  for (const char c : text.substr(first)) {
    if (c == ',' && !digits.empty()) continue;  // 1,234.5
    if ((c < '0' || c > '9') && c != '.' && c != '-' && c != '+' && c != 'e' && c != 'E') break;
    digits += c;
    if (digits.size() > 40) return std::nullopt;
  }
  if (digits.starts_with('+')) digits.erase(0, 1);
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (error != std::errc() || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace ridge
