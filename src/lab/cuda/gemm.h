// The engine's GEMMs (engine/cuda/gemm/linear.cuh) on random weights in bf16: alone, and as the MLP
// of a layer with its activation and residual fused or as passes of their own.
#pragma once

#include <memory>
#include <vector>

#include "lab/cuda/lab_gpu.h"

namespace ridge {

class LabGemm {
 public:
  LabGemm(LabGpu& gpu, int rows, int columns, int most_tokens);
  ~LabGemm();
  // Queues y[token][row] = W x.
  void launch(int tokens);
  // Tokens that the tiles of such a GEMM hold.
  static int padded(int tokens);
  // Whether some outputs are those of sums in double.
  bool is_right(int tokens);

 private:
  struct Data;
  LabGpu& gpu_;
  int rows_, columns_, most_tokens_;
  std::unique_ptr<Data> data_;
};

// x += down (silu(gate h) * (up h)); h is given.
class LabMlpOnGpu {
 public:
  LabMlpOnGpu(LabGpu& gpu, int hidden, int inner, int most_tokens);
  ~LabMlpOnGpu();
  void fused(int tokens);  // two kernels
  void apart(int tokens);  // four: the GEMMs write floats that the passes read
  void reset();            // x = 0
  std::vector<float> output(int tokens);

 private:
  struct Data;
  LabGpu& gpu_;
  int hidden_, inner_, most_tokens_;
  std::unique_ptr<Data> data_;
};

}  // namespace ridge
