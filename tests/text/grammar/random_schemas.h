// Random schemas of the keywords that Ridge supports, and random values.
#pragma once

#include <string>

#include "base/json.h"
#include "base/random.h"

namespace ridge::sample {

class RandomSchemas {
 public:
  explicit RandomSchemas(uint64_t seed) : random_(seed) {}

  uint64_t below(uint64_t count) { return random_.next() % count; }

  // With two definitions that anything may refer to; every reference is optional, so that there are
  // finite documents.
  Json root() {
    Json schema = schema_of(3);
    if (schema.is_boolean()) schema = Json::object();
    schema["$defs"] = {{"p", schema_of(2)}, {"q/~", schema_of(2)}};
    return schema;
  }

  Json value(int depth) {
    switch (below(depth > 0 ? 8 : 5)) {
      case 0:
        return nullptr;
      case 1:
        return below(2) == 0;
      case 2:
        return static_cast<int64_t>(below(2000)) - 1000;
      case 3:
        return static_cast<double>(below(4000)) / 16 - 100;
      case 4:
        return text();
      case 5: {
        Json list = Json::array();
        for (uint64_t i = below(4); i > 0; --i) list.push_back(value(depth - 1));
        return list;
      }
      default: {
        Json object = Json::object();
        for (uint64_t i = below(4); i > 0; --i) object[text()] = value(depth - 1);
        return object;
      }
    }
  }

  std::string text() {
    static const char* const kPieces[] = {"a", "b", "name", "é", "😀", "\"", "\\", "\n", " ", "€"};
    std::string text;
    for (uint64_t i = below(4); i > 0; --i) text += kPieces[below(10)];
    return text;
  }

 private:
  Json schema_of(int depth) {
    switch (below(depth > 0 ? 13 : 8)) {
      case 0:
        return {{"type", "boolean"}};
      case 1:
        return {{"type", Json::array({"null", "integer"})}};
      case 2:
        return {{"type", "number"}};
      case 3:
        return string();
      case 4:
        return integer();
      case 5: {
        Json values = Json::array();
        for (uint64_t i = 1 + below(4); i > 0; --i) values.push_back(value(1));
        return {{"enum", values}};
      }
      case 6:
        return {{"const", value(2)}};
      case 7:
        return true;
      case 8:
      case 9:
        return array(depth);
      case 10: {
        Json list = Json::array();
        for (uint64_t i = 1 + below(3); i > 0; --i) list.push_back(schema_of(depth - 1));
        return {{below(2) == 0 ? "anyOf" : "oneOf", list}};
      }
      default:
        return object(depth);
    }
  }

  Json string() {
    Json schema = {{"type", "string"}};
    const uint64_t low = below(5);
    if (below(2) == 0) schema["minLength"] = low;
    if (below(2) == 0) schema["maxLength"] = low + below(20);
    if (below(4) == 0) schema["nullable"] = true;
    return schema;
  }

  Json integer() {
    Json schema = {{"type", "integer"}};
    const auto low = static_cast<int64_t>(below(3000)) - 1500;
    if (below(2) == 0) schema[below(2) == 0 ? "minimum" : "exclusiveMinimum"] = low;
    if (below(2) == 0) schema["maximum"] = low + 1 + static_cast<int64_t>(below(2000));
    return schema;
  }

  Json array(int depth) {
    Json schema = {{"type", "array"}};
    const uint64_t low = below(4);
    if (below(2) == 0) schema["minItems"] = low;
    if (below(2) == 0) schema["maxItems"] = low + below(4);
    if (below(3) == 0) {
      schema["prefixItems"] = Json::array({schema_of(depth - 1), schema_of(depth - 1)});
    }
    if (below(4) != 0) schema["items"] = schema_of(depth - 1);
    return schema;
  }

  Json object(int depth) {
    Json schema = {{"type", "object"}, {"properties", Json::object()}};
    for (uint64_t i = below(5); i > 0; --i) {
      const std::string name = text();
      const bool reference = below(4) == 0;
      schema["properties"][name] =
          reference ? Json{{"$ref", below(2) == 0 ? "#/$defs/p" : "#/$defs/q~1~0"}}
                    : schema_of(depth - 1);
      if (!reference && below(2) == 0) schema["required"].push_back(name);
    }
    if (below(3) != 0) schema["additionalProperties"] = false;
    if (below(5) == 0) schema["additionalProperties"] = schema_of(depth - 1);
    return schema;
  }

  SplitMix64 random_;
};

}  // namespace ridge::sample
