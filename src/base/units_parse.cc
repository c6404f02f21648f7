// The reading half of units.h.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/units.h"

namespace ridge {
namespace {

constexpr size_t kMaxSweep = 100'000;
// Relative slack for "the same ratio" and "reached the end": far above what a few roundings of a
// double leave (1e-16 each), far below any difference a person types.
constexpr double kSlack = 1e-9;

std::string_view trim(std::string_view text) {
  constexpr std::string_view kBlank = " \t\n\r";
  const size_t first = text.find_first_not_of(kBlank);
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(kBlank) - first + 1);
}

struct Leading {
  double value;
  std::string_view rest;  // what follows the number, trimmed
};

// A finite number at least 0 at the start of `text`; `hint` says what would be right.
Leading leading_number(std::string_view text, std::string_view what, std::string_view hint) {
  const std::string_view body = trim(text);
  if (body.empty()) throw Error("{}: empty; write {}", what, hint);
  Leading result{};
  const auto [end, status] = std::from_chars(body.data(), body.data() + body.size(), result.value);
  // from_chars reads "inf" and "nan", and no quantity here may be either.
  if (status != std::errc() || !std::isfinite(result.value)) {
    throw Error("{}: '{}' is not a number; write {}", what, body, hint);
  }
  if (std::signbit(result.value) && result.value != 0) {
    throw Error("{}: '{}' is negative; write {}", what, body, hint);
  }
  result.rest = trim(body.substr(static_cast<size_t>(end - body.data())));
  return result;
}

struct Factor {
  std::string_view name;
  double factor;
};

constexpr Factor kTimes[] = {{"", 1},      {"s", 1},  {"ms", 1e-3}, {"us", 1e-6}, {"µs", 1e-6},
                             {"ns", 1e-9}, {"m", 60}, {"min", 60},  {"h", 3600},  {"d", 86400}};

constexpr Factor kPrefixes[] = {{"", 1},
                                {"k", 1e3},
                                {"K", 1e3},
                                {"M", 1e6},
                                {"G", 1e9},
                                {"T", 1e12},
                                {"P", 1e15},
                                {"Ki", 1024.0},
                                {"ki", 1024.0},
                                {"Mi", 1024.0 * 1024},
                                {"Gi", 1024.0 * 1024 * 1024},
                                {"Ti", 1024.0 * 1024 * 1024 * 1024}};

// How a sweep goes on after its last listed value.
struct Progression {
  bool geometric = false;
  double step = 1;  // added, or multiplied by when geometric

  double at(double start, double count) const {
    return geometric ? start * std::pow(step, count) : start + count * step;
  }
  // Steps that fit between start and end; negative or NaN when it leads away from the end.
  double steps_to(double start, double end) const {
    const double steps = geometric ? std::log(end / start) / std::log(step) : (end - start) / step;
    return std::floor(steps + kSlack);
  }
};

bool nearly_equal(double a, double b) {
  return std::abs(a - b) <= kSlack * std::max(std::abs(a), std::abs(b));
}

Progression progression(const std::vector<double>& listed, std::string_view text,
                        std::string_view what) {
  const size_t n = listed.size();
  if (n == 1) return {};
  const double last = listed[n - 1] - listed[n - 2];
  if (last == 0) throw Error("{}: '{}' repeats a value before '..'", what, text);
  if (n == 2 || nearly_equal(last, listed[n - 2] - listed[n - 3])) return {false, last};
  const double a = listed[n - 3], b = listed[n - 2], c = listed[n - 1];
  if (a > 0 && b > 0 && c > 0 && nearly_equal(c / b, b / a)) return {true, c / b};
  throw Error(
      "{}: '{}' neither adds nor multiplies by a constant before '..'; write like 1,2,4..64", what,
      text);
}

void extend(std::vector<double>& values, double end, std::string_view text, std::string_view what) {
  const Progression rule = progression(values, text, what);
  const double start = values.back();
  const double steps = rule.steps_to(start, end);
  if (!(steps >= 0)) {
    throw Error("{}: '{}' does not lead from {:g} to {:g}", what, text, start, end);
  }
  if (steps + static_cast<double>(values.size()) > kMaxSweep) {
    throw Error("{}: '{}' has more than {} values", what, text, kMaxSweep);
  }
  // Each value from the start, not from its neighbour: rounding does not pile up.
  const int count = static_cast<int>(steps);
  for (int i = 1; i <= count; ++i) values.push_back(rule.at(start, i));
  if (nearly_equal(values.back(), end)) values.back() = end;
}

}  // namespace

double parse_seconds(std::string_view text, std::string_view what) {
  constexpr std::string_view kHint = "a time such as 28ms, 0.9s or 280us";
  const Leading number = leading_number(text, what, kHint);
  for (const Factor& unit : kTimes) {
    if (number.rest == unit.name) return number.value * unit.factor;
  }
  throw Error("{}: unknown unit '{}' in '{}'; write {}", what, number.rest, trim(text), kHint);
}

double parse_latency(std::string_view text, std::string_view what) {
  const double seconds = parse_seconds(text, what);
  const size_t last = text.find_last_not_of(" \t");
  if (seconds != 0 && std::string_view("0123456789.").find(text[last]) != std::string_view::npos) {
    throw Error("{}: '{}' has no unit; write {}ms or {}s", what, text, text, text);
  }
  return seconds;
}

double parse_quantity(std::string_view text, std::string_view unit, std::string_view what) {
  const std::string hint = fmt::format("a number such as 280{0} or 32k{0}", unit);
  const Leading number = leading_number(text, what, hint);
  if (unit.empty() && number.rest == "%") return number.value / 100;
  std::string_view prefix = number.rest;
  if (prefix.ends_with(unit)) prefix = trim(prefix.substr(0, prefix.size() - unit.size()));
  for (const Factor& known : kPrefixes) {
    if (prefix != known.name) continue;
    const double value = number.value * known.factor;
    if (!std::isfinite(value)) throw Error("{}: '{}' is too large", what, trim(text));
    return value;
  }
  throw Error("{}: unknown unit '{}' in '{}'; write {}", what, number.rest, trim(text), hint);
}

std::vector<double> parse_sweep(std::string_view text, std::string_view what) {
  const size_t dots = text.find("..");
  std::string_view listed = text.substr(0, dots);
  std::vector<double> values;
  while (true) {
    const size_t comma = listed.find(',');
    values.push_back(parse_quantity(listed.substr(0, comma), "", what));
    if (values.size() > kMaxSweep) throw Error("{}: more than {} values", what, kMaxSweep);
    if (comma == std::string_view::npos) break;
    listed.remove_prefix(comma + 1);
  }
  if (dots == std::string_view::npos) return values;

  const std::string_view end = trim(text.substr(dots + 2));
  if (end.starts_with('.') || end.find(',') != end.npos || end.find("..") != end.npos) {
    throw Error("{}: '{}': only one value may follow '..'; write like 1,2,4..64", what, text);
  }
  extend(values, parse_quantity(end, "", what), text, what);
  return values;
}

}  // namespace ridge
