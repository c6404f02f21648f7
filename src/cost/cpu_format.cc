#include "cost/cpu_format.h"

#include <iterator>

namespace ridge {

CpuFormat cpu_format(const Format& format) {
  constexpr std::string_view kNames[] = {"",     "fp32", "fp16", "bf16", "q8_0", "q6_k",
                                         "q5_k", "q5_1", "q5_0", "q4_k", "q4_1", "q4_0"};
  static_assert(std::size(kNames) == kCpuFormatCount);
  for (int i = 1; i < kCpuFormatCount; ++i) {
    if (kNames[i] == format.name) return static_cast<CpuFormat>(i);
  }
  return CpuFormat::other;
}

}  // namespace ridge
