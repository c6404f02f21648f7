#include "diagnose/readers/nsight_numbers.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "diagnose/readers/table_text.h"

namespace ridge {
namespace {

constexpr size_t kLongestNumber = 64;

// A comma or point with three digits behind it, or before another one, can group thousands.
bool groups_thousands(std::string_view number, size_t at) {
  size_t digits = 0;
  while (at + 1 + digits < number.size() && number[at + 1 + digits] >= '0' &&
         number[at + 1 + digits] <= '9')
    ++digits;
  return digits == 3;
}

}  // namespace

void NumberFormat::learn(std::string_view number) {
  if (number.size() > kLongestNumber || number.find_first_not_of("0123456789.,-") != number.npos)
    return;
  const size_t last = number.find_last_of(".,");
  if (last == number.npos) return;
  const char separator = number[last];
  const size_t first = number.find_first_of(".,");
  // "1,234.5": the last of two kinds is the decimal one. "1,234,567": no decimals.
  // "13.77": cannot group. "1.234": either.
  bool decimal = number[first] != separator || !groups_thousands(number, last);
  if (first == last && number.substr(0, first) == "0") decimal = true;  // "0.125"
  const bool grouped = number[first] == separator && first != last;
  if (!decimal && !grouped) return;
  const bool point_is_decimal = (separator == '.') == decimal;
  (point_is_decimal ? decimal_points_ : decimal_commas_) += 1;
}

std::optional<double> NumberFormat::parse(std::string_view number) const {
  if (number.empty() || number.size() > kLongestNumber) return {};
  const bool commas = decimal_commas_ > decimal_points_;
  char text[kLongestNumber];
  size_t length = 0;
  for (char c : number) {
    if (c == (commas ? '.' : ',')) continue;
    text[length++] = c == (commas ? ',' : '.') ? '.' : c;
  }
  double value = 0;
  const auto [end, error] = std::from_chars(text, text + length, value);
  if (error != std::errc() || end != text + length || !std::isfinite(value)) return {};
  return value;
}

std::optional<double> nsight_unit(std::string_view unit) {
  if (unit.empty()) return 1;
  if (unit == "%") return 0.01;
  for (std::string_view per : {"/second", "/s"})
    if (unit.size() > per.size() && unit.substr(unit.size() - per.size()) == per) {
      unit.remove_suffix(per.size());
      break;
    }
  struct Base {
    std::string_view name;
    double scale;
  };
  constexpr Base bases[] = {{"byte", 1},  {"B", 1},      {"second", 1}, {"sec", 1},  {"s", 1},
                            {"hz", 1},    {"inst", 1},   {"block", 1},  {"warp", 1}, {"thread", 1},
                            {"cycle", 1}, {"sector", 1}, {"request", 1}};
  constexpr Base prefixes[] = {{"", 1},     {"n", 1e-9},  {"u", 1e-6},     {"m", 1e-3},
                               {"K", 1e3},  {"k", 1e3},   {"M", 1e6},      {"G", 1e9},
                               {"T", 1e12}, {"Ki", 1024}, {"Mi", 1048576}, {"Gi", 1073741824}};
  for (const Base& base : bases)
    for (const Base& prefix : prefixes)
      if (unit.size() == prefix.name.size() + base.name.size() &&
          unit.substr(0, prefix.name.size()) == prefix.name &&
          unit.substr(prefix.name.size()) == base.name)
        return prefix.scale * base.scale;
  return {};
}

std::vector<std::string> split_nsight_row(std::string_view line, bool csv) {
  if (csv) return split_csv(line);
  std::vector<std::string> cells;
  while (!line.empty()) {
    const size_t start = line.find_first_not_of(" \t");
    if (start == line.npos) break;
    line.remove_prefix(start);
    const size_t end = std::min(line.find("  "), line.size());
    cells.emplace_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return cells;
}

}  // namespace ridge
