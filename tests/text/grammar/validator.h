// A plain validator of the keywords that Ridge supports, for what grammars let through.
#pragma once

#include <algorithm>
#include <string>

#include "base/json.h"

namespace ridge::sample {

inline bool valid(const Json& root, const Json& schema, const Json& value);

inline bool valid_type(const std::string& type, const Json& value) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "null") return value.is_null();
  return type == "integer" ? value.is_number_integer() : value.is_number();
}

inline bool valid_object(const Json& root, const Json& schema, const Json& value) {
  for (const Json& name : schema.value("required", Json::array())) {
    if (!value.contains(name.get<std::string>())) return false;
  }
  const Json properties = schema.value("properties", Json::object());
  const Json others = schema.value("additionalProperties", Json(true));
  for (const auto& [name, inner] : value.items()) {
    if (!valid(root, properties.contains(name) ? properties[name] : others, inner)) return false;
  }
  return true;
}

inline bool valid_array(const Json& root, const Json& schema, const Json& value) {
  if (value.size() < schema.value("minItems", size_t{0})) return false;
  if (value.size() > schema.value("maxItems", size_t{1} << 30)) return false;
  const Json prefix = schema.value("prefixItems", Json::array());
  for (size_t i = 0; i < value.size(); ++i) {
    const Json& item = i < prefix.size() ? prefix[i] : schema.value("items", Json(true));
    if (!valid(root, item, value[i])) return false;
  }
  return true;
}

inline bool valid_string(const Json& schema, const std::string& text) {
  const auto starts = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  const auto characters = static_cast<size_t>(std::count_if(text.begin(), text.end(), starts));
  return characters >= schema.value("minLength", size_t{0}) &&
         characters <= schema.value("maxLength", size_t{1} << 30);
}

inline bool valid_number(const Json& schema, const Json& value) {
  return !(schema.contains("minimum") && value < schema["minimum"]) &&
         !(schema.contains("maximum") && value > schema["maximum"]) &&
         !(schema.contains("exclusiveMinimum") && value <= schema["exclusiveMinimum"]) &&
         !(schema.contains("exclusiveMaximum") && value >= schema["exclusiveMaximum"]);
}

inline bool valid(const Json& root, const Json& schema, const Json& value) {
  if (schema.is_boolean()) return schema.get<bool>();
  if (value.is_null() && schema.value("nullable", false)) return true;
  if (schema.contains("$ref")) {
    const Json::json_pointer target(schema["$ref"].get<std::string>().substr(1));
    return valid(root, root.at(target), value);
  }
  for (const char* keyword : {"anyOf", "oneOf", "allOf"}) {
    if (!schema.contains(keyword)) continue;
    const Json& list = schema[keyword];
    if (std::none_of(list.begin(), list.end(),
                     [&](const Json& one) { return valid(root, one, value); })) {
      return false;
    }
  }
  if (schema.contains("const") && value != schema["const"]) return false;
  if (schema.contains("enum")) {
    const Json& list = schema["enum"];
    if (std::find(list.begin(), list.end(), value) == list.end()) return false;
  }
  if (schema.contains("type")) {
    const Json& type = schema["type"];
    const Json types = type.is_array() ? type : Json::array({type});
    if (std::none_of(types.begin(), types.end(), [&](const Json& name) {
          return valid_type(name.get<std::string>(), value);
        })) {
      return false;
    }
  }
  if (value.is_object()) return valid_object(root, schema, value);
  if (value.is_array()) return valid_array(root, schema, value);
  if (value.is_string()) return valid_string(schema, value.get<std::string>());
  return !value.is_number() || valid_number(schema, value);
}

}  // namespace ridge::sample
