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
// 2 or 4 adjacent floats, each read as a whole.
__device__ inline void ld_relaxed(const float* from, float (&to)[2]) {
  asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];"
               : "=f"(to[0]), "=f"(to[1])
               : "l"(from)
               : "memory");
}
__device__ inline void ld_relaxed(const float* from, float (&to)[4]) {
  asm volatile("ld.relaxed.gpu.global.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "l"(from)
               : "memory");
}
__device__ inline void st_relaxed(unsigned* to, unsigned value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
__device__ inline void st_relaxed(unsigned long long* to, unsigned long long value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(to), "l"(value) : "memory");
}
// Two adjacent words, each written as a whole.
__device__ inline void st_relaxed(unsigned long long* to, unsigned long long first,
                                  unsigned long long second) {
  asm volatile("st.relaxed.gpu.global.v2.u64 [%0], {%1, %2};" ::"l"(to), "l"(first), "l"(second)
               : "memory");
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

// After a relaxed load that saw what another thread released: makes it an acquire. Cheaper than
// __threadfence(), which is sequentially consistent.
__device__ inline void fence_acquire_release() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

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
