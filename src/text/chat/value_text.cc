// Values as Python prints them.
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "text/chat/value.h"

namespace ridge::jinja {
namespace {

void write_repr(const Text& text, Text& out) {
  const bool single =
      text.bytes().find('\'') != std::string::npos && text.bytes().find('"') == std::string::npos;
  const char quote = single ? '"' : '\'';
  out.append({&quote, 1}, Origin::of_template);
  for (size_t at = 0; at < text.size();) {
    const Character character = character_at(text.bytes(), at);
    const char32_t code = character.code;
    const Origin origin = text.origin(at);
    if (code == '\n' || code == '\r' || code == '\t') {
      out.append(code == '\n' ? "\\n" : code == '\r' ? "\\r" : "\\t", origin);
    } else if (code == '\\' || code == static_cast<unsigned char>(quote)) {
      out.append("\\", origin);
      out.append(text, at, at + 1);
    } else if (code < 0x20 || (code >= 0x7F && code <= 0xA0) || code == 0xAD) {
      out.append(fmt::format("\\x{:02x}", static_cast<unsigned>(code)), origin);
    } else if (is_space(code) && code != ' ') {
      out.append(fmt::format("\\u{:04x}", static_cast<unsigned>(code)), origin);
    } else {
      out.append(text, at, at + character.size);
    }
    at += character.size;
  }
  out.append({&quote, 1}, Origin::of_template);
}

void write_repr(const Value& value, Text& out) {
  const auto put = [&](std::string_view text) { out.append(text, Origin::of_template); };
  if (value.undefined()) return put("Undefined");
  if (value.is<None>()) return put("None");
  if (const bool* flag = value.as<bool>()) return put(*flag ? "True" : "False");
  if (const int64_t* integer = value.as<int64_t>()) return put(std::to_string(*integer));
  if (const double* real = value.as<double>()) return put(float_repr(*real));
  if (const Text* text = value.text()) return write_repr(*text, out);
  if (const List* list = value.list()) {
    put(list->tuple ? "(" : "[");
    for (size_t i = 0; i < list->items.size(); ++i) {
      if (i > 0) put(", ");
      write_repr(list->items[i], out);
    }
    if (list->tuple && list->items.size() == 1) put(",");
    return put(list->tuple ? ")" : "]");
  }
  if (const Dict* dict = value.dict()) {
    put("{");
    for (size_t i = 0; i < dict->size(); ++i) {
      if (i > 0) put(", ");
      write_repr(*dict->entries()[i].first, out);
      put(": ");
      write_repr(dict->entries()[i].second, out);
    }
    return put("}");
  }
  throw Error("a {} cannot be printed", type_name(value));
}

}  // namespace

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  // The shortest digits that read back as the same number; Python writes an exponent below 1e-4
  // and from 1e16 on.
  char buffer[40];
  const double size = std::fabs(value);
  const bool fixed = size == 0 || (size >= 1e-4 && size < 1e16);
  const auto format = fixed ? std::chars_format::fixed : std::chars_format::scientific;
  std::string text(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value, format).ptr);
  if (fixed && text.find('.') == std::string::npos) text += ".0";
  return text;
}

TextPtr repr(const Value& value) {
  auto text = std::make_shared<Text>();
  write_repr(value, *text);
  return text;
}

TextPtr to_text(const Value& value) {
  if (const TextPtr* text = value.as<TextPtr>()) return *text;
  static const TextPtr empty = std::make_shared<const Text>();
  return value.undefined() ? empty : repr(value);
}

}  // namespace ridge::jinja
