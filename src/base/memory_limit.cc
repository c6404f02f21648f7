#include "base/memory_limit.h"

#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace ridge {
namespace {

std::string contents(const std::string& path) {  // files of /proc report no size
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<double> number_in(const std::string& path) {
  const std::string text = contents(path);
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  if (end == text.c_str() || value <= 0) return std::nullopt;
  return value;
}

// The smallest limit of this process's control group and of the groups above it. The file is
// memory.max in cgroup v2 and memory.limit_in_bytes in v1.
std::optional<double> cgroup_limit() {
  std::vector<std::string> files = {"/sys/fs/cgroup/memory.max",
                                    "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
  std::istringstream lines(contents("/proc/self/cgroup"));
  for (std::string line; std::getline(lines, line);) {
    const size_t second = line.find(':', line.find(':') + 1);
    if (second == std::string::npos) continue;
    const bool v2 = line.starts_with("0::");
    if (!v2 && line.find(":memory:") == std::string::npos) continue;
    for (std::string group = line.substr(second + 1); group.size() > 1;
         group.resize(group.rfind('/'))) {
      files.push_back(v2 ? "/sys/fs/cgroup" + group + "/memory.max"
                         : "/sys/fs/cgroup/memory" + group + "/memory.limit_in_bytes");
    }
  }
  std::optional<double> tightest;
  for (const std::string& file : files) {
    const std::optional<double> limit = number_in(file);  // "max" is no number
    if (limit && (!tightest || *limit < *tightest)) tightest = limit;
  }
  return tightest;
}

}  // namespace

std::optional<double> memory_limit() {
  struct sysinfo system = {};
  if (sysinfo(&system) != 0) return std::nullopt;
  const double physical = static_cast<double>(system.totalram) * system.mem_unit;
  if (physical <= 0) return std::nullopt;
  return std::min(physical, cgroup_limit().value_or(physical));
}

double free_bytes() {
  std::ifstream file("/proc/meminfo");
  for (std::string key; file >> key;) {
    double kilobytes = 0;
    if (key == "MemAvailable:" && file >> kilobytes) {
      return std::min(kilobytes * 1024, memory_limit().value_or(kilobytes * 1024));
    }
  }
  return static_cast<double>(sysconf(_SC_AVPHYS_PAGES)) *
         static_cast<double>(sysconf(_SC_PAGESIZE));
}

}  // namespace ridge
