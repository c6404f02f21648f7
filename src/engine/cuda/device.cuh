// Checked CUDA calls and memory that frees itself.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"

namespace ridge::cuda {

// Throws Error with the driver's words.
inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error("CUDA, {}: {}", what, cudaGetErrorString(status));
}

template <typename T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(size_t count) : count_(count) {
    if (count) check(cudaMalloc(&data_, count * sizeof(T)), "allocating device memory");
  }
  ~DeviceBuffer() { cudaFree(data_); }
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    swap(other);
    return *this;
  }
  T* data() const { return data_; }
  size_t size() const { return count_; }

  // Waits: a stream of one's own does not wait for the default one, which fills.
  void fill_bytes(int value) {
    check(cudaMemset(data_, value, count_ * sizeof(T)), "filling");
    check(cudaStreamSynchronize(nullptr), "filling");
  }
  void copy_from(const T* host, size_t count) {
    check(cudaMemcpy(data_, host, count * sizeof(T), cudaMemcpyHostToDevice), "copying");
  }
  // After what the stream has queued; `host` may change at once (it is staged if not pinned).
  void copy_from(const T* host, size_t count, cudaStream_t stream) {
    check(cudaMemcpyAsync(data_, host, count * sizeof(T), cudaMemcpyHostToDevice, stream),
          "copying");
  }
  std::vector<T> host() const {
    std::vector<T> copy(count_);
    check(cudaMemcpy(copy.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "copying");
    return copy;
  }

 private:
  void swap(DeviceBuffer& other) {
    std::swap(data_, other.data_);
    std::swap(count_, other.count_);
  }
  T* data_ = nullptr;
  size_t count_ = 0;
};

// Programmatic dependent launch: a kernel may begin while the one before it in the stream ends. It
// must call after_previous() before it reads what that one wrote, or writes what that one reads,
// and lets the next begin by let_next_begin(), which promises nothing about its own results.
template <typename... Parameters, typename... Arguments>
void launch_dependent(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared_bytes,
                      cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "launching");
}

__device__ inline void after_previous() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ inline void let_next_begin() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// A line into L2: what a kernel will need of memory that no kernel writes, asked for before
// after_previous().
__device__ inline void expect_line(const void* at) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
}
// Raises a kernel's limit of dynamic shared memory. Once per kernel, from a static initializer:
//   [[maybe_unused]] static const bool ready = allow_shared_memory(kernel, bytes);
template <typename Kernel>
bool allow_shared_memory(Kernel* kernel, int bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "raising the limit of shared memory");
  return true;
}
// The same split of L1 and shared memory as the products have, or an SM must be empty before it
// takes a block of another kernel.
template <typename Kernel>
void share_like_products(Kernel* kernel) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "asking for shared memory");
}

}  // namespace ridge::cuda
