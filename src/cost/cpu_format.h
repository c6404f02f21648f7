// Weight formats that the CPU engine has kernels of its own for (engine/cpu/matmul_kernels.h).
#pragma once

#include "base/dtype.h"

namespace ridge {

enum class CpuFormat : uint8_t {
  other,
  fp32,
  fp16,
  bf16,
  q8_0,
  q6_k,
  q5_k,
  q5_1,
  q5_0,
  q4_k,
  q4_1,
  q4_0,
  kCount
};
inline constexpr int kCpuFormatCount = static_cast<int>(CpuFormat::kCount);
CpuFormat cpu_format(const Format& format);  // CpuFormat::other: it has none

}  // namespace ridge
