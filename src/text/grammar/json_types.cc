// The keywords of each type.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <unordered_map>

#include "text/grammar/schema_compiler.h"

namespace ridge::grammar {

namespace {

constexpr int64_t kEighteenDigits = 999'999'999'999'999'999;

uint32_t count_of(const Json& schema, std::string_view keyword, uint32_t otherwise,
                  const std::string& where) {
  const Json* found = find_keyword(schema, keyword);
  if (found == nullptr) return otherwise;
  if (!found->is_number_integer() || *found < 0) {
    refuse_schema(where, "{} must be a count", keyword);
  }
  if (*found <= kMaxCount) return found->get<uint32_t>();
  if (otherwise == kNoLimit) return kNoLimit;
  refuse_schema(where, "{} is above {}", keyword, kMaxCount);
}

// A bound as an integer: rounded inwards, and at most what int64 holds.
int64_t integer_bound(const Json& bound, bool lower, bool exclusive, std::string_view keyword,
                      const std::string& where) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (!bound.is_number()) refuse_schema(where, "{} must be a number", keyword);
  int64_t value = 0;
  bool above = false, below = false;  // of int64
  if (bound.is_number_float()) {
    const double real = bound.get<double>();
    const double whole = lower ? std::ceil(real) : std::floor(real);
    if (whole != real) exclusive = false;
    above = whole >= 0x1p63, below = whole < -0x1p63;
    if (!above && !below) value = static_cast<int64_t>(whole);
  } else {
    above = bound.is_number_unsigned() && bound.get<uint64_t>() > uint64_t{kMost};
    if (!above) value = bound.get<int64_t>();
  }
  if (lower ? above : below) refuse_schema(where, "{} leaves no integer", keyword);
  if (above || below) return above ? kMost : kLeast;
  if (!exclusive) return value;
  if (value == (lower ? kMost : kLeast)) refuse_schema(where, "{} leaves no integer", keyword);
  return value + (lower ? 1 : -1);
}

}  // namespace

StateId SchemaCompiler::typed(std::string_view type, const Json& schema, const std::string& where,
                              StateId next) {
  if (type == "object") return object(schema, where, next);
  if (type == "array") return array(schema, where, next);
  if (type == "string") return string(schema, where, next);
  if (type == "number") return number(schema, where, next);
  if (type == "integer") return integer(schema, where, next);
  if (type == "boolean") return builder_.texts({"true", "false"}, next);
  return builder_.text("null", next);
}

StateId SchemaCompiler::object(const Json& schema, const std::string& where, StateId next) {
  static const Json kTrue = true;
  Builder::Object result;
  const Json* other = find_keyword(schema, "additionalProperties");
  if (other == nullptr) other = &kTrue;
  const std::string other_where = where + "/additionalProperties";
  if (*other != false) result.other = part(*other, other_where);

  if (const Json* properties = find_keyword(schema, "properties")) {
    if (!properties->is_object()) refuse_schema(where, "properties must be an object");
    for (const auto& [name, inner] : properties->items()) {
      result.properties.push_back(
          {name, false, part(inner, fmt::format("{}/properties/{}", where, name))});
    }
  }
  if (const Json* required = find_keyword(schema, "required")) {
    if (!required->is_array()) refuse_schema(where, "required must be a list of names");
    std::unordered_map<std::string, size_t> places;
    for (size_t i = 0; i < result.properties.size(); ++i) {
      places.emplace(result.properties[i].name, i);
    }
    for (const Json& name : *required) {
      if (!name.is_string()) refuse_schema(where, "required must be a list of names");
      const auto& text = name.get_ref<const std::string&>();
      work_.spend(1 + text.size() / 4);
      const auto [place, is_new] = places.emplace(text, result.properties.size());
      if (!is_new) {
        result.properties[place->second].required = true;
      } else if (result.other) {
        work_.spend(1 + other_where.size() / 4);
        result.properties.push_back({text, true, *result.other});
      } else {
        refuse_schema(where, "\"{}\" is required but not among the properties", text);
      }
    }
  }
  return builder_.object(result, next);
}

StateId SchemaCompiler::array(const Json& schema, const std::string& where, StateId next) {
  static const Json kTrue = true;
  Builder::Array result;
  result.min = count_of(schema, "minItems", 0, where);
  result.max = count_of(schema, "maxItems", kNoLimit, where);
  if (result.min > result.max) refuse_schema(where, "minItems is above maxItems");
  if (const Json* prefix = find_keyword(schema, "prefixItems")) {
    if (!prefix->is_array()) refuse_schema(where, "prefixItems must be a list of schemas");
    for (size_t i = 0; i < prefix->size(); ++i) {
      result.prefix.push_back(part((*prefix)[i], fmt::format("{}/prefixItems/{}", where, i)));
    }
  }
  const Json* items = find_keyword(schema, "items");
  if (items == nullptr) items = &kTrue;
  if (items->is_array()) refuse_schema(where, "items must be a schema (prefixItems takes a list)");
  if (*items != false) result.item = part(*items, where + "/items");
  if (!result.item && result.min > result.prefix.size()) {
    refuse_schema(where, "minItems is above the number of prefixItems");
  }
  return builder_.array(result, next);
}

StateId SchemaCompiler::string(const Json& schema, const std::string& where, StateId next) {
  const uint32_t min = count_of(schema, "minLength", 0, where);
  const uint32_t max = count_of(schema, "maxLength", kNoLimit, where);
  if (min > max) refuse_schema(where, "minLength is above maxLength");
  return builder_.string(min, max, next);
}

StateId SchemaCompiler::number(const Json& schema, const std::string& where, StateId next) {
  bool negative = true;
  for (std::string_view keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    const Json* bound = find_keyword(schema, keyword);
    if (bound == nullptr) continue;
    if (keyword != "minimum" || *bound != 0) {
      refuse_schema(where, "{} is supported for integers only, and minimum 0 for numbers", keyword);
    }
    negative = false;
  }
  return builder_.number(negative, next);
}

StateId SchemaCompiler::integer(const Json& schema, const std::string& where, StateId next) {
  std::optional<int64_t> min, max;
  const auto narrow = [&](std::string_view keyword, bool lower, bool exclusive) {
    const Json* bound = find_keyword(schema, keyword);
    if (bound == nullptr) return;
    const int64_t value = integer_bound(*bound, lower, exclusive, keyword, where);
    if (lower) min = min ? std::max(*min, value) : value;
    if (!lower) max = max ? std::min(*max, value) : value;
  };
  narrow("minimum", true, false);
  narrow("exclusiveMinimum", true, true);
  narrow("maximum", false, false);
  narrow("exclusiveMaximum", false, true);
  // Numbers of up to 18 digits where there is no bound, or those of int64 past a bound beyond them.
  if (!min) {
    const bool far = max && *max < -kEighteenDigits;
    min = far ? std::numeric_limits<int64_t>::min() : -kEighteenDigits;
  }
  if (!max) {
    const bool far = *min > kEighteenDigits;
    max = far ? std::numeric_limits<int64_t>::max() : kEighteenDigits;
  }
  if (*min > *max) refuse_schema(where, "no integer lies between its bounds");
  return builder_.integer(*min, *max, next);
}

}  // namespace ridge::grammar
