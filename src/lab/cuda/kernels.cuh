// What the lab's kernels share: random words and sums over a grid.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "lab/cuda/lab_gpu.h"
#include "measure/cuda/run.cuh"

namespace ridge {

// words[i] = (random & keep) | set. With keep 0x7fffff, set 0x3f800000 they are floats in [1, 2).
// Queued on the stream.
void fill_words(LabGpu& gpu, uint32_t* words, size_t count, uint32_t keep, uint32_t set);

constexpr uint32_t kFloatBits = 0x007fffff, kFloatOne = 0x3f800000;  // floats in [1, 2)
constexpr uint32_t kBf16Bits = 0x007f007f, kBf16One = 0x3f803f80;    // pairs of bf16 in [1, 2)

// Adds the values of all threads of a warp to *total. The whole warp calls it.
__device__ inline void add_to_total(double value, double* total) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value += __shfl_down_sync(0xffffffffu, value, lanes);
  if (threadIdx.x % 32 == 0) atomicAdd(total, value);
}
__device__ inline void add_to_total(uint32_t value, uint32_t* total) {
  value = __reduce_add_sync(0xffffffffu, value);
  if (threadIdx.x % 32 == 0) atomicAdd(total, value);
}

// A result that kernels add to: cleared before a launch and read after it.
template <typename T>
class GridTotal {
 public:
  explicit GridTotal(LabGpu& gpu) : gpu_(gpu), total_(1) {}
  T* data() const { return total_.data(); }
  void clear() {
    check(cudaMemsetAsync(total_.data(), 0, sizeof(T), gpu_.run().stream), "clearing a sum");
  }
  T read() {
    gpu_.wait();
    return total_.host().front();
  }

 private:
  LabGpu& gpu_;
  DeviceArray<T> total_;
};

}  // namespace ridge
