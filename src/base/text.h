// What commands print for a person: aligned tables, bars and plots in the terminal.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace ridge {

// Colour only where standard output is a terminal and NO_COLOR is unset.
enum class Colour { none, red, green, yellow, blue, magenta, cyan, dim, bold };
bool colour_enabled();
void force_colour(bool on);  // for tests
std::string paint(Colour colour, std::string_view text);

// Columns that hold only numbers with units are right-aligned; widths count code points, not
// bytes, and ignore colour codes.
class Table {
 public:
  explicit Table(std::vector<std::string> header);
  void add(std::vector<std::string> row);
  void rule();  // a thin line between rows
  std::string text() const;
  std::string csv() const;  // RFC 4180 quoting, lines end in \n, no colour codes

 private:
  std::vector<std::string> header_;
  std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

size_t display_width(std::string_view text);
std::string bar(double fraction, int width);  // "█████▌    " with eighth blocks
std::string escape_csv(std::string_view field);
// The nearest candidates to a misspelt name, best first, at most `most`; empty when none is near.
std::vector<std::string> nearest_names(std::string_view name,
                                       const std::vector<std::string>& candidates, size_t most = 3);

}  // namespace ridge
