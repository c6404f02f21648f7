// The specification of cpu/matmul.h: weights dequantized, activations unrounded, sums in double.
#pragma once

#include "engine/weights/weights.h"
#include "model/architecture.h"

namespace ridge::reference {

// One GEMM; with `up`, y = activation(w x + bias) * (up x + up_bias).
struct Gemm {
  const Matrix* w = nullptr;
  const float* x = nullptr;  // x[t][c] at x + t * x_stride + c
  int64_t x_stride = 0;
  int tokens = 0;
  float* y = nullptr;  // y[t][r] at y + t * stride + r
  int64_t stride = 0;
  const float* bias = nullptr;  // [rows], added
  bool accumulate = false;      // adds to y instead of overwriting it
  const Matrix* up = nullptr;
  const float* up_bias = nullptr;  // [rows]
  Activation activation = Activation::silu;
};
void multiply(const Gemm& gemm);

}  // namespace ridge::reference
