#include "cli/measurement_doubt.h"

#include <cctype>

namespace ridge {

std::string doubt_since(const Disturbance& before, const EngineOptions& options,
                        const Runner& runner) {
  if (options.device != "cpu" || runner.plan().devices() > 1) return "";
  return doubt_between(before, disturbance_now());
}

std::string doubt_line(const std::string& doubt) {
  if (doubt.empty()) return "";
  std::string line = doubt;
  line.front() = char(std::toupper(static_cast<unsigned char>(line.front())));
  return line + " while this was measured: the rates below may be too low.\n";
}

Json doubt_json(const std::string& doubt) { return doubt.empty() ? Json() : Json(doubt); }

}  // namespace ridge
