// Global memory accesses with a memory order, at the scope of the device or of the system: other
// devices and the host.
#pragma once

#include <cuda_runtime.h>

namespace ridge::ptx {

__device__ inline unsigned ld_relaxed(const unsigned* from) {
  unsigned value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline float ld_relaxed(const float* from) {
  float value;
  asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline unsigned long long ld_relaxed(const unsigned long long* from) {
  unsigned long long value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline void st_relaxed(unsigned long long* to, unsigned long long value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
__device__ inline unsigned ld_acquire(const unsigned* from) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline void st_release(unsigned* to, unsigned value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

__device__ inline unsigned ld_acquire_system(const unsigned* from) {
  unsigned value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
__device__ inline void st_release_system(unsigned* to, unsigned value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}

// Adds 1. Writes that precede it in this thread, or in its block before a barrier, are visible to
// a thread that acquires the new value.
__device__ inline void red_release_increment(unsigned* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
// The same; returns the value before the addition.
__device__ inline unsigned atom_release_increment(unsigned* counter) {
  unsigned before;
  asm volatile("atom.release.gpu.global.add.u32 %0, [%1], 1;"
               : "=r"(before)
               : "l"(counter)
               : "memory");
  return before;
}

}  // namespace ridge::ptx
