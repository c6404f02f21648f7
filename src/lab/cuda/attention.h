// Causal attention of one prompt in two forms: with its scores in memory (GEMMs of cuBLASLt and a
// softmax), and tiled (the engine's kernel over pages).
#pragma once

#include <memory>

#include "lab/cuda/lab_gpu.h"

namespace ridge {

class LabAttention {
 public:
  static constexpr int kHeadDim = 128;
  static constexpr int kRows = 1024;  // queries of a block: keys past its last query are skipped
  static constexpr int kMostTokens = 8192;

  // q, k and v are uniform in (-1, 1), in bf16. `tokens` is a multiple of kRows. Throws Error where
  // cuBLASLt is missing.
  LabAttention(LabGpu& gpu, int heads, int tokens);
  ~LabAttention();

  // Each queues one attention of all heads. Materialised: S = Q K^T is written in bf16, softmax
  // reads it and writes P in place, P V reads it; up to 2 tokens / kRows + 1 kernels.
  void materialised();
  void tiled();
  // Of the last outputs of both; infinite where one is no number. Waits.
  double largest_difference();

 private:
  struct Data;
  LabGpu& gpu_;
  int heads_, tokens_;
  std::unique_ptr<Data> data_;
};

}  // namespace ridge
