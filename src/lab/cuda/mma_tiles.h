// Products by the tensor cores' own instruction, mma.sync, whose tiles have 16 rows and 8 tokens:
// tokens off the multiple of 8 are padded.
#pragma once

#include <memory>

#include "lab/cuda/lab_gpu.h"

namespace ridge {

class MmaTiles {
 public:
  static constexpr int kMostTokens = 64;
  explicit MmaTiles(LabGpu& gpu);
  ~MmaTiles();

  // Queues the product of 32 rows a warp with so many tokens, of 64 inputs in bf16 or 128 in int8,
  // again and again, with all warps that the SMs hold.
  void launch(bool int8, int tokens);
  double padded_flops(bool int8, int tokens) const;
  // Whether the sum of all outputs is the one of plain code.
  bool is_right(bool int8, int tokens);

 private:
  struct Data;
  LabGpu& gpu_;
  std::unique_ptr<Data> data_;
};

}  // namespace ridge
