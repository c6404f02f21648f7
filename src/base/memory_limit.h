// How much memory this process may use.
#pragma once

#include <optional>

namespace ridge {

// Bytes: physical memory or the limit of the process's control group, whichever is smaller.
std::optional<double> memory_limit();

// Bytes that can be allocated without swapping or reaching memory_limit().
double free_bytes();
// What a measurement takes of them at most, so that no process is swapped out.
inline constexpr double kShareOfFree = 0.25;

}  // namespace ridge
