#include "diagnose/readers/table_text.h"

#include <algorithm>
#include <cstring>

namespace ridge {
namespace {

std::string trimmed_cell(std::string_view cell) {
  const size_t first = cell.find_first_not_of(" \t");
  if (first == cell.npos) return {};
  return std::string(cell.substr(first, cell.find_last_not_of(" \t") - first + 1));
}

}  // namespace

void for_text_lines(std::string_view text,
                    const std::function<void(std::string_view, size_t)>& visit) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  for (size_t number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.find_first_not_of(" \t") != line.npos) visit(line, number);
  }
}

bool has_text(std::string_view text, std::string_view part) {
  return ::memmem(text.data(), text.size(), part.data(), part.size()) != nullptr;
}

std::vector<std::string> split_csv(std::string_view line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (c == '"') {
      if (quoted && i + 1 < line.size() && line[i + 1] == '"') {
        fields.back() += '"';
        ++i;
      } else {
        quoted = !quoted;
      }
    } else if (c == ',' && !quoted) {
      if (fields.size() == kMostCells) break;
      fields.back() = trimmed_cell(fields.back());
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  fields.back() = trimmed_cell(fields.back());
  return fields;
}

std::vector<std::string> split_cells(std::string_view line) {
  std::vector<std::string> cells;
  size_t begin = line.find('|');
  while (begin < line.size() && cells.size() < kMostCells) {
    const size_t end = line.find('|', begin + 1);
    if (end == line.npos) break;
    cells.push_back(trimmed_cell(line.substr(begin + 1, end - begin - 1)));
    begin = end;
  }
  return cells;
}

}  // namespace ridge
