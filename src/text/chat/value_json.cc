// Values from JSON, and to JSON as Python's json.dumps writes it.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/chat/value.h"

namespace ridge::jinja {
namespace {

Value read_value(const nlohmann::ordered_json& json, Origin origin, int depth) {
  if (depth > kMaxNesting) throw Error("JSON nests more than {} deep", kMaxNesting);
  if (json.is_null()) return None{};
  if (json.is_boolean()) return json.get<bool>();
  if (json.is_string()) return string_value(json.get_ref<const std::string&>(), origin);
  if (json.is_number_unsigned() && json.get<uint64_t>() > uint64_t{INT64_MAX}) {
    return json.get<double>();
  }
  if (json.is_number_integer()) return json.get<int64_t>();
  if (json.is_number()) return json.get<double>();
  if (json.is_array()) {
    std::vector<Value> items;
    check_items(json.size());
    items.reserve(json.size());
    for (const auto& one : json) items.push_back(read_value(one, origin, depth + 1));
    return make_list(std::move(items));
  }
  auto dict = std::make_shared<Dict>();
  for (const auto& [key, value] : json.items()) {
    dict->set(std::make_shared<const Text>(key, origin), read_value(value, origin, depth + 1));
  }
  return std::shared_ptr<const Dict>(std::move(dict));
}

class JsonWriter {
 public:
  JsonWriter(const JsonStyle& style, Text& out) : style_(style), out_(out) {}

  void write(const Value& value) {
    if (value.is<None>()) return put("null");
    if (const bool* flag = value.as<bool>()) return put(*flag ? "true" : "false");
    if (const int64_t* integer = value.as<int64_t>()) return put(std::to_string(*integer));
    if (const double* real = value.as<double>()) {
      if (std::isnan(*real)) return put("NaN");
      if (std::isinf(*real)) return put(*real > 0 ? "Infinity" : "-Infinity");
      return put(float_repr(*real));
    }
    if (const Text* text = value.text()) return write_string(*text);
    if (const List* list = value.list()) {
      const auto& items = list->items;
      return enclose("[", "]", items.size(), [&](size_t i) { write(items[i]); });
    }
    if (const Dict* dict = value.dict()) return write_dict(*dict);
    throw Error("tojson: a {} has no JSON", type_name(value));
  }

 private:
  void put(std::string_view text) { out_.append(text, Origin::of_template); }

  void new_line() {
    if (!style_.indent) return;
    put("\n");
    for (int i = 0; i < level_; ++i) out_.append(*style_.indent);
  }

  template <typename Write>
  void enclose(const char* open, const char* close, size_t count, Write write_one) {
    put(open);
    ++level_;
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) put(style_.item_separator);
      new_line();
      write_one(i);
    }
    --level_;
    if (count > 0) new_line();
    put(close);
  }

  void write_dict(const Dict& dict) {
    std::vector<const Dict::Entry*> entries;
    for (const Dict::Entry& entry : dict.entries()) entries.push_back(&entry);
    if (style_.sort_keys) {
      std::sort(entries.begin(), entries.end(), [](const auto* left, const auto* right) {
        return left->first->bytes() < right->first->bytes();
      });
    }
    enclose("{", "}", entries.size(), [&](size_t i) {
      write_string(*entries[i]->first);
      put(style_.key_separator);
      write(entries[i]->second);
    });
  }

  void write_string(const Text& text) {
    put("\"");
    size_t plain = 0;  // from here to `at`, characters stand for themselves
    for (size_t at = 0; at < text.size();) {
      const Character character = character_at(text.bytes(), at);
      const std::string escape = escaped(character.code);
      if (!escape.empty()) {
        out_.append(text, plain, at);
        out_.append(escape, text.origin(at));
        plain = at + character.size;
      }
      at += character.size;
    }
    out_.append(text, plain, text.size());
    put("\"");
  }

  // Empty where the character stands for itself.
  std::string escaped(char32_t code) const {
    switch (code) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\f':
        return "\\f";
      case '\b':
        return "\\b";
      default:
        break;
    }
    const auto unit = [](char32_t value) {
      return fmt::format("\\u{:04x}", static_cast<unsigned>(value));
    };
    if (code < 0x20 || (style_.ascii && code >= 0x7F && code < 0x10000)) {
      return code == 0x7F ? std::string() : unit(code);
    }
    if (!style_.ascii || code < 0x80) return {};
    return unit(0xD7C0 + (code >> 10)) + unit(0xDC00 + (code & 0x3FF));
  }

  const JsonStyle& style_;
  Text& out_;
  int level_ = 0;
};

}  // namespace

Value from_json(const nlohmann::ordered_json& json, Origin origin) {
  return read_value(json, origin, 0);
}

Text to_json(const Value& value, const JsonStyle& style) {
  Text out;
  JsonWriter(style, out).write(value);
  return out;
}

}  // namespace ridge::jinja
