#include "text/grammar/json_schema.h"

#include <algorithm>
#include <cmath>

#include "text/grammar/schema_compiler.h"

namespace ridge::grammar {

namespace {

// Alternatives that start alike are followed together, in every token of the vocabulary. The engine
// waits for the first mask of a place: 250 alternatives with open keys took 3.7 s at 128 k tokens.
constexpr size_t kMaxAlternatives = 32;

constexpr uint64_t kPathBytesPerStep = 16, kStepsPerKeyword = 4;

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

// True where a keyword that would be refused says nothing.
bool allows_all(std::string_view keyword, const Json& value) {
  if (keyword == "uniqueItems") return value == false;
  if (keyword == "minProperties") return value == 0;
  return (keyword.starts_with("unevaluated") || keyword == "propertyNames") && value == true;
}

bool nests_within(const Json& value, int depth) {
  if (!value.is_structured()) return true;
  return depth > 0 && std::all_of(value.begin(), value.end(), [&](const Json& inner) {
           return nests_within(inner, depth - 1);
         });
}

}  // namespace

Automaton SchemaCompiler::compile() {
  const StateId start = reference("#", "#", builder_.ret());
  while (!pending_.empty()) {
    const auto [schema, where, rule] = std::move(pending_.front());
    pending_.pop_front();
    builder_.fill(rule, {value(*schema, where, builder_.ret())});
  }
  return builder_.finish(start);
}

void SchemaCompiler::count_node(const std::string& where) {
  if (++nodes_ > kMaxSchemaNodes) {
    refuse_schema(where, "more than {} schemas and values", kMaxSchemaNodes);
  }
}

Builder::Part SchemaCompiler::part(const Json& schema, std::string where) {
  work_.spend(1 + where.size() / kPathBytesPerStep);
  return [this, &schema, where = std::move(where)](StateId next) {
    return value(schema, where, next);
  };
}

StateId SchemaCompiler::value(const Json& schema, const std::string& where, StateId next) {
  count_node(where);
  // Every known keyword is looked for among all that the schema has.
  work_.spend(kStepsPerKeyword * schema.size());
  if (schema == true) return builder_.any_value(next);
  if (!schema.is_object()) refuse_schema(where, "a schema must be an object or true");
  for (std::string_view keyword : kRefused) {
    const Json* found = find_keyword(schema, keyword);
    if (found != nullptr && !allows_all(keyword, *found)) {
      refuse_schema(where, "{} is not supported", keyword);
    }
  }
  std::vector<StateId> ways;
  const Json* nullable = find_keyword(schema, "nullable");
  if (nullable != nullptr && !nullable->is_boolean()) {
    refuse_schema(where, "nullable must be a boolean");
  }
  if (nullable != nullptr && *nullable == true) ways.push_back(builder_.text("null", next));

  std::string_view only;
  for (std::string_view keyword : kWholeKeywords) {
    if (find_keyword(schema, keyword) == nullptr) continue;
    if (!only.empty()) refuse_schema(where, "{} beside {} is not supported", keyword, only);
    only = keyword;
  }
  if (!only.empty()) {
    for (const TypedKeyword& typed : kTypedKeywords) {
      if (find_keyword(schema, typed.keyword) != nullptr) {
        refuse_schema(where, "{} beside {} is not supported", typed.keyword, only);
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
  const Json& what = *find_keyword(schema, keyword);
  const std::string inside = fmt::format("{}/{}", where, keyword);
  const Types types = types_of(schema, where);
  if (keyword == "const") return one_of_values(Json::array({what}), types, inside, next);
  if (keyword == "enum") return one_of_values(what, types, inside, next);
  if (!types.empty()) refuse_schema(where, "type beside {} is not supported", keyword);
  if (keyword == "$ref") {
    if (!what.is_string()) refuse_schema(where, "$ref must be a string");
    return reference(what.get<std::string>(), where, next);
  }
  if (!what.is_array() || what.empty()) {
    refuse_schema(where, "{} must be a list of schemas", keyword);
  }
  if (keyword != "allOf") return any_of(what, inside, next);
  if (what.size() > 1) refuse_schema(where, "allOf of more than one schema is not supported");
  return value(what[0], inside + "/0", next);
}

StateId SchemaCompiler::reference(const std::string& pointer, const std::string& where,
                                  StateId next) {
  work_.spend(1 + pointer.size() / kPathBytesPerStep);
  auto rule = rules_.find(pointer);
  if (rule == rules_.end()) {
    if (!pointer.starts_with('#')) {
      refuse_schema(where, "$ref \"{}\" is not local (#/...)", pointer);
    }
    const Json* target = nullptr;
    try {
      target = &root_.at(Json::json_pointer(pointer.substr(1)));
    } catch (const Json::exception&) {
      refuse_schema(where, "$ref \"{}\" does not exist", pointer);
    }
    rule = rules_.emplace(pointer, builder_.reserve()).first;
    pending_.push_back({target, pointer, rule->second});
  }
  return builder_.call(rule->second, next);
}

StateId SchemaCompiler::any_of(const Json& list, const std::string& where, StateId next) {
  if (list.size() > kMaxAlternatives) {
    refuse_schema(where, "more than {} alternatives", kMaxAlternatives);
  }
  std::vector<StateId> ways;
  work_.spend(list.size() * (1 + where.size() / kPathBytesPerStep));
  for (size_t i = 0; i < list.size(); ++i) {
    ways.push_back(value(list[i], fmt::format("{}/{}", where, i), next));
  }
  return builder_.split(ways);
}

StateId SchemaCompiler::one_of_values(const Json& values, const Types& types,
                                      const std::string& where, StateId next) {
  if (!values.is_array()) refuse_schema(where, "must be a list of values");
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
  if (ways.empty()) refuse_schema(where, "no value of the type");
  if (ways.size() > kMaxAlternatives) {
    refuse_schema(where, "more than {} alternatives", kMaxAlternatives);
  }
  return builder_.split(ways);
}

SchemaCompiler::Types SchemaCompiler::types_of(const Json& schema, const std::string& where) {
  Types types;
  const auto add = [&](std::string_view type) {
    if (std::find(types.begin(), types.end(), type) == types.end()) types.push_back(type);
  };
  const Json* given = find_keyword(schema, "type");
  if (given == nullptr) {
    for (const TypedKeyword& typed : kTypedKeywords) {
      if (find_keyword(schema, typed.keyword) != nullptr) add(typed.type);
    }
    return types;
  }
  work_.spend(kStepsPerKeyword * given->size());
  const Json list = given->is_array() ? *given : Json::array({*given});
  if (list.empty()) refuse_schema(where, "type must name a type");
  for (const Json& name : list) {
    const auto known = std::find_if(std::begin(kTypes), std::end(kTypes),
                                    [&](std::string_view type) { return name == type; });
    if (known == std::end(kTypes)) {
      refuse_schema(where, "type must be one of {}", fmt::join(kTypes, ", "));
    }
    add(*known);
  }
  // Every integer is a number.
  if (std::find(types.begin(), types.end(), "number") != types.end()) std::erase(types, "integer");
  return types;
}

Automaton compile_schema(const Json& schema, WorkLimit& work) {
  if (!nests_within(schema, kMaxSchemaDepth)) {
    throw OptionError("response_format",
                      fmt::format("the JSON schema nests deeper than {}", kMaxSchemaDepth));
  }
  if (schema.dump().size() > kMaxSchemaBytes) {
    throw OptionError("response_format",
                      fmt::format("the JSON schema is longer than {} KiB", kMaxSchemaBytes >> 10));
  }
  Automaton automaton = SchemaCompiler(schema, work).compile();
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
