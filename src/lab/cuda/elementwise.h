// Elementwise passes over arrays of floats in device memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "lab/cuda/lab_gpu.h"

namespace ridge {

class LabFloats {
 public:
  // `arrays` arrays of `count` floats (a multiple of 1024), all in [1, 2) at random.
  LabFloats(LabGpu& gpu, size_t count, int arrays);
  ~LabFloats();
  size_t count() const { return count_; }
  double bytes() const;  // of all arrays

  void fill();  // anew, with the same numbers
  // to = f(f(...from)): `times` multiply-adds f(x) = x/2 + 1 of each element. `to` may be `from`.
  void chain(int to, int from, int times);
  // Adds the bits of those values, which are not stored, to the sum; times 0: of the array itself.
  // A sum of bits does not depend on the order, so equal numbers give equal sums.
  void chain_sum(int from, int times);
  void add(int to, int a, int b);
  // Operators of a block over rows of kRow floats, each as a pass of its own: to = from /
  // rms(from); x = x y; x = x / (1 + e^-x). And all of them with the residual in one pass: x +=
  // silu(norm(x) y).
  static constexpr int kRow = 4096;
  void norm(int to, int from);
  void multiply(int x, int y);
  void silu(int x);
  void norm_multiply_silu_add(int x, int y);

  void clear_sum();
  uint32_t sum();  // waits
  uint32_t sum_of(int array);
  // Of element `at`, by a copy to the host.
  float element(int array, size_t at);

 private:
  struct Data;
  float* array(int index) const;
  LabGpu& gpu_;
  size_t count_;
  int arrays_;
  std::unique_ptr<Data> data_;
};

}  // namespace ridge
