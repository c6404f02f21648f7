#include "text/chat/methods.h"

#include <algorithm>

#include "base/error.h"

namespace ridge::jinja {
namespace {

Value texts(std::vector<Text> parts) {
  std::vector<Value> values;
  values.reserve(parts.size());
  for (Text& part : parts) values.emplace_back(std::move(part));
  return make_list(std::move(values));
}

const Text* optional_text(const Arguments& arguments, size_t place, std::string_view name) {
  const Value* value = arguments.find(place, name);
  return value && !value->is<None>() ? &arguments.text(place, name) : nullptr;
}

int64_t most_of(const Arguments& arguments, size_t place, std::string_view name) {
  const int64_t most = arguments.integer(place, name, -1);
  return most < 0 ? kNoLimit : most;
}

Value strip_both(const Text& text, const Arguments& arguments) {
  return strip(text, true, true, optional_text(arguments, 0, "chars"));
}
Value strip_left(const Text& text, const Arguments& arguments) {
  return strip(text, true, false, optional_text(arguments, 0, "chars"));
}
Value strip_right(const Text& text, const Arguments& arguments) {
  return strip(text, false, true, optional_text(arguments, 0, "chars"));
}

const Text* separator_of(const Arguments& arguments) {
  const Text* separator = optional_text(arguments, 0, "sep");
  if (separator && separator->empty()) throw Error("split() by an empty string");
  return separator;
}
Value split_text(const Text& text, const Arguments& arguments) {
  const Text* separator = separator_of(arguments);
  const int64_t most = most_of(arguments, 1, "maxsplit");
  return texts(separator ? split(text, separator->bytes(), most) : split_spaces(text, most));
}
Value split_right(const Text& text, const Arguments& arguments) {
  const Text* separator = separator_of(arguments);
  if (!separator) throw Error("rsplit() needs a separator");
  return texts(split_from_right(text, separator->bytes(), most_of(arguments, 1, "maxsplit")));
}
Value lines_of(const Text& text, const Arguments&) { return texts(split_lines(text)); }

// One string or a tuple of them.
template <typename Holds>
bool any_affix(const Arguments& arguments, Holds holds) {
  const Value& affix = arguments.need(0, "prefix");
  if (affix.list() && affix.list()->tuple) {
    for (const Value& one : affix.list()->items) {
      if (one.text() && holds(one.text()->bytes())) return true;
    }
    return false;
  }
  return holds(arguments.text(0, "prefix").bytes());
}
Value starts_with(const Text& text, const Arguments& arguments) {
  return any_affix(arguments, [&](const auto& affix) { return text.bytes().starts_with(affix); });
}
Value ends_with(const Text& text, const Arguments& arguments) {
  return any_affix(arguments, [&](const auto& affix) { return text.bytes().ends_with(affix); });
}
Value without_prefix(const Text& text, const Arguments& arguments) {
  const std::string& prefix = arguments.text(0, "prefix").bytes();
  return text.slice(text.bytes().starts_with(prefix) ? prefix.size() : 0, text.size());
}
Value without_suffix(const Text& text, const Arguments& arguments) {
  const std::string& suffix = arguments.text(0, "suffix").bytes();
  return text.slice(0, text.size() - (text.bytes().ends_with(suffix) ? suffix.size() : 0));
}

Value replace_text(const Text& text, const Arguments& arguments) {
  return replace(text, arguments.text(0, "old").bytes(), arguments.text(1, "new"),
                 most_of(arguments, 2, "count"));
}

int64_t place_of(const Text& text, size_t found) {
  if (found == std::string::npos) return -1;
  return static_cast<int64_t>(character_count(std::string_view(text.bytes()).substr(0, found)));
}
Value find_text(const Text& text, const Arguments& arguments) {
  return place_of(text, text.bytes().find(arguments.text(0, "sub").bytes()));
}
Value find_last(const Text& text, const Arguments& arguments) {
  return place_of(text, text.bytes().rfind(arguments.text(0, "sub").bytes()));
}
Value count_text(const Text& text, const Arguments& arguments) {
  const std::string& part = arguments.text(0, "sub").bytes();
  if (part.empty()) return static_cast<int64_t>(character_count(text.bytes()) + 1);
  return static_cast<int64_t>(split(text, part, kNoLimit).size() - 1);
}

Value join_texts(const Text& text, const Arguments& arguments) {
  Text joined;
  bool first = true;
  const auto items = items_of(arguments.need(0, "iterable"));
  for (const Value& one : items->items) {
    if (!one.text()) throw Error("join() of a {}", type_name(one));
    if (!first) joined.append(text);
    joined.append(*one.text());
    first = false;
  }
  return joined;
}

template <Text (*change)(const Text&)>
Value changed(const Text& text, const Arguments&) {
  return change(text);
}

template <typename Holds>
bool all_characters(const Text& text, Holds holds) {
  for (size_t at = 0; at < text.size();) {
    const Character character = character_at(text.bytes(), at);
    if (!holds(character.code)) return false;
    at += character.size;
  }
  return !text.empty();
}
Value is_digits(const Text& text, const Arguments&) {
  return all_characters(text, [](char32_t code) { return code >= '0' && code <= '9'; });
}
Value is_spaces(const Text& text, const Arguments&) { return all_characters(text, is_space); }

struct TextMethod {
  std::string_view name;
  Value (*call)(const Text&, const Arguments&);
};
constexpr TextMethod kTextMethods[] = {
    {"strip", strip_both},
    {"lstrip", strip_left},
    {"rstrip", strip_right},
    {"split", split_text},
    {"rsplit", split_right},
    {"splitlines", lines_of},
    {"startswith", starts_with},
    {"endswith", ends_with},
    {"removeprefix", without_prefix},
    {"removesuffix", without_suffix},
    {"replace", replace_text},
    {"find", find_text},
    {"rfind", find_last},
    {"count", count_text},
    {"join", join_texts},
    {"upper", changed<upper>},
    {"lower", changed<lower>},
    {"capitalize", changed<capitalize>},
    {"title", changed<title_words>},
    {"isdigit", is_digits},
    {"isspace", is_spaces},
};

const TextMethod* text_method(std::string_view name) {
  for (const TextMethod& one : kTextMethods) {
    if (one.name == name) return &one;
  }
  return nullptr;
}

Value call_dict_method(const Dict& dict, std::string_view name, const Arguments& arguments) {
  if (name == "get") {
    const Value& key = arguments.need(0, "key");
    const Value* found = key.text() ? dict.find(key.text()->bytes()) : nullptr;
    const Value* otherwise = arguments.find(1, "default");
    return found ? *found : otherwise ? *otherwise : Value(None{});
  }
  std::vector<Value> values;
  for (const auto& [key, value] : dict.entries()) {
    if (name == "keys") {
      values.emplace_back(key);
    } else if (name == "values") {
      values.push_back(value);
    } else {
      values.emplace_back(make_list({key, value}, true));
    }
  }
  return make_list(std::move(values));
}

Value call_list_method(const List& list, std::string_view name, const Arguments& arguments) {
  const Value& wanted = arguments.need(0, "value");
  const auto is_it = [&](const Value& one) { return equal(one, wanted); };
  if (name == "count") {
    return static_cast<int64_t>(std::count_if(list.items.begin(), list.items.end(), is_it));
  }
  const auto found = std::find_if(list.items.begin(), list.items.end(), is_it);
  if (found == list.items.end()) throw Error("index(): not in the list");
  return static_cast<int64_t>(found - list.items.begin());
}

}  // namespace

bool has_method(const Value& object, std::string_view name) {
  if (object.text()) return text_method(name) != nullptr;
  if (object.dict()) return name == "items" || name == "keys" || name == "values" || name == "get";
  return object.list() && (name == "index" || name == "count");
}

Value call_method(Budget& budget, const Method& method, const Arguments& arguments) {
  if (const Dict* dict = method.receiver.dict()) {
    if (method.name != "get") budget.charge(dict->size() * 64);
    return call_dict_method(*dict, method.name, arguments);
  }
  budget.charge(extent(method.receiver).bytes);
  for (const Value& one : arguments.positional) {
    const Text* text = method.receiver.text();
    if (text && one.text()) budget.charge_search(text->size(), one.text()->size());
  }
  if (const List* list = method.receiver.list()) {
    return call_list_method(*list, method.name, arguments);
  }
  Value result = text_method(method.name)->call(*method.receiver.text(), arguments);
  budget.charge(extent(result).bytes);
  return result;
}

}  // namespace ridge::jinja
