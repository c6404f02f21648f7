// Two adjacent 64-bit words of global memory in one load, each read as a whole, at the scope of the
// device. Their store is in memory_order.cuh.
#pragma once

#include <cuda_runtime.h>

namespace ridge::ptx {

__device__ inline ulonglong2 ld_relaxed_pair(const ulonglong2* from) {
  ulonglong2 value;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(value.x), "=l"(value.y)
               : "l"(from)
               : "memory");
  return value;
}
}  // namespace ridge::ptx
