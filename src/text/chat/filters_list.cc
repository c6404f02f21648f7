// Filters of lists.
#include <algorithm>

#include "base/error.h"
#include "text/chat/functions.h"

namespace ridge::jinja {
namespace {

// Filters of lists charge by item; those that compare charge by what they may compare.
std::shared_ptr<const List> charged_items(Budget& budget, const Value& input) {
  std::shared_ptr<const List> items = items_of(input);
  budget.charge(items->items.size() * Budget::kNode);
  return items;
}

// "a.b" or a number, as `attribute=` names it; without one the value itself.
Value by_path(const Value& value, const Value* path) {
  if (!path || path->is<None>()) return value;
  if (path->is<int64_t>()) return item(value, *path);
  if (!path->text()) throw Error("an attribute's name must be a string");
  Value result = value;
  for (Text& part : split(*path->text(), ".", kNoLimit)) {
    int64_t index = 0;
    const bool digits = !part.empty() && part.size() < 10 &&
                        part.bytes().find_first_not_of("0123456789") == std::string::npos;
    if (digits) index = std::stoll(part.bytes());
    result = item(result, digits ? Value(index) : Value(std::move(part)));
  }
  return result;
}

Value without_case(const Value& value) {
  return value.text() ? Value(lower(*value.text())) : value;
}

Value join(Budget& budget, const Value& input, const Arguments& arguments) {
  const Value* separator = arguments.find(0, "d");
  const TextPtr between = separator ? to_text(*separator) : nullptr;
  const Value* path = arguments.find(1, "attribute");
  Text joined;
  bool first = true;
  const auto items = charged_items(budget, input);
  for (const Value& one : items->items) {
    if (!first && between) joined.append(*between);
    joined.append(*to_text(by_path(one, path)));
    first = false;
  }
  budget.charge_text(joined.size());
  return joined;
}

Value first_of(Budget& budget, const Value& input, const Arguments&) {
  const auto items = charged_items(budget, input);
  return items->items.empty() ? Value() : items->items.front();
}

Value last_of(Budget& budget, const Value& input, const Arguments&) {
  const auto items = charged_items(budget, input);
  return items->items.empty() ? Value() : items->items.back();
}

Value list_of(Budget& budget, const Value& input, const Arguments&) {
  return make_list(charged_items(budget, input)->items);
}

Value reversed(Budget& budget, const Value& input, const Arguments&) {
  if (const Text* text = input.text()) {
    budget.charge(text->size());
    return slice(input, None{}, None{}, int64_t{-1});
  }
  const auto items = charged_items(budget, input);
  return make_list({items->items.rbegin(), items->items.rend()});
}

// Sorts by keys that are made once. Comparing two keys costs at most the smaller one, which is
// charged for every comparison.
std::vector<Value> sorted(Budget& budget, std::vector<std::pair<Value, Value>> keyed,
                          bool backward) {
  const auto before = [&](const auto& left, const auto& right) {
    budget.charge(Budget::kCompared +
                  std::min(extent(left.first).bytes, extent(right.first).bytes));
    return backward ? compare(right.first, left.first) < 0 : compare(left.first, right.first) < 0;
  };
  std::stable_sort(keyed.begin(), keyed.end(), before);
  std::vector<Value> values;
  values.reserve(keyed.size());
  for (auto& [key, value] : keyed) values.push_back(std::move(value));
  return values;
}

Value sort(Budget& budget, const Value& input, const Arguments& arguments) {
  const bool backward = arguments.flag(0, "reverse", false);
  const bool with_case = arguments.flag(1, "case_sensitive", false);
  const Value* path = arguments.find(2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;
  const auto items = charged_items(budget, input);
  for (const Value& one : items->items) {
    const Value key = by_path(one, path);
    // In a list, so that equal keys need no order: missing attributes sort beside each other.
    keyed.emplace_back(make_list({with_case ? key : without_case(key)}), one);
  }
  return make_list(sorted(budget, std::move(keyed), backward));
}

Value dictsort(Budget& budget, const Value& input, const Arguments& arguments) {
  const Dict* dict = input.dict();
  if (!dict) throw Error("dictsort of a {}", type_name(input));
  const bool with_case = arguments.flag(0, "case_sensitive", false);
  const Value* by = arguments.find(1, "by");
  const bool by_value = by && by->text() && by->text()->bytes() == "value";
  budget.charge(dict->size() * Budget::kNode);
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : dict->entries()) {
    const Value chosen = by_value ? value : Value(key);
    keyed.emplace_back(with_case ? chosen : without_case(chosen), make_list({key, value}, true));
  }
  return make_list(sorted(budget, std::move(keyed), arguments.flag(2, "reverse", false)));
}

Value unique(Budget& budget, const Value& input, const Arguments& arguments) {
  const bool with_case = arguments.flag(0, "case_sensitive", false);
  const Value* path = arguments.find(1, "attribute");
  std::vector<Value> keys, kept;
  const auto items = charged_items(budget, input);
  for (const Value& one : items->items) {
    Value key = by_path(one, path);
    if (!with_case) key = without_case(key);
    if (!is_hashable(key)) throw Error("unique of a {}", type_name(key));
    const auto is_known = [&](const Value& known) {
      budget.charge(Budget::kCompared + std::min(extent(known).bytes, extent(key).bytes));
      return equal(known, key);
    };
    if (std::any_of(keys.begin(), keys.end(), is_known)) continue;
    keys.push_back(std::move(key));
    kept.push_back(one);
  }
  return make_list(std::move(kept));
}

template <int sign>
Value extreme(Budget& budget, const Value& input, const Arguments& arguments) {
  const bool with_case = arguments.flag(0, "case_sensitive", false);
  const Value* path = arguments.find(1, "attribute");
  Value best, best_key;
  bool found = false;
  const auto items = charged_items(budget, input);
  for (const Value& one : items->items) {
    Value key = by_path(one, path);
    if (!with_case) key = without_case(key);
    budget.charge(extent(key).bytes);
    if (found && compare(key, best_key) * sign <= 0) continue;
    best = one;
    best_key = std::move(key);
    found = true;
  }
  return best;
}

Value sum(Budget& budget, const Value& input, const Arguments& arguments) {
  const Value* start = arguments.find(1, "start");
  Value total = start ? *start : Value(int64_t{0});
  const auto items = charged_items(budget, input);
  for (const Value& one : items->items) {
    total = binary(budget, "+", total, by_path(one, arguments.find(0, "attribute")));
  }
  return total;
}

// The arguments after the first `count`: those of the filter or test that the first one names.
Arguments arguments_after(const Arguments& arguments, size_t count) {
  Arguments rest;
  const size_t from = std::min(count, arguments.positional.size());
  rest.positional.assign(arguments.positional.begin() + static_cast<long>(from),
                         arguments.positional.end());
  rest.named = arguments.named;
  return rest;
}

Value map(Budget& budget, const Value& input, const Arguments& arguments) {
  std::vector<Value> values;
  if (!truth(input)) return make_list({});
  const auto items = charged_items(budget, input);
  if (arguments.positional.empty()) {
    const Value& path = arguments.need(0, "attribute");
    const Value* otherwise = arguments.find(1, "default");
    for (const Value& one : items->items) {
      const Value value = by_path(one, &path);
      values.push_back(value.undefined() && otherwise ? *otherwise : value);
    }
    return make_list(std::move(values));
  }
  const Text& name = arguments.text(0, "filter");
  const Filter filter = find_filter(name.bytes());
  if (!filter) throw Error("the filter '{}' is not known", name.bytes());
  const Arguments rest = arguments_after(arguments, 1);
  for (const Value& one : items->items) values.push_back(filter(budget, one, rest));
  return make_list(std::move(values));
}

// select, reject, selectattr and rejectattr: with a test's name or by truth.
template <bool wanted, bool by_attribute>
Value select(Budget& budget, const Value& input, const Arguments& arguments) {
  const Value* path = by_attribute ? &arguments.need(0, "attribute") : nullptr;
  const size_t place = by_attribute ? 1 : 0;
  Test test = nullptr;
  if (arguments.positional.size() > place) {
    const Text& name = arguments.text(place, "test");
    test = find_test(name.bytes());
    if (!test) throw Error("the test '{}' is not known", name.bytes());
  }
  if (!truth(input)) return make_list({});
  const Arguments rest = arguments_after(arguments, place + 1);
  std::vector<Value> kept;
  const auto items = charged_items(budget, input);
  for (const Value& one : items->items) {
    const Value value = by_path(one, path);
    if ((test ? test(budget, value, rest) : truth(value)) == wanted) kept.push_back(one);
  }
  return make_list(std::move(kept));
}

}  // namespace

const std::vector<NamedFilter>& list_filters() {
  static const std::vector<NamedFilter> filters = {
      {"join", join},
      {"first", first_of},
      {"last", last_of},
      {"list", list_of},
      {"reverse", reversed},
      {"sort", sort},
      {"dictsort", dictsort},
      {"unique", unique},
      {"min", extreme<-1>},
      {"max", extreme<1>},
      {"sum", sum},
      {"map", map},
      {"select", select<true, false>},
      {"reject", select<false, false>},
      {"selectattr", select<true, true>},
      {"rejectattr", select<false, true>},
  };
  return filters;
}

}  // namespace ridge::jinja
