#include "base/json_csv.h"

#include <fmt/format.h>

#include <vector>

#include "base/text.h"

namespace ridge {

std::string json_csv(const Json& rows) {
  std::string header, lines;
  for (const Json& row : rows) {
    std::vector<std::string> names, fields;
    for (const auto& [key, value] : row.items()) {
      names.push_back(escape_csv(key));
      fields.push_back(value.is_null()     ? ""
                       : value.is_string() ? escape_csv(value.get<std::string>())
                                           : value.dump());
    }
    header = fmt::format("{}\n", fmt::join(names, ","));
    lines += fmt::format("{}\n", fmt::join(fields, ","));
  }
  return header + lines;
}

}  // namespace ridge
