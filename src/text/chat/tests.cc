// What may follow `is`.
#include <algorithm>

#include "base/error.h"
#include "text/chat/functions.h"

namespace ridge::jinja {
namespace {

template <bool wanted>
bool is_flag(Budget&, const Value& value, const Arguments&) {
  return value.is<bool>() && *value.as<bool>() == wanted;
}

bool is_defined(Budget&, const Value& value, const Arguments&) { return !value.undefined(); }
bool is_undefined(Budget&, const Value& value, const Arguments&) { return value.undefined(); }
bool is_none(Budget&, const Value& value, const Arguments&) { return value.is<None>(); }
bool is_string(Budget&, const Value& value, const Arguments&) { return value.text(); }
bool is_mapping(Budget&, const Value& value, const Arguments&) { return value.dict(); }
bool is_boolean(Budget&, const Value& value, const Arguments&) { return value.is<bool>(); }
bool is_integer(Budget&, const Value& value, const Arguments&) { return value.is<int64_t>(); }
bool is_float(Budget&, const Value& value, const Arguments&) { return value.is<double>(); }
bool is_numeric(Budget&, const Value& value, const Arguments&) { return is_number(value); }
// Undefined values iterate over nothing and have the length 0.
bool is_iterable(Budget&, const Value& value, const Arguments&) {
  return value.text() || value.list() || value.dict() || value.undefined();
}
bool is_callable(Budget&, const Value& value, const Arguments&) {
  return value.undefined() || value.is<Function>() || value.is<Macro>() ||
         value.is<std::shared_ptr<const Method>>();
}

bool is_equal(Budget& budget, const Value& value, const Arguments& arguments) {
  const Value& other = arguments.need(0, "other");
  budget.charge(std::min(extent(value).bytes, extent(other).bytes));
  return equal(value, other);
}
bool is_different(Budget& budget, const Value& value, const Arguments& arguments) {
  return !is_equal(budget, value, arguments);
}

template <bool (*holds)(int)>
bool is_ordered(Budget& budget, const Value& value, const Arguments& arguments) {
  const Value& other = arguments.need(0, "other");
  budget.charge(std::min(extent(value).bytes, extent(other).bytes));
  return holds(compare(value, other));
}
bool less(int order) { return order < 0; }
bool less_or_equal(int order) { return order <= 0; }
bool greater(int order) { return order > 0; }
bool greater_or_equal(int order) { return order >= 0; }

bool is_in(Budget& budget, const Value& value, const Arguments& arguments) {
  return contains(budget, arguments.need(0, "seq"), value);
}

// `is sameas`, of the values for which templates use it.
bool is_same(Budget&, const Value& value, const Arguments& arguments) {
  const Value& other = arguments.need(0, "other");
  if (value.is<bool>() || value.is<None>()) {
    return value.is<bool>() == other.is<bool>() && equal(value, other);
  }
  return value.list()   ? value.list() == other.list()
         : value.dict() ? value.dict() == other.dict()
                        : value.is<int64_t>() && other.is<int64_t>() && equal(value, other);
}

bool leaves(Budget& budget, const Value& value, const Value& divisor, int64_t rest) {
  return equal(binary(budget, "%", value, divisor), rest);
}
bool is_divisible(Budget& budget, const Value& value, const Arguments& arguments) {
  return leaves(budget, value, arguments.need(0, "num"), 0);
}
bool is_odd(Budget& budget, const Value& value, const Arguments&) {
  return leaves(budget, value, int64_t{2}, 1);
}
bool is_even(Budget& budget, const Value& value, const Arguments&) {
  return leaves(budget, value, int64_t{2}, 0);
}

struct NamedTest {
  std::string_view name;
  Test test;
};
constexpr NamedTest kTests[] = {
    {"defined", is_defined},
    {"undefined", is_undefined},
    {"none", is_none},
    {"string", is_string},
    {"mapping", is_mapping},
    {"iterable", is_iterable},
    {"sequence", is_iterable},
    {"boolean", is_boolean},
    {"number", is_numeric},
    {"integer", is_integer},
    {"float", is_float},
    {"callable", is_callable},
    {"true", is_flag<true>},
    {"false", is_flag<false>},
    {"equalto", is_equal},
    {"eq", is_equal},
    {"==", is_equal},
    {"ne", is_different},
    {"!=", is_different},
    {"lt", is_ordered<less>},
    {"lessthan", is_ordered<less>},
    {"<", is_ordered<less>},
    {"le", is_ordered<less_or_equal>},
    {"<=", is_ordered<less_or_equal>},
    {"gt", is_ordered<greater>},
    {"greaterthan", is_ordered<greater>},
    {">", is_ordered<greater>},
    {"ge", is_ordered<greater_or_equal>},
    {">=", is_ordered<greater_or_equal>},
    {"in", is_in},
    {"sameas", is_same},
    {"divisibleby", is_divisible},
    {"odd", is_odd},
    {"even", is_even},
};

}  // namespace

Test find_test(std::string_view name) {
  for (const NamedTest& one : kTests) {
    if (one.name == name) return one.test;
  }
  return nullptr;
}

}  // namespace ridge::jinja
