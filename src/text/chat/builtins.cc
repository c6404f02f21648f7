// Functions that every template can call.
#include "base/error.h"
#include "text/chat/functions.h"

namespace ridge::jinja {
namespace {

constexpr size_t kMaxRange = 100'000;  // as in Jinja's sandbox

}  // namespace

Value make_range(Budget& budget, const Arguments& arguments) {
  const bool from_zero = arguments.positional.size() < 2;
  const int64_t start = from_zero ? 0 : arguments.integer(0, "start", 0);
  const int64_t stop = arguments.integer(from_zero ? 0 : 1, "stop", 0);
  const int64_t step = arguments.integer(2, "step", 1);
  if (step == 0) throw Error("range() with a step of 0");
  std::vector<Value> items;
  for (int64_t at = start; step > 0 ? at < stop : at > stop;) {
    if (items.size() >= kMaxRange) throw Error("range() of more than {}", kMaxRange);
    items.push_back(at);
    if (__builtin_add_overflow(at, step, &at)) break;
  }
  budget.charge(items.size() * Budget::kCompared);
  return make_list(std::move(items));
}

Value format_time(const Text& format, std::time_t time) {
  std::tm local{};
  localtime_r(&time, &local);
  char buffer[256];
  const size_t size = std::strftime(buffer, sizeof(buffer), format.bytes().c_str(), &local);
  return string_value({buffer, size});
}

}  // namespace ridge::jinja
