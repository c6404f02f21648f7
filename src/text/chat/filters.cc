// Filters of one value; those of lists are in filters_list.cc.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "text/chat/functions.h"

namespace ridge::jinja {
namespace {

Text charged_text(Budget& budget, const Value& input) {
  const TextPtr text = to_text(input);
  budget.charge_text(text->size());
  return *text;
}

template <Text (*change)(const Text&)>
Value changed_text(Budget& budget, const Value& input, const Arguments&) {
  return change(charged_text(budget, input));
}

Value trim(Budget& budget, const Value& input, const Arguments& arguments) {
  const Value* characters = arguments.find(0, "chars");
  const bool given = characters && !characters->is<None>();
  const Text text = charged_text(budget, input);
  const Text* removed = given ? &arguments.text(0, "chars") : nullptr;
  if (removed) budget.charge_search(text.size(), removed->size());
  return strip(text, true, true, removed);
}

Value length(Budget& budget, const Value& input, const Arguments&) {
  if (const Text* text = input.text()) budget.charge(text->size());
  return length_of(input);
}

Value tojson(Budget& budget, const Value& input, const Arguments& arguments) {
  JsonStyle style;
  Text indent;
  // The order of transformers' own tojson: ensure_ascii, indent, separators, sort_keys.
  style.ascii = arguments.flag(0, "ensure_ascii", false);
  if (const Value* value = arguments.find(1, "indent"); value && !value->is<None>()) {
    if (value->text()) {
      indent = *value->text();
    } else {
      const int64_t width = arguments.integer(1, "indent", 0);
      indent.append(std::string(static_cast<size_t>(std::clamp<int64_t>(width, 0, 100)), ' '),
                    Origin::of_template);
    }
    style.indent = &indent;
  }
  style.item_separator = style.indent ? "," : ", ";
  style.key_separator = ": ";
  if (const Value* value = arguments.find(2, "separators"); value && !value->is<None>()) {
    const List* pair = value->list();
    if (!pair || pair->items.size() != 2 || !pair->items[0].text() || !pair->items[1].text()) {
      throw Error("tojson: separators must be two strings");
    }
    style.item_separator = pair->items[0].text()->bytes();
    style.key_separator = pair->items[1].text()->bytes();
  }
  style.sort_keys = arguments.flag(3, "sort_keys", false);
  Text json = to_json(input, style);
  budget.charge_text(json.size());
  return json;
}

Value replace_filter(Budget& budget, const Value& input, const Arguments& arguments) {
  const Value* count = arguments.find(2, "count");
  const int64_t most = count && !count->is<None>() ? arguments.integer(2, "count", -1) : -1;
  const Text text = charged_text(budget, input);
  const TextPtr old = to_text(arguments.need(0, "old"));
  budget.charge_search(text.size(), old->size());
  Text result =
      replace(text, old->bytes(), *to_text(arguments.need(1, "new")), most < 0 ? kNoLimit : most);
  budget.charge_text(result.size());
  return result;
}

Value default_filter(Budget&, const Value& input, const Arguments& arguments) {
  const bool also_false = arguments.flag(1, "boolean", false);
  if (!input.undefined() && !(also_false && !truth(input))) return input;
  const Value* otherwise = arguments.find(0, "default_value");
  return otherwise ? *otherwise : string_value("");
}

Value same(Budget&, const Value& input, const Arguments&) { return input; }

Value string_filter(Budget& budget, const Value& input, const Arguments&) {
  return charged_text(budget, input);
}

std::optional<double> read_real(const Text& text) {
  const Text stripped = strip(text, true, true, nullptr);
  const char* begin = stripped.bytes().data();
  const char* end = begin + stripped.size();
  if (begin < end && *begin == '+') ++begin;
  double value = 0;
  const auto [rest, error] = std::from_chars(begin, end, value);
  if (begin == end || rest != end || error != std::errc()) return std::nullopt;
  return value;
}

Value int_filter(Budget&, const Value& input, const Arguments& arguments) {
  if (input.undefined()) throw Error("an undefined value has no number");
  const Value* given = arguments.find(0, "default");
  const Value otherwise = given ? *given : Value(int64_t{0});
  if (input.is<int64_t>()) return input;
  std::optional<double> real;
  if (const Text* text = input.text()) {
    const Text stripped = strip(*text, true, true, nullptr);
    const char* end = stripped.bytes().data() + stripped.size();
    int64_t whole = 0;
    const auto [rest, error] = std::from_chars(stripped.bytes().data(), end, whole);
    if (!stripped.empty() && rest == end && error == std::errc()) return whole;
    real = read_real(*text);
  } else if (is_number(input)) {
    real = number(input);
  }
  if (!real || !(std::fabs(*real) < 9e18)) return otherwise;
  return static_cast<int64_t>(*real);
}

Value float_filter(Budget&, const Value& input, const Arguments& arguments) {
  if (input.undefined()) throw Error("an undefined value has no number");
  const Value* otherwise = arguments.find(0, "default");
  if (is_number(input)) return number(input);
  if (input.text()) {
    if (const auto real = read_real(*input.text())) return *real;
  }
  return otherwise ? *otherwise : Value(0.0);
}

Value abs_filter(Budget& budget, const Value& input, const Arguments&) {
  if (!is_number(input)) throw Error("abs of a {}", type_name(input));
  return number(input) < 0 ? binary(budget, "-", int64_t{0}, input)
                           : binary(budget, "+", int64_t{0}, input);
}

Value round_filter(Budget&, const Value& input, const Arguments& arguments) {
  if (!is_number(input)) throw Error("round of a {}", type_name(input));
  const int64_t precision = std::clamp<int64_t>(arguments.integer(0, "precision", 0), -300, 300);
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const Value* method = arguments.find(1, "method");
  const std::string name = method && method->text() ? method->text()->bytes() : "common";
  const double scaled = number(input) * scale;
  const double whole = name == "ceil"    ? std::ceil(scaled)
                       : name == "floor" ? std::floor(scaled)
                                         : std::nearbyint(scaled);
  return whole / scale;
}

Value indent_filter(Budget& budget, const Value& input, const Arguments& arguments) {
  Text margin;
  const Value* width = arguments.find(0, "width");
  if (width && width->text()) {
    margin = *width->text();
  } else {
    const int64_t count = std::clamp<int64_t>(arguments.integer(0, "width", 4), 0, 1000);
    margin.append(std::string(static_cast<size_t>(count), ' '), Origin::of_template);
  }
  const bool first = arguments.flag(1, "first", false), blank = arguments.flag(2, "blank", false);
  if (!input.text()) throw Error("indent of a {}", type_name(input));
  Text text = charged_text(budget, input);
  text.append("\n", Origin::of_template);
  const std::vector<Text> lines = split_lines(text);
  Text result;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) result.append("\n", Origin::of_template);
    if (i == 0 ? first : blank || !lines[i].empty()) result.append(margin);
    result.append(lines[i]);
  }
  budget.charge_text(result.size());
  return result;
}

