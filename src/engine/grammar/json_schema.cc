#include "engine/grammar/json_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "engine/grammar/builder.h"

namespace ridge::grammar {

namespace {

constexpr int64_t kEighteenDigits = 999'999'999'999'999'999;
// Alternatives that start alike are followed together; kMaxThreads must hold them all.
constexpr size_t kMaxAlternatives = 256;

constexpr std::string_view kTypes[] = {"object",  "array",   "string", "number",
                                       "integer", "boolean", "null"};

// Keywords that constrain values of one type, by that type.
struct TypedKeyword {
  std::string_view keyword, type;
};
constexpr TypedKeyword kTypedKeywords[] = {{"properties", "object"},
                                           {"required", "object"},
                                           {"additionalProperties", "object"},
                                           {"items", "array"},
                                           {"prefixItems", "array"},
                                           {"minItems", "array"},
                                           {"maxItems", "array"},
                                           {"minLength", "string"},
                                           {"maxLength", "string"},
                                           {"minimum", "number"},
                                           {"maximum", "number"},
                                           {"exclusiveMinimum", "number"},
                                           {"exclusiveMaximum", "number"}};

// Keywords that say by themselves what a value is.
constexpr std::string_view kWholeKeywords[] = {"$ref", "anyOf", "oneOf", "allOf", "enum", "const"};

// Keywords that constrain and are not supported. What is neither here nor above is an annotation.
constexpr std::string_view kRefused[] = {"not",
                                         "if",
                                         "then",
                                         "else",
                                         "dependentRequired",
                                         "dependentSchemas",
                                         "dependencies",
                                         "patternProperties",
                                         "propertyNames",
                                         "minProperties",
                                         "maxProperties",
                                         "unevaluatedProperties",
                                         "unevaluatedItems",
                                         "additionalItems",
                                         "contains",
                                         "minContains",
                                         "maxContains",
                                         "uniqueItems",
                                         "multipleOf",
                                         "pattern",
                                         "$dynamicRef",
                                         "$recursiveRef"};

template <typename... Args>
[[noreturn]] void refuse(const std::string& where, fmt::format_string<Args...> format,
                         Args&&... args) {
  throw OptionError("response_format",
                    fmt::format("JSON schema at {}: {}", where,
                                fmt::format(format, std::forward<Args>(args)...)));
}

bool is_type(const Json& value, std::string_view type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  if (type == "number") return value.is_number();
  if (value.is_number_float()) return std::trunc(value.get<double>()) == value.get<double>();
  return value.is_number_integer();
}

class SchemaCompiler {
 public:
  explicit SchemaCompiler(const Json& root) : root_(root) {}

  Automaton compile() {
    const StateId start = reference("#", "#", builder_.ret());
    while (!pending_.empty()) {
      const auto [schema, where, rule] = std::move(pending_.front());
      pending_.pop_front();
      builder_.fill(rule, {value(*schema, where, builder_.ret())});
    }
    return builder_.finish(start);
  }

 private:
  struct Pending {
    const Json* schema;
    std::string where;
    StateId rule;
  };
  using Types = std::vector<std::string_view>;

  void count_node(const std::string& where) {
    if (++nodes_ > kMaxSchemaNodes)
      refuse(where, "more than {} schemas and values", kMaxSchemaNodes);
  }

  StateId value(const Json& schema, const std::string& where, StateId next);
  StateId whole(std::string_view keyword, const Json& schema, const std::string& where,
                StateId next);
  StateId reference(const std::string& pointer, const std::string& where, StateId next);
  StateId any_of(const Json& list, const std::string& where, StateId next);
  StateId one_of_values(const Json& values, const Types& types, const std::string& where,
                        StateId next);
  Types types_of(const Json& schema, const std::string& where);
  StateId typed(std::string_view type, const Json& schema, const std::string& where, StateId next);
  StateId object(const Json& schema, const std::string& where, StateId next);
  StateId array(const Json& schema, const std::string& where, StateId next);
  StateId string(const Json& schema, const std::string& where, StateId next);
  StateId number(const Json& schema, const std::string& where, StateId next);
  StateId integer(const Json& schema, const std::string& where, StateId next);

