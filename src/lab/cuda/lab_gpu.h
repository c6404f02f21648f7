// The GPU as the lab's kernels use it: a stream and its clock. No CUDA types, so that experiments
// are ordinary C++20 and kernels (*.cu) C++17.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ridge {

struct CudaRun;

class LabGpu {
 public:
  LabGpu();  // the first device; throws Error where there is none
  ~LabGpu();
  LabGpu(const LabGpu&) = delete;
  LabGpu& operator=(const LabGpu&) = delete;

  int sms() const;
  double l2_bytes() const;

  // Seconds of one launch() by the device's clock: `samples` of `repeats` launches each, queued
  // behind a kernel that waits for the host, after one warm-up. The kernels of all repeats together
  // must fit the launch queue (1024).
  std::vector<double> time(int samples, int repeats, const std::function<void()>& launch);
  void wait();  // until all launches have ended; throws Error where one failed

  std::string conditions() const;  // clock, power and what holds the clock down, now
  // What NVML shows now; absent where it does not.
  struct Use {
    std::optional<double> utilisation, memory_use;  // shares of the last second
    std::optional<double> power;                    // W
  };
  Use use() const;
  CudaRun& run() { return *run_; }  // for the kernels: its stream

 private:
  std::unique_ptr<CudaRun> run_;
};

}  // namespace ridge
