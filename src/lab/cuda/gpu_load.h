// Loads for the GPU's utilisation counter: one thread that waits, and reads that stream.
#pragma once

#include <memory>

#include "lab/cuda/lab_gpu.h"

namespace ridge {

class GpuLoad {
 public:
  explicit GpuLoad(LabGpu& gpu, double bytes);  // of device memory that is streamed
  ~GpuLoad();                                   // ends a thread that still waits

  // One thread that reads nothing until stop() or `most_s` seconds have passed.
  void start_waiting(double most_s);
  void stop();
  // Reads all bytes once and waits for the end.
  void stream_once();
  double bytes() const;

 private:
  struct Data;
  LabGpu& gpu_;
  std::unique_ptr<Data> data_;
};

}  // namespace ridge
