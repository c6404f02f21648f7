// Puts attention heads into the form that the kernels have code for: a supported width, and RoPE
// over all of it, element i with i + width / 2. Elements that are not rotated follow the rotated
// ones of each half, with frequency 0; then come zeros, which change no score and no sum. One thing
// does change: the epsilon of a head norm weighs wide / narrow times as much.
#pragma once

#include <vector>

#include "engine/cuda/layout/model_shape.h"
#include "engine/weights/weights.h"

namespace ridge::cuda {

FillRows rows_of(const Matrix& matrix);  // as bf16; keeps a reference to `matrix`

class WideHeads {
 public:
  // The smallest supported width that holds `head_dim`, or `head_dim` itself if none does. The
  // first `rotary_dims` elements are rotated.
  WideHeads(int head_dim, int rotary_dims);
  int wide() const { return wide_; }

  FillRows rows(const Matrix& narrow) const;     // q, k, v: [heads * wide x hidden]
  FillRows columns(const Matrix& narrow) const;  // out: [hidden x heads * wide]
  Vector vector(const Vector& narrow) const;     // biases
  Vector norm(const Vector& narrow) const;       // of q and k; the mean is over more columns
  std::vector<float> frequency(std::vector<float> narrow) const;  // of RoPE

 private:
  int place(int column) const;  // column of the wide head for a column of the narrow one

  bool is_same() const { return wide_ == narrow_ && rotary_ == narrow_; }

  int narrow_, rotary_, wide_;
};

}  // namespace ridge::cuda
