// The host's memory that a device copies from and to, or reads and writes in place.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "base/error.h"

namespace ridge::cuda {

// The message of a call that failed. CUDA's last error is cleared: where another way is taken
// instead, the next check of a launch must not find it.
inline std::string take_error(cudaError_t status) {
  (void)cudaGetLastError();
  return cudaGetErrorString(status);
}

// Integers that a running kernel and the host both see. All zero at first.
class MappedInts {
 public:
  explicit MappedInts(size_t count) {
    const cudaError_t status = cudaHostAlloc(&data_, count * sizeof(int), cudaHostAllocMapped);
    if (status != cudaSuccess) {
      throw Error("no memory that device and host share: {}", take_error(status));
    }
    for (size_t i = 0; i < count; ++i) data_[i] = 0;
  }
  ~MappedInts() { cudaFreeHost(data_); }
  MappedInts(const MappedInts&) = delete;
  MappedInts& operator=(const MappedInts&) = delete;
  volatile int* data() const { return data_; }  // one address for both

 private:
  int* data_ = nullptr;
};

// Floats on their way to and from a device.
class PinnedFloats {
 public:
  explicit PinnedFloats(size_t count) {
    const cudaError_t status = cudaMallocHost(&data_, count * sizeof(float));
    if (status != cudaSuccess) {
      throw Error("{} floats of memory could not be pinned: {}", count, take_error(status));
    }
  }
  ~PinnedFloats() { cudaFreeHost(data_); }
  PinnedFloats(const PinnedFloats&) = delete;
  PinnedFloats& operator=(const PinnedFloats&) = delete;
  float* data() const { return data_; }

  // After what the stream has queued; waits.
  void copy_from(const float* device, size_t count, cudaStream_t stream) {
    copy(data_, device, count, cudaMemcpyDeviceToHost, stream);
  }
  // Waits too, so that the memory may be filled again.
  void copy_to(float* device, size_t count, cudaStream_t stream) {
    copy(device, data_, count, cudaMemcpyHostToDevice, stream);
  }

 private:
  static void copy(float* to, const float* from, size_t count, cudaMemcpyKind kind,
                   cudaStream_t stream) {
    cudaError_t status = cudaMemcpyAsync(to, from, count * sizeof(float), kind, stream);
    if (status == cudaSuccess) status = cudaStreamSynchronize(stream);
    if (status != cudaSuccess) throw Error("CUDA, copying rows: {}", cudaGetErrorString(status));
  }
  float* data_ = nullptr;
};

}  // namespace ridge::cuda
