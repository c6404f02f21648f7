#include "lab/dcgm.h"

#include <cstdio>
#include <memory>
#include <sstream>

namespace ridge {

std::optional<DcgmActivity> parse_dcgm(std::string_view output) {
  std::optional<DcgmActivity> last;
  std::istringstream lines{std::string(output)};
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string entity, id;
    DcgmActivity seen;
    // "GPU 0   0.998   0.000   0.912"; a counter that is not there reads "N/A".
    if (words >> entity >> id >> seen.sm >> seen.tensor >> seen.dram && entity == "GPU")
      last = seen;
  }
  return last;
}

std::optional<DcgmActivity> read_dcgm(std::string& why) {
  constexpr const char* kCommand =
      "command -v dcgmi >/dev/null || { echo none; exit; }; "
      "timeout 5 dcgmi dmon -i 0 -e 1002,1004,1005 -d 100 -c 5 2>/dev/null";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(kCommand, "r"), pclose);
  std::string output;
  char buffer[512];
  while (pipe && fgets(buffer, sizeof buffer, pipe.get()) != nullptr) output += buffer;
  const std::optional<DcgmActivity> seen = parse_dcgm(output);
  if (output.starts_with("none")) {
    why = "DCGM is not installed here (no dcgmi), so its fields 1002, 1004 and 1005 are not read";
  } else if (!seen) {
    why = "dcgmi is here but shows no profiling fields (is its service running?)";
  }
  return seen;
}

}  // namespace ridge
