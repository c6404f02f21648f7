// Arithmetic and membership, and what filters, tests and methods share.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "text/chat/functions.h"

namespace ridge::jinja {
namespace {

[[noreturn]] void refuse(std::string_view symbol, const Value& left, const Value& right) {
  for (const Value* side : {&left, &right}) {
    if (const auto* missing = side->as<Undefined>()) {
      throw Error("'{}' is undefined", missing->name ? missing->name->bytes() : "value");
    }
  }
  throw Error("{} {} {} is not possible", type_name(left), symbol, type_name(right));
}

int64_t whole(const Value& value) {
  return value.is<bool>() ? int64_t{*value.as<bool>()} : *value.as<int64_t>();
}

Value whole_power(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) throw Error("division by zero");
    return std::pow(static_cast<double>(base), static_cast<double>(exponent));
  }
  int64_t result = 1;
  for (; exponent > 0; --exponent) {
    if (base == 0 || base == 1) return base;
    if (base == -1) return exponent % 2 ? result * -1 : result;
    if (__builtin_mul_overflow(result, base, &result)) throw Error("a number is too large");
  }
  return result;
}

Value whole_arithmetic(std::string_view symbol, int64_t left, int64_t right) {
  int64_t result = 0;
  bool overflow = false;
  if (symbol == "+") {
    overflow = __builtin_add_overflow(left, right, &result);
  } else if (symbol == "-") {
    overflow = __builtin_sub_overflow(left, right, &result);
  } else if (symbol == "*") {
    overflow = __builtin_mul_overflow(left, right, &result);
  } else if (symbol == "**") {
    return whole_power(left, right);
  } else {
    if (right == 0) throw Error("division by zero");
    if (symbol == "/") return static_cast<double>(left) / static_cast<double>(right);
    if (right == -1)
      return whole_arithmetic(symbol == "//" ? "*" : "-", left, symbol == "//" ? -1 : left);
    const bool down = left % right != 0 && (left < 0) != (right < 0);  // Python rounds down
    result = symbol == "//" ? left / right - (down ? 1 : 0) : left % right + (down ? right : 0);
  }
  if (overflow) throw Error("a number is too large");
  return result;
}

Value real_arithmetic(std::string_view symbol, double left, double right) {
  if (symbol == "+") return left + right;
  if (symbol == "-") return left - right;
  if (symbol == "*") return left * right;
  if (symbol == "**") {
    const double power = std::pow(left, right);
    if (!std::isfinite(power)) throw Error("{} ** {} is no number", left, right);
    return power;
  }
  if (right == 0) throw Error("division by zero");
  if (symbol == "/") return left / right;
  if (symbol == "//") return std::floor(left / right);
  const double rest = std::fmod(left, right);
  return rest != 0 && (rest < 0) != (right < 0) ? rest + right : rest;
}

Value repeated(Budget& budget, const Value& value, int64_t times) {
  const auto count = static_cast<size_t>(std::max<int64_t>(times, 0));
  const size_t each = extent(value).bytes;
  if (count > 0 && each > kMaxExtent / count) throw Error("a value would be too large");
  if (const List* list = value.list()) check_items(list->items.size() * count);
  budget.charge(each * count);
  if (const Text* text = value.text()) {
    Text result;
    for (size_t i = 0; i < count; ++i) result.append(*text);
    return result;
  }
  std::vector<Value> items;
  for (size_t i = 0; i < count; ++i) {
    items.insert(items.end(), value.list()->items.begin(), value.list()->items.end());
  }
  return make_list(std::move(items), value.list()->tuple);
}

bool is_sequence(const Value& value) { return value.text() || value.list(); }
bool is_whole(const Value& value) { return value.is<bool>() || value.is<int64_t>(); }

}  // namespace

Value binary(Budget& budget, std::string_view symbol, const Value& left, const Value& right) {
  if (is_whole(left) && is_whole(right)) return whole_arithmetic(symbol, whole(left), whole(right));
  if (is_number(left) && is_number(right)) {
    return real_arithmetic(symbol, number(left), number(right));
  }
  if (symbol == "+" && left.text() && right.text()) {
    budget.charge_text(left.text()->size() + right.text()->size());
    Text text = *left.text();
    text.append(*right.text());
    return text;
  }
  if (symbol == "+" && left.list() && right.list() && left.list()->tuple == right.list()->tuple) {
    const size_t count = left.list()->items.size() + right.list()->items.size();
    check_items(count);
    budget.charge(count * kValueBytes);
    std::vector<Value> items = left.list()->items;
    items.insert(items.end(), right.list()->items.begin(), right.list()->items.end());
    return make_list(std::move(items), left.list()->tuple);
  }
  if (symbol == "*" && is_sequence(left) && is_whole(right)) {
    return repeated(budget, left, whole(right));
  }
  if (symbol == "*" && is_whole(left) && is_sequence(right)) {
    return repeated(budget, right, whole(left));
  }
  refuse(symbol, left, right);
}

bool is_hashable(const Value& value) {
  return !value.dict() && !(value.list() && !value.list()->tuple);
}

bool contains(Budget& budget, const Value& container, const Value& value) {
  if (const Text* text = container.text()) {
    const Text* part = value.text();
    if (!part) refuse("in", value, container);
    budget.charge_search(text->size(), part->size());
    return text->bytes().find(part->bytes()) != std::string::npos;
  }
  if (const Dict* dict = container.dict()) {
    if (!is_hashable(value)) refuse("in", value, container);
    return value.text() && dict->find(value.text()->bytes());
  }
  if (const auto* space = container.as<std::shared_ptr<Namespace>>()) {
    return value.text() && (*space)->values.find(value.text()->bytes());
  }
  if (const List* list = container.list()) {
    const size_t most = extent(value).bytes;
    for (const Value& one : list->items) {
      budget.charge(Budget::kCompared + std::min(extent(one).bytes, most));
      if (equal(one, value)) return true;
    }
    return false;
  }
  if (container.undefined()) return false;
  refuse("in", value, container);
}

Value length_of(const Value& value) {
  if (const Text* text = value.text()) {
    return static_cast<int64_t>(character_count(text->bytes()));
  }
  if (const List* list = value.list()) return static_cast<int64_t>(list->items.size());
  if (const Dict* dict = value.dict()) return static_cast<int64_t>(dict->size());
  if (value.undefined()) return int64_t{0};
  throw Error("a {} has no length", type_name(value));
}

const Value* Arguments::find(size_t place, std::string_view name) const {
  if (place < positional.size()) return &positional[place];
  for (const auto& [key, value] : named) {
    if (key == name) return &value;
  }
  return nullptr;
}

const Value& Arguments::need(size_t place, std::string_view name) const {
  const Value* value = find(place, name);
  if (!value) throw Error("the argument '{}' is missing", name);
  return *value;
}

int64_t Arguments::integer(size_t place, std::string_view name, int64_t otherwise) const {
  const Value* value = find(place, name);
  if (!value) return otherwise;
  if (!is_whole(*value)) throw Error("'{}' must be a whole number", name);
  return whole(*value);
}

bool Arguments::flag(size_t place, std::string_view name, bool otherwise) const {
  const Value* value = find(place, name);
  return value ? truth(*value) : otherwise;
}

const Text& Arguments::text(size_t place, std::string_view name) const {
  const Text* text = need(place, name).text();
  if (!text) throw Error("'{}' must be a string", name);
  return *text;
}

}  // namespace ridge::jinja
