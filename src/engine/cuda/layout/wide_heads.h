// Heads of a width that the kernels have no code for, given to the device as wider ones: zeros
// beside the halves that rope turns into each other, where they change no score and no sum. What
// does change is that a head norm's epsilon weighs wide / narrow times as much.
#pragma once

#include <vector>

#include "engine/cuda/device_model.h"
#include "engine/weights/weights.h"

namespace ridge::cuda {

FillRows rows_of(const Matrix& matrix);  // as bf16; `matrix` must stay where it is

class WideHeads {
 public:
  // The narrowest width with code that holds `head_dim`; where none does, itself.
  explicit WideHeads(int head_dim);
  int wide() const { return wide_; }

  FillRows rows(const Matrix& narrow) const;     // q, k, v: [heads * wide x hidden]
  FillRows columns(const Matrix& narrow) const;  // out: [hidden x heads * wide]
  Vector vector(const Vector& narrow) const;     // biases
  Vector norm(const Vector& narrow) const;       // of q and k: its mean is over more columns
  std::vector<float> frequency(std::vector<float> narrow) const;  // of a rope

 private:
  int place(int column) const;  // of a narrow head's column in the wide one

  int narrow_, wide_;
};

}  // namespace ridge::cuda
