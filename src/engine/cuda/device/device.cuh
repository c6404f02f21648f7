// Checked CUDA calls, device memory with an owner, and launch attributes.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/ptx/execution.cuh"

namespace ridge::cuda {

// Throws an Error with the driver's message.
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

  // Blocks until done: the fill is in the default stream, for which other streams do not wait.
  void fill_bytes(int value) {
    check(cudaMemset(data_, value, count_ * sizeof(T)), "filling");
    check(cudaStreamSynchronize(nullptr), "filling");
  }
  void copy_from(const T* host, size_t count) {
    check(cudaMemcpy(data_, host, count * sizeof(T), cudaMemcpyHostToDevice), "copying");
  }
  // In stream order. Pageable `host` memory is staged, so it may change when this returns.
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

// Whether the device runs code compiled for Hopper. Every other card runs that of sm_80, or its
// PTX, where griddepcontrol is compiled out (execution.cuh).
template <typename Kernel>
bool has_griddepcontrol(Kernel* kernel) {
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, kernel), "asking for a kernel");
  return attributes.ptxVersion >= 90;
}

// Launches with programmatic dependent launch: the kernel may start while the previous one of the
// stream still runs. It must call ptx::griddepcontrol_wait() before it reads what the previous
// kernel wrote, or writes what that one reads. Where that does nothing, kernels do not overlap.
// kCluster: blocks of a thread block cluster (Hopper); the grid has whole clusters.
template <int kCluster = 1, typename... Parameters, typename... Arguments>
void launch_dependent(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared_bytes,
                      cudaStream_t stream, const Arguments&... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  attributes[0].id = cudaLaunchAttributeClusterDimension;
  attributes[0].val.clusterDim = {kCluster, 1, 1};
  attributes[1].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attributes[1].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  static const bool overlaps = has_griddepcontrol(kernel);
  config.attrs = attributes + (kCluster == 1);
  config.numAttrs = (kCluster > 1) + overlaps;
  check(cudaLaunchKernelEx(&config, kernel, Parameters(arguments)...), "launching");
}

// Raises a kernel's limit of dynamic shared memory. Once per kernel, from a static initializer:
//   [[maybe_unused]] static const bool ready = allow_shared_memory(kernel, bytes);
template <typename Kernel>
bool allow_shared_memory(Kernel* kernel, int bytes) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "raising the limit of shared memory");
  return true;
}
// Gives the kernel the largest shared-memory carveout of L1. Kernels that alternate in a stream
// need the same carveout: an SM must drain before it changes the split.
template <typename Kernel>
bool prefer_max_shared_memory(Kernel* kernel) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "setting the shared memory carveout");
  return true;
}

}  // namespace ridge::cuda
