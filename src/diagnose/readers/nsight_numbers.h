// Numbers, units and rows as Nsight Compute and Nsight Systems print them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

// The tools format numbers for the locale of the shell: "36,383" and "13.77", or "36.383" and
// "13,77". One value can be either; the values of a file together tell.
class NumberFormat {
 public:
  void learn(std::string_view number);  // every number of the file, before parse()
  // Empty where the text is no finite number ("n/a").
  std::optional<double> parse(std::string_view number) const;

 private:
  int decimal_commas_ = 0, decimal_points_ = 0;  // numbers that can only be read so
};

// What multiplies a value with this unit to SI: "Mbyte" -> 1e6, "us" and "usecond" -> 1e-6,
// "Gbyte/s" -> 1e9, "%" -> 0.01. Empty: a unit that is not known.
std::optional<double> nsight_unit(std::string_view unit);

// The cells of a row of CSV, or of a table whose columns are at least two spaces apart.
std::vector<std::string> split_nsight_row(std::string_view line, bool csv);

}  // namespace ridge