  // A part of the builder's that compiles `schema` when its end is known.
  Builder::Part part(const Json& schema, std::string where) {
    return [this, &schema, where = std::move(where)](StateId next) {
      return value(schema, where, next);
    };
  }

  const Json& root_;
  Builder builder_;
  std::map<std::string, StateId> rules_;  // by pointer
  std::deque<Pending> pending_;           // rules without states: compiled one after the other
  int nodes_ = 0;
};

// The keyword's value, or null where it is absent.
const Json* find(const Json& schema, std::string_view keyword) {
  const auto found = schema.find(std::string(keyword));
  return found == schema.end() ? nullptr : &*found;
}

uint32_t count_of(const Json& schema, std::string_view keyword, uint32_t otherwise,
                  const std::string& where) {
  const Json* found = find(schema, keyword);
  if (found == nullptr) return otherwise;
  if (!found->is_number_integer() || *found < 0) refuse(where, "{} must be a count", keyword);
  if (*found <= kMaxCount) return found->get<uint32_t>();
  if (otherwise == kNoLimit) return kNoLimit;
  refuse(where, "{} is above {}", keyword, kMaxCount);
}

// True where a keyword that would be refused says nothing.
bool allows_all(std::string_view keyword, const Json& value) {
  if (keyword == "uniqueItems") return value == false;
  if (keyword == "minProperties") return value == 0;
  return (keyword.starts_with("unevaluated") || keyword == "propertyNames") && value == true;
}

StateId SchemaCompiler::value(const Json& schema, const std::string& where, StateId next) {
  count_node(where);
  if (schema == true) return builder_.any_value(next);
  if (!schema.is_object()) refuse(where, "a schema must be an object or true");
  for (std::string_view keyword : kRefused) {
    const Json* found = find(schema, keyword);
    if (found != nullptr && !allows_all(keyword, *found)) {
      refuse(where, "{} is not supported", keyword);
    }
  }
  std::vector<StateId> ways;
  const Json* nullable = find(schema, "nullable");
  if (nullable != nullptr && !nullable->is_boolean()) refuse(where, "nullable must be a boolean");
  if (nullable != nullptr && *nullable == true) ways.push_back(builder_.text("null", next));

  std::string_view only;
  for (std::string_view keyword : kWholeKeywords) {
    if (find(schema, keyword) == nullptr) continue;
    if (!only.empty()) refuse(where, "{} beside {} is not supported", keyword, only);
    only = keyword;
  }
  if (!only.empty()) {
    for (const TypedKeyword& typed : kTypedKeywords) {
      if (find(schema, typed.keyword) != nullptr) {
        refuse(where, "{} beside {} is not supported", typed.keyword, only);
      }
    }
    ways.push_back(whole(only, schema, where, next));
    return builder_.split(ways);
  }
  const Types types = types_of(schema, where);
  if (types.empty()) return builder_.any_value(next);
  for (std::string_view type : types) ways.push_back(typed(type, schema, where, next));
  return builder_.split(ways);
}

StateId SchemaCompiler::whole(std::string_view keyword, const Json& schema,
                              const std::string& where, StateId next) {
  const Json& what = *find(schema, keyword);
  const std::string inside = fmt::format("{}/{}", where, keyword);
  const Types types = types_of(schema, where);
  if (keyword == "const") return one_of_values(Json::array({what}), types, inside, next);
  if (keyword == "enum") return one_of_values(what, types, inside, next);
  if (!types.empty()) refuse(where, "type beside {} is not supported", keyword);
  if (keyword == "$ref") {
    if (!what.is_string()) refuse(where, "$ref must be a string");
    return reference(what.get<std::string>(), where, next);
  }
  if (!what.is_array() || what.empty()) refuse(where, "{} must be a list of schemas", keyword);
  if (keyword != "allOf") return any_of(what, inside, next);
  if (what.size() > 1) refuse(where, "allOf of more than one schema is not supported");
  return value(what[0], inside + "/0", next);
}

StateId SchemaCompiler::reference(const std::string& pointer, const std::string& where,
                                  StateId next) {
  auto rule = rules_.find(pointer);
  if (rule == rules_.end()) {
    if (!pointer.starts_with('#')) refuse(where, "$ref \"{}\" is not local (#/...)", pointer);
    const Json* target = nullptr;
    try {
      target = &root_.at(Json::json_pointer(pointer.substr(1)));
    } catch (const Json::exception&) {
      refuse(where, "$ref \"{}\" does not exist", pointer);
    }
    rule = rules_.emplace(pointer, builder_.reserve()).first;
    pending_.push_back({target, pointer, rule->second});
  }
  return builder_.call(rule->second, next);
}

StateId SchemaCompiler::any_of(const Json& list, const std::string& where, StateId next) {
  if (list.size() > kMaxAlternatives) refuse(where, "more than {} alternatives", kMaxAlternatives);
  std::vector<StateId> ways;
  for (size_t i = 0; i < list.size(); ++i) {
    ways.push_back(value(list[i], fmt::format("{}/{}", where, i), next));
  }
  return builder_.split(ways);
}

StateId SchemaCompiler::one_of_values(const Json& values, const Types& types,
                                      const std::string& where, StateId next) {
  if (!values.is_array()) refuse(where, "must be a list of values");
  std::vector<StateId> ways;
  std::vector<std::string> texts;
  for (const Json& candidate : values) {
    count_node(where);
    const auto matches = [&](std::string_view type) { return is_type(candidate, type); };
    if (!types.empty() && std::none_of(types.begin(), types.end(), matches)) continue;
    if (candidate.is_structured()) {
      ways.push_back(builder_.constant(candidate, next));
    } else {
      texts.push_back(candidate.dump());
    }
  }
  if (!texts.empty()) ways.push_back(builder_.texts(std::move(texts), next));
  if (ways.empty()) refuse(where, "no value of the type");
  if (ways.size() > kMaxAlternatives) refuse(where, "more than {} alternatives", kMaxAlternatives);
  return builder_.split(ways);
}

SchemaCompiler::Types SchemaCompiler::types_of(const Json& schema, const std::string& where) {
  Types types;
  const auto add = [&](std::string_view type) {
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  };
  const Json* given = find(schema, "type");
  if (given == nullptr) {
    for (const TypedKeyword& typed : kTypedKeywords) {
      if (find(schema, typed.keyword) != nullptr) add(typed.type);
    }
    return types;
  }
  const Json list = given->is_array() ? *given : Json::array({*given});
  if (list.empty()) refuse(where, "type must name a type");
  for (const Json& name : list) {
    const auto known = std::find_if(std::begin(kTypes), std::end(kTypes),
                                    [&](std::string_view type) { return name == type; });
    if (known == std::end(kTypes)) {
      refuse(where, "type must be one of {}", fmt::join(kTypes, ", "));
    }
    add(*known);
  }
  // Every integer is a number.
  if (std::find(types.begin(), types.end(), "number") != types.end()) std::erase(types, "integer");
  return types;
}

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
  const Json* other = find(schema, "additionalProperties");
  if (other == nullptr) other = &kTrue;
  const std::string other_where = where + "/additionalProperties";
  if (*other != false) result.other = part(*other, other_where);

