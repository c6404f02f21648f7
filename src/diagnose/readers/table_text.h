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

// Fields of one line of CSV: quotes removed, "" inside them is one, spaces around fields dropped.
std::vector<std::string> split_csv(std::string_view line);

// "| a | b |" -> "a", "b".
std::vector<std::string> split_cells(std::string_view line);

}  // namespace ridge
