// Lines, comma-separated fields and cells of printed tables.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace ridge {

// Calls visit(line, number) for every line that is not blank, without its end; numbers from 1.
void for_text_lines(std::string_view text,
                    const std::function<void(std::string_view line, size_t number)>& visit);

// Whether `text` has `part`, in time linear in the text whatever it is.
bool has_text(std::string_view text, std::string_view part);

// Of a line. Tables of profilers have some thousand columns; fields behind these are left out.
inline constexpr size_t kMostCells = 16'384;

// Fields of one line of CSV: quotes removed, "" inside them is one, spaces around fields dropped.
std::vector<std::string> split_csv(std::string_view line);

// "| a | b |" -> "a", "b".
std::vector<std::string> split_cells(std::string_view line);

}  // namespace ridge