  if (const Json* properties = find(schema, "properties")) {
    if (!properties->is_object()) refuse(where, "properties must be an object");
    for (const auto& [name, inner] : properties->items()) {
      result.properties.push_back(
          {name, false, part(inner, fmt::format("{}/properties/{}", where, name))});
    }
  }
  if (const Json* required = find(schema, "required")) {
    if (!required->is_array()) refuse(where, "required must be a list of names");
    for (const Json& name : *required) {
      if (!name.is_string()) refuse(where, "required must be a list of names");
      auto property = std::find_if(result.properties.begin(), result.properties.end(),
                                   [&](const auto& p) { return p.name == name; });
      if (property != result.properties.end()) {
        property->required = true;
      } else if (result.other) {
        result.properties.push_back({name.get<std::string>(), true, *result.other});
      } else {
        refuse(where, "\"{}\" is required but not among the properties", name.get<std::string>());
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
  if (result.min > result.max) refuse(where, "minItems is above maxItems");
  if (const Json* prefix = find(schema, "prefixItems")) {
    if (!prefix->is_array()) refuse(where, "prefixItems must be a list of schemas");
    for (size_t i = 0; i < prefix->size(); ++i) {
      result.prefix.push_back(part((*prefix)[i], fmt::format("{}/prefixItems/{}", where, i)));
    }
  }
  const Json* items = find(schema, "items");
  if (items == nullptr) items = &kTrue;
  if (items->is_array()) refuse(where, "items must be a schema (prefixItems takes a list)");
  if (*items != false) result.item = part(*items, where + "/items");
  if (!result.item && result.min > result.prefix.size()) {
    refuse(where, "minItems is above the number of prefixItems");
  }
  return builder_.array(result, next);
}

StateId SchemaCompiler::string(const Json& schema, const std::string& where, StateId next) {
  const uint32_t min = count_of(schema, "minLength", 0, where);
  const uint32_t max = count_of(schema, "maxLength", kNoLimit, where);
  if (min > max) refuse(where, "minLength is above maxLength");
  return builder_.string(min, max, next);
}

StateId SchemaCompiler::number(const Json& schema, const std::string& where, StateId next) {
  bool negative = true;
  for (std::string_view keyword : {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}) {
    const Json* bound = find(schema, keyword);
    if (bound == nullptr) continue;
    if (keyword != "minimum" || *bound != 0) {
      refuse(where, "{} is supported for integers only, and minimum 0 for numbers", keyword);
    }
    negative = false;
  }
  return builder_.number(negative, next);
}

// A bound as an integer: rounded inwards, and at most what int64 holds.
int64_t integer_bound(const Json& bound, bool lower, bool exclusive, std::string_view keyword,
                      const std::string& where) {
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  if (!bound.is_number()) refuse(where, "{} must be a number", keyword);
  int64_t value = 0;
  if (bound.is_number_float()) {
    const double real = bound.get<double>();
    const double whole = lower ? std::ceil(real) : std::floor(real);
    if (whole != real) exclusive = false;
    value = whole >= 0x1p63 ? kMost : whole < -0x1p63 ? kLeast : static_cast<int64_t>(whole);
  } else if (bound.is_number_unsigned() && bound.get<uint64_t>() > uint64_t{kMost}) {
    value = kMost;
  } else {
    value = bound.get<int64_t>();
  }
  if (!exclusive) return value;
  if (value == (lower ? kMost : kLeast)) refuse(where, "{} leaves no integer", keyword);
  return value + (lower ? 1 : -1);
}

StateId SchemaCompiler::integer(const Json& schema, const std::string& where, StateId next) {
  std::optional<int64_t> min, max;
  const auto narrow = [&](std::string_view keyword, bool lower, bool exclusive) {
    const Json* bound = find(schema, keyword);
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
  if (*min > *max) refuse(where, "no integer lies between its bounds");
  return builder_.integer(*min, *max, next);
}

bool nests_within(const Json& value, int depth) {
  if (!value.is_structured()) return true;
  return depth > 0 && std::all_of(value.begin(), value.end(), [&](const Json& inner) {
           return nests_within(inner, depth - 1);
         });
}

}  // namespace

Automaton compile_schema(const Json& schema) {
  if (!nests_within(schema, kMaxSchemaDepth)) {
    throw OptionError("response_format",
                      fmt::format("the JSON schema nests deeper than {}", kMaxSchemaDepth));
  }
  if (schema.dump().size() > kMaxSchemaBytes) {
    throw OptionError("response_format",
                      fmt::format("the JSON schema is longer than {} KiB", kMaxSchemaBytes >> 10));
  }
  Automaton automaton = SchemaCompiler(schema).compile();
  if (left_recursive(automaton)) {
    throw OptionError("response_format", "the JSON schema has a $ref that leads back to itself");
  }
  if (automaton.heights[automaton.start] > kMaxFrames) {
    throw OptionError(
        "response_format",
        fmt::format("no document of up to {} nested references satisfies the JSON schema",
                    kMaxFrames));
  }
  return automaton;
}

}  // namespace ridge::grammar
