// How much memory this process may use.
#pragma once

#include <optional>

namespace ridge {

// Bytes: physical memory or the limit of the process's control group, whichever is smaller.
std::optional<double> memory_limit();

// Bytes that can be allocated without swapping or reaching memory_limit().
double free_bytes();

}  // namespace ridge
