// A ring of bulk copies from device memory (measure/cuda/bulk.cuh) with a chosen number of buffers.
#pragma once

#include <cstddef>
#include <memory>

#include "lab/cuda/lab_gpu.h"

namespace ridge {

class LabRing {
 public:
  // Reads `bytes` at random, rounded down to 32 KB. Throws Error where the GPU has no bulk copies.
  LabRing(LabGpu& gpu, double bytes);
  ~LabRing();
  double bytes() const;
  // Queues a read of everything: on each SM `stages` (1 to 8) copies of `chunk` bytes in flight.
  void read(int stages, int chunk);
  bool is_right(int stages, int chunk);

 private:
  struct Data;
  LabGpu& gpu_;
  std::unique_ptr<Data> data_;
};

}  // namespace ridge
