// What a kernel model needs to know of a GPU, taken once from its Machine.
#pragma once

#include <array>
#include <string_view>

#include "base/dtype.h"
#include "machine/machine.h"

namespace ridge {

// Kernel generations: what instructions and copy engines the libraries are written for.
enum class Arch : uint8_t { ampere, ada, hopper, blackwell, blackwell_rtx, other, kCount };
inline constexpr int kArchCount = static_cast<int>(Arch::kCount);
std::string_view arch_name(Arch arch);
Arch arch_from_name(std::string_view name);  // throws Error

struct GpuTraits {
  Arch arch = Arch::other;
  double sms = 0;
  double clock = 0;         // Hz
  double tick = 1;          // 2 GHz / clock: fixed costs are counted in cycles, stated at 2 GHz
  double bandwidth = 0;     // device memory, bytes/s
  double stream = 0;        // the same as fitted kernels should see it, see gpu_traits
  double l2_bytes = 0;      // what one SM can find there: half the capacity where the L2 is split
                            // into two partitions that each cache what their SMs use
  double l2_total = 0;      // capacity
  double link = 0;          // bytes/s one direction to peers; 0: none
  double link_devices = 1;  // devices the link joins
  bool p2p = true;          // over that link; the fitted collectives need it
  bool switched = false;    // NVLink through a switch: every pair at full rate
  std::array<double, kDTypeCount> peak{};  // dense operations/s; missing formats as the next wider

  double peak_of(DType dtype) const { return peak[static_cast<int>(dtype)]; }
};

// Throws Error if SM count, bandwidth or the 16-bit peak are unknown.
GpuTraits gpu_traits(const Machine& machine);

}  // namespace ridge
