// What the CUDA benchmarks share: checked calls, memory, and timing behind a gate.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "measure/reading.h"

namespace ridge {

// Throws Error with the driver's words.
void check(cudaError_t status, const char* what);

template <typename T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : count_(count) {
    check(cudaMalloc(&data_, count * sizeof(T)), "allocating device memory");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;
  T* data() const { return data_; }
  size_t size() const { return count_; }

  // Both wait until the device has it: the benchmarks' stream does not wait for the default one.
  void fill_bytes(int value) {
    check(cudaMemset(data_, value, count_ * sizeof(T)), "filling");
    check(cudaDeviceSynchronize(), "filling");
  }
  void copy_from(const T* host, size_t count) {
    check(cudaMemcpy(data_, host, count * sizeof(T), cudaMemcpyHostToDevice), "copying");
    check(cudaDeviceSynchronize(), "copying");
  }
  std::vector<T> host() const {
    std::vector<T> copy(count_);
    check(cudaMemcpy(copy.data(), data_, count_ * sizeof(T), cudaMemcpyDeviceToHost), "copying");
    return copy;
  }

 private:
  T* data_ = nullptr;
  size_t count_;
};

// Clock, power and temperature of a GPU through NVML, opened at run time. Without it every answer
// is unknown.
struct Telemetry {
  Maybe clock;  // of the SMs, Hz
  Maybe power;  // W
  Maybe temperature;
  Maybe utilisation, memory_use;  // share of the last second with a kernel, with memory traffic
  std::string limits;             // what holds the clock down, "" if nothing
};
Telemetry telemetry(const std::string& pci_bus_id);

// One measuring of one device.
struct CudaRun {
  CudaRun(int index, Effort how_much, const StepProgress& on_step);
  ~CudaRun();
  CudaRun(const CudaRun&) = delete;
  CudaRun& operator=(const CudaRun&) = delete;

  bool full() const { return effort == Effort::full; }
  bool hopper() const { return properties.major == 9; }
  int sms() const { return properties.multiProcessorCount; }

  // Seconds of one launch: `repeats` of them between two events, queued behind a kernel that waits
  // for the host, so that no launch overhead lies between them. One unused warm-up. With `rest`
  // the device idles for so many seconds before each sample: a burst from a cool start.
  std::vector<double> time(int samples, int repeats, const std::function<void()>& launch,
                           double rest = 0);
  void add(Reading reading);
  void add(std::string id, std::string path, Dimension quantity, std::vector<double> values,
           std::string how);
  void note_conditions(const std::string& when);  // clock, power and limits at this moment

  Effort effort;
  const StepProgress& progress;
  cudaDeviceProp properties = {};
  std::string bus_id;
  cudaStream_t stream = nullptr;
  double clock = 0;  // Hz, with all SMs busy; set by measure_fma
  Report report;

 private:
  cudaEvent_t start_ = nullptr, stop_ = nullptr;
  volatile int* gate_ = nullptr;  // host memory that the GPU sees
};

// value / seconds for each sample.
std::vector<double> rates(double amount, const std::vector<double>& seconds);

// One family each, in its own file. They add readings and may throw Error; the caller notes it.
void measure_fma(CudaRun& run);               // fma.cu
void measure_tensor(CudaRun& run);            // tensor.cu, tensor_wgmma.cu
void measure_gemm(CudaRun& run);              // gemm.cu
void measure_tensor_sustained(CudaRun& run);  // tensor.cu: seconds on end, which heats the chip
void measure_gemm_sustained(CudaRun& run);    // gemm.cu
void measure_memory(CudaRun& run);            // memory.cu
void measure_caches(CudaRun& run);            // caches.cu
void measure_latency(CudaRun& run);           // latency.cu
void measure_launches(CudaRun& run);          // launch.cu
void measure_host_link(CudaRun& run);         // host_link.cu

}  // namespace ridge
