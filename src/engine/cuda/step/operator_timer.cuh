// The device time of a step's operators, by events between them.
#pragma once

#include <cuda_runtime.h>

#include <utility>
#include <vector>

#include "engine/cuda/device/device.cuh"

namespace ridge::cuda {

using OperatorTimes = std::vector<std::pair<const char*, double>>;  // names and seconds, in order

class OperatorTimer {
 public:
  OperatorTimer() = default;
  ~OperatorTimer() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  OperatorTimer(const OperatorTimer&) = delete;
  OperatorTimer& operator=(const OperatorTimer&) = delete;

  void enable(bool enabled) { enabled_ = enabled; }
  bool enabled() const { return enabled_; }
  void restart() { used_ = 0; }
  // Operator `name` begins here, and the one before ends. The last call of a step names nothing.
  void mark(cudaStream_t stream, const char* name) {
    if (!enabled_) return;
    if (used_ == events_.size()) {
      cudaEvent_t event = nullptr;
      check(cudaEventCreate(&event), "making an event");
      events_.push_back(event);
      names_.push_back(nullptr);
    }
    names_[used_] = name;
    check(cudaEventRecord(events_[used_++], stream), "timing");
  }
  // Waits for the last mark.
  void append_to(OperatorTimes& times) const {
    if (used_ < 2) return;
    check(cudaEventSynchronize(events_[used_ - 1]), "timing");
    for (size_t i = 0; i + 1 < used_; ++i) {
      float ms = 0;
      check(cudaEventElapsedTime(&ms, events_[i], events_[i + 1]), "timing");
      times.emplace_back(names_[i], ms / 1e3);
    }
  }

 private:
  bool enabled_ = false;
  std::vector<const char*> names_;
  std::vector<cudaEvent_t> events_;
  size_t used_ = 0;
};

}  // namespace ridge::cuda
