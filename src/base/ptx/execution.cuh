// Execution control: named barriers, registers per warpgroup, programmatic dependent launch.
#pragma once

#include <cuda_runtime.h>

namespace ridge::ptx {

// A barrier of `threads` threads of the block. Barrier 0 is the one of __syncthreads.
template <int kBarrier>
__device__ inline void bar_sync(int threads) {
  asm volatile("bar.sync %0, %1;" ::"n"(kBarrier), "r"(threads) : "memory");
}

// Arrives at a named barrier without waiting; `threads` counts those that wait too.
template <int kBarrier>
__device__ inline void bar_arrive(int threads) {
  asm volatile("bar.arrive %0, %1;" ::"n"(kBarrier), "r"(threads) : "memory");
}

// Changes the registers per thread of the calling warpgroup. Only in RIDGE_HOPPER code.
template <int kRegisters>
__device__ inline void setmaxnreg_inc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters>
__device__ inline void setmaxnreg_dec() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}

// Programmatic dependent launch. `wait` blocks until the previous kernel of the stream has ended
// and its writes are visible. `launch_dependents` lets the next kernel start; it makes no promise
// about this kernel's writes. Both do nothing before Hopper, where kernels do not overlap.
__device__ inline void griddepcontrol_wait() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void griddepcontrol_launch_dependents() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace ridge::ptx