Value items_filter(Budget& budget, const Value& input, const Arguments&) {
  std::vector<Value> pairs;
  if (const Dict* dict = input.dict()) {
    budget.charge(dict->size() * 64);
    for (const auto& [key, value] : dict->entries()) {
      pairs.emplace_back(make_list({key, value}, true));
    }
  } else if (!input.undefined()) {
    throw Error("items of a {}", type_name(input));
  }
  return make_list(std::move(pairs));
}

constexpr NamedFilter kFilters[] = {
    {"trim", trim},
    {"length", length},
    {"count", length},
    {"tojson", tojson},
    {"replace", replace_filter},
    {"default", default_filter},
    {"d", default_filter},
    {"safe", same},
    {"string", string_filter},
    {"int", int_filter},
    {"float", float_filter},
    {"abs", abs_filter},
    {"round", round_filter},
    {"indent", indent_filter},
    {"items", items_filter},
    {"upper", changed_text<upper>},
    {"lower", changed_text<lower>},
    {"capitalize", changed_text<capitalize>},
    {"title", changed_text<title_spaced>},
};

}  // namespace

Filter find_filter(std::string_view name) {
  for (const NamedFilter& one : kFilters) {
    if (one.name == name) return one.filter;
  }
  for (const NamedFilter& one : list_filters()) {
    if (one.name == name) return one.filter;
  }
  return nullptr;
}

}  // namespace ridge::jinja
