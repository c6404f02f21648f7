// The machine this program runs on.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "machine/machine.h"

namespace ridge {

// A number that a probe found here.
struct Measured {
  double value = 0;   // the best pass
  double spread = 0;  // how far the median pass falls short of it, relative
  std::string how;    // what was done, for the provenance
};

struct CpuProbe {
  std::optional<Measured> read_bandwidth;   // of memory, all cores, bytes/s
  std::string no_read_bandwidth;            // a sentence that says why it is not known
  std::optional<Measured> cache_bandwidth;  // of the last cache, all cores
  std::optional<Measured> clock;            // with all cores busy, Hz
};

// Measuring lives in a room above this one: whoever starts the program hands the probe down.
// Without one the memory bandwidth of "this" stays unknown and its clock is what /proc says.
void set_cpu_probe(std::function<std::optional<CpuProbe>()> probe);

// Cores, caches, memory and derived peaks of the CPU, named "this". What cannot be found out
// (no topology in a container, no clock in a VM) stays unknown. Found once, then remembered.
Machine detect_this();

// What /proc/cpuinfo says, as far as peaks need it.
struct CpuInfo {
  std::string model;   // "AMD EPYC 9654 96-Core Processor"
  std::string vendor;  // "AuthenticAMD"
  int family = 0, model_number = 0;
  Maybe mhz;  // of the first processor
  int processors = 0;
  std::vector<std::string> flags;  // sorted

  bool has(std::string_view flag) const;
};
CpuInfo parse_cpuinfo(std::string_view text);

// Operations per core and clock by format, and the words for the provenance. Every entry is an
// assumption about pipes that the flags alone do not prove; the note says which.
struct CpuRates {
  std::string isa;
  std::array<Maybe, kDTypeCount> per_clock;
  std::string note;
};
CpuRates cpu_rates(const CpuInfo& info);

}  // namespace ridge
