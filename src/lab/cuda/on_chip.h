// What an SM loses inside: bank conflicts of the shared memory, divergent warps, SMs without a
// block.
#pragma once

#include <cstdint>
#include <memory>

#include "lab/cuda/lab_gpu.h"

namespace ridge {

class OnChip {
 public:
  explicit OnChip(LabGpu& gpu);
  ~OnChip();

  // Lane l reads word l x stride of the shared memory: stride 2, 4, ... 32 puts as many lanes into
  // one bank.
  void read_banks(int stride);
  double bank_bytes() const;
  bool banks_are_right(int stride);

  // The lanes of a warp take `ways` branches (1, 2, ... 32) of multiply-adds.
  void diverge(int ways);
  double diverge_flops() const;  // of all lanes, whatever the ways
  bool diverge_is_right(int ways);

  // `blocks` blocks of multiply-adds, of which a SM holds one at a time.
  void run_blocks(int blocks);
  double block_flops() const;
  bool blocks_are_right(int blocks);

 private:
  struct Data;
  LabGpu& gpu_;
  std::unique_ptr<Data> data_;
};

}  // namespace ridge
