// A kernel's name to what it computes.
#pragma once

#include <string>
#include <string_view>

#include "diagnose/kernel_profile.h"

namespace ridge {

KernelFamily kernel_family(std::string_view name);

// "void cutlass::Kernel2<...>(...)" -> "cutlass::Kernel2": without template arguments and
// parameters, at most 80 characters.
std::string short_kernel_name(std::string_view name);

}  // namespace ridge
