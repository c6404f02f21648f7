// Filters and tests by name, and the budget that bounds what a template may do.
#pragma once

#include <ctime>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/work_limit.h"
#include "text/chat/value.h"

namespace ridge::jinja {

// What a template may do: a unit, a step of the WorkLimit, is about a byte of memory written or
// compared.
class Budget {
 public:
  static constexpr size_t kNode = 32;     // an expression, a statement or a turn of a loop
  static constexpr size_t kCompared = 8;  // two values, beside their size

  explicit Budget(WorkLimit& work) : work_(work) {}
  void charge(size_t units) { work_.spend(units); }  // throws WorkLimitError beyond
  // Looking for a part of a text, at worst at every byte of it.
  void charge_search(size_t text, size_t part) { charge(text * (1 + part / 16)); }
  void charge_text(size_t bytes) { charge(2 * bytes); }  // of a text that is made

 private:
  WorkLimit& work_;
};

struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string_view, Value>> named;

  // By place or by name; null where it is not given.
  const Value* find(size_t place, std::string_view name) const;
  const Value& need(size_t place, std::string_view name) const;  // throws Error
  int64_t integer(size_t place, std::string_view name, int64_t otherwise) const;
  bool flag(size_t place, std::string_view name, bool otherwise) const;
  const Text& text(size_t place, std::string_view name) const;  // must be given
};

using Filter = Value (*)(Budget&, const Value& input, const Arguments&);
using Test = bool (*)(Budget&, const Value& input, const Arguments&);
Filter find_filter(std::string_view name);  // null where it is not known
Test find_test(std::string_view name);

// The operators of expressions: + - * / // % **. Throws Error for kinds that do not go together.
Value binary(Budget& budget, std::string_view symbol, const Value& left, const Value& right);
bool contains(Budget& budget, const Value& container, const Value& value);  // `value in container`
bool is_hashable(const Value& value);  // may be a key: neither a list nor a dict
Value length_of(const Value& value);

// range() and strftime_now() of templates (builtins.cc).
Value make_range(Budget& budget, const Arguments& arguments);
Value format_time(const Text& format, std::time_t time);  // local time

// The filters that look at many values at once (filters_list.cc).
struct NamedFilter {
  std::string_view name;
  Filter filter;
};
const std::vector<NamedFilter>& list_filters();

}  // namespace ridge::jinja
