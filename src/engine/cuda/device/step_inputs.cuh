// The host's inputs of a step (tokens, page numbers, lists of work) on their way to the device:
// gathered in pinned memory, then one copy.
//
// There are two pinned buffers in turn, so that the host writes the inputs of step n + 1 while the
// copy of step n waits in the stream. The device has one: the copy of step n + 1 is queued behind
// the kernels of step n.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "engine/cuda/device/device.cuh"

namespace ridge::cuda {

template <typename T>
struct StepInput {
  T* host = nullptr;    // to be written before upload()
  T* device = nullptr;  // for kernels queued after upload()
};

class StepInputs {
 public:
  explicit StepInputs(size_t bytes) : capacity_(bytes), device_(bytes) {
    for (Buffer& buffer : buffers_) {
      check(cudaMallocHost(&buffer.host, bytes), "pinning memory");
      check(cudaEventCreateWithFlags(&buffer.copied, cudaEventDisableTiming), "making an event");
    }
  }
  ~StepInputs() {
    for (Buffer& buffer : buffers_) {
      cudaEventDestroy(buffer.copied);
      cudaFreeHost(buffer.host);
    }
  }
  StepInputs(const StepInputs&) = delete;
  StepInputs& operator=(const StepInputs&) = delete;

  // Bytes that an array of `count` takes of the capacity.
  template <typename T>
  static constexpr size_t bytes_of(size_t count) {
    return (count * sizeof(T) + 15) / 16 * 16;
  }

  // Begins a step's inputs. Waits for the copy of the step before last, if it still waits.
  void begin() {
    current_ ^= 1;
    used_ = 0;
    check(cudaEventSynchronize(buffers_[current_].copied), "waiting for a copy");
  }
  template <typename T>
  StepInput<T> add(size_t count) {
    const size_t at = used_;
    used_ += bytes_of<T>(count);
    if (used_ > capacity_) throw Error("a step's inputs exceed the {} bytes for them", capacity_);
    return {reinterpret_cast<T*>(buffers_[current_].host + at),
            reinterpret_cast<T*>(device_.data() + at)};
  }
  void upload(cudaStream_t stream) {
    const Buffer& buffer = buffers_[current_];
    check(cudaMemcpyAsync(device_.data(), buffer.host, used_, cudaMemcpyHostToDevice, stream),
          "copying a step's inputs");
    check(cudaEventRecord(buffer.copied, stream), "recording a copy");
  }

 private:
  struct Buffer {
    uint8_t* host = nullptr;
    cudaEvent_t copied = nullptr;  // an event that was never recorded is complete
  };
  size_t capacity_, used_ = 0;
  int current_ = 0;
  Buffer buffers_[2];
  DeviceBuffer<uint8_t> device_;
};

}  // namespace ridge::cuda
