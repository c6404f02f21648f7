// Two adjacent 64-bit words of global memory in one access, each read and written as a whole, at
// the scope of the device.
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
__device__ inline void st_relaxed_pair(ulonglong2* to, const ulonglong2& value) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(value.x), "l"(value.y)
               : "memory");
}

}  // namespace ridge::ptx
