#include "base/json.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"
#include "base/json_events.h"
#include "base/units.h"

namespace ridge {
namespace {

using nlohmann::json;

size_t line_of(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  return 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
}

// Calls visit(offset) for every character that is not inside a string.
template <typename Visit>
void outside_strings(std::string_view text, Visit visit) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '"') {
      visit(i);
      continue;
    }
    for (++i; i < text.size() && text[i] != '"'; ++i) {
      if (text[i] == '\\') ++i;
    }
  }
}

// Before parsing: a parsed value nested a million deep overflows the stack of whoever walks it.
void check_depth(std::string_view text, std::string_view where) {
  int depth = 0;
  outside_strings(text, [&](size_t i) {
    if (text[i] == '[' || text[i] == '{') ++depth;
    if (text[i] == ']' || text[i] == '}') --depth;
    if (depth > kMaxJsonDepth) {
      throw Error("{}: line {}: nested deeper than {} levels", where, line_of(text, i),
                  kMaxJsonDepth);
    }
  });
}

// The parser reports an overflowing number without its place: look for it again.
size_t overflow_offset(std::string_view text) {
  constexpr std::string_view kNumber = "+-.0123456789eE";
  size_t found = text.size(), past = 0;
  outside_strings(text, [&](size_t i) {
    if (found < text.size() || i < past || kNumber.find(text[i]) == kNumber.npos) return;
    past = std::min(text.find_first_not_of(kNumber, i), text.size());
    const std::string token(text.substr(i, past - i));
    if (std::isinf(std::strtod(token.c_str(), nullptr))) found = i;
  });
  return found;
}

// "[json.exception...] parse error at line 1, column 9: syntax error while parsing value - invalid
// literal; last read: '...'": the part between the dash and the semicolon is for people; what was
// read last may be megabytes or no text at all.
std::string reason(const json::parse_error& error) {
  const std::string_view what = error.what();
  const size_t dash = what.find(" - ");
  if (dash == std::string_view::npos) return "syntax error";
  const std::string_view tail = what.substr(dash + 3);
  return std::string(tail.substr(0, tail.find("; ")));
}

// Null where the key is missing or null, the way config files spell "not set".
const json* field(const json& object, std::string_view key, std::string_view where) {
  if (!object.is_object()) {
    throw Error("{}: must be an object with {}, not {}", where, key, object.type_name());
  }
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

[[noreturn]] void wrong_type(const json& value, std::string_view key, std::string_view where,
                             std::string_view wanted) {
  throw Error("{}: {} must be {}, not {}", where, key, wanted, value.type_name());
}

// Readers of other files write 4096.0 or 1e6 where they mean an integer. Exact below 2^53.
std::optional<int64_t> whole(const json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    if (number > static_cast<uint64_t>(INT64_MAX)) return std::nullopt;
    return static_cast<int64_t>(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  const double number = value.get<double>();
  if (std::abs(number) > 0x1p53 || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

// Calls parse() on a text within bounds, and says what is wrong with it in a line for people.
template <typename Parse>
auto parse_checked(std::string_view text, std::string_view where, Parse parse) {
  if (text.size() > kMaxJsonBytes) {
    throw Error("{}: JSON larger than {}", where,
                pretty_binary(static_cast<double>(kMaxJsonBytes)));
  }
  // The parser takes it for the end of the text.
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    throw Error("{}: line {}: not valid JSON: a NUL byte", where, line_of(text, nul));
  }
  check_depth(text, where);
  try {
    return parse();
  } catch (const json::parse_error& error) {
    throw Error("{}: line {}: not valid JSON: {}", where,
                line_of(text, error.byte > 0 ? error.byte - 1 : 0), reason(error));
  } catch (const json::out_of_range&) {
    throw Error("{}: line {}: number too large for a double", where,
                line_of(text, overflow_offset(text)));
  } catch (const json::exception& error) {
    throw Error("{}: not valid JSON: {}", where, error.what());
  }
}

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view where) {
  return parse_checked(text, where, [&] { return json::parse(text.begin(), text.end()); });
}

void parse_json_events(std::string_view text, std::string_view where,
                       nlohmann::json_sax<Json>& to) {
  parse_checked(text, where, [&] { return Json::sax_parse(text.begin(), text.end(), &to); });
}

nlohmann::json read_json(const std::string& path) {
  return parse_json(read_file(path, kMaxJsonBytes), path);
}

std::string json_text(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::optional<double> number_field(const nlohmann::json& object, std::string_view key,
                                   std::string_view where, double low, double high) {
  const json* value = field(object, key, where);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) wrong_type(*value, key, where, "a number");
  const double number = value->get<double>();
  if (!(number >= low && number <= high)) {
    throw Error("{}: {} must be a number from {:g} to {:g}, not {:g}", where, key, low, high,
                number);
  }
  return number;
}

std::optional<int64_t> integer_field(const nlohmann::json& object, std::string_view key,
                                     std::string_view where, int64_t low, int64_t high) {
  const json* value = field(object, key, where);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) wrong_type(*value, key, where, "an integer");
  const auto number = whole(*value);
  if (!number || *number < low || *number > high) {
    throw Error("{}: {} must be an integer from {} to {}, not {}", where, key, low, high,
                value->dump());
  }
  return number;
}

std::optional<bool> bool_field(const nlohmann::json& object, std::string_view key,
                               std::string_view where) {
  const json* value = field(object, key, where);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) wrong_type(*value, key, where, "true or false");
  return value->get<bool>();
}

std::optional<std::string> string_field(const nlohmann::json& object, std::string_view key,
                                        std::string_view where) {
  const json* value = field(object, key, where);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) wrong_type(*value, key, where, "a string");
  return value->get<std::string>();
}

}  // namespace ridge
