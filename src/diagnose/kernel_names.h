// A kernel's name to what it computes.
#pragma once

#include <string>
#include <string_view>

#include "diagnose/kernel_profile.h"

namespace ridge {

// By the first rule that matches, case-insensitive. Takes microseconds for long C++ names: readers
// call it once per distinct name.
KernelFamily kernel_family(std::string_view name);

// True for torch.topk's kernels, which route tokens to experts where they run once per layer, and
// sample where they run once per step. kernel_family() says routing.
bool is_torch_topk(std::string_view name);

// "void cutlass::gemm::Gemm<...>(...)" -> "cutlass::gemm::Gemm": without return type, template
// arguments and parameters, at most 80 bytes. Wrappers that have the kernel as a template argument
// (cutlass::Kernel2<NAME>) are named by it.
std::string short_kernel_name(std::string_view name);

}  // namespace ridge
