// What DCGM's profiling counters show of the first GPU, read through its own program, dcgmi: they
// need its service, so a machine without it has none.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ridge {

// Shares of the time in which each was active, fields 1002, 1004 and 1005.
struct DcgmActivity {
  double sm = 0, tensor = 0, dram = 0;
};

// The last sample in the output of `dcgmi dmon -e 1002,1004,1005`.
std::optional<DcgmActivity> parse_dcgm(std::string_view output);

// Samples for about half a second. Nothing where dcgmi or its service is not there; `why` says so.
std::optional<DcgmActivity> read_dcgm(std::string& why);

}  // namespace ridge
