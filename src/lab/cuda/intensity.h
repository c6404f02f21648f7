// Reads of device memory with a chosen number of FLOPs for each byte, by fp32 multiply-adds or by
// the tensor cores (mma.sync of bf16).
#pragma once

#include <cstddef>
#include <memory>

#include "lab/cuda/lab_gpu.h"

namespace ridge {

enum class IntensityMath : uint8_t { fp32, bf16 };

// How many FLOPs the bytes get.
struct IntensityWork {
  // fp32: multiply-adds for each float. bf16: products m16n8k16 for each 512 bytes (1, 2 or a
  // multiple of 4). 0: fewer than one, see `group`.
  int each = 1;
  // fp32: one addition for so many floats (1, 2 or 4). bf16: one product for so many times 2 KiB.
  int group = 1;
};

class IntensityReads {
 public:
  // A set of `rounds` rounds: a round gives each block of the grid one tile.
  IntensityReads(LabGpu& gpu, IntensityMath math, int rounds);
  ~IntensityReads();

  static double round_bytes(const LabGpu& gpu, IntensityMath math);
  static double flop_per_byte(IntensityMath math, const IntensityWork& work);

  // Queues `passes` passes over the rounds [first, first + rounds).
  void launch(const IntensityWork& work, int first, int rounds, int passes);
  double flops(const IntensityWork& work, int rounds, int passes) const;
  // Whether a pass over the first rounds gives the sum that a plain kernel gives.
  bool is_right(const IntensityWork& work);

 private:
  struct Data;
  LabGpu& gpu_;
  IntensityMath math_;
  int rounds_;
  std::unique_ptr<Data> data_;
};

}  // namespace ridge
