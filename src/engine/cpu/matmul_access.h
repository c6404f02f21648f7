// What matmul.cc and matmul_input.cc share: access to the private members of PackedMatrix and
// Input.
#pragma once

#include "engine/cpu/matmul.h"
#include "engine/cpu/matmul_kernels.h"

namespace ridge::cpu {

inline int64_t round_up(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

// Rounds up to an odd number of cache lines; returns elements.
inline int64_t odd_lines(int64_t elements, int64_t bytes) {
  const int64_t per_line = 64 / bytes;
  return ((elements + per_line - 1) / per_line | 1) * per_line;
}

struct Input::Room {
  std::shared_ptr<std::byte> memory;
  float* f32;
  uint16_t* bf16;
  InputBlock* blocks;
  int16_t* pairs;
  int64_t max_tokens;
  int64_t max_columns;
};

struct MatmulAccess {
  static const MatmulKernel& kernel(const PackedMatrix& w, int tokens) {
    const MatmulKernels& kernels = matmul_kernels();
    return w.invariant_ ? kernels.of(w.view_.storage) : kernels.of(w.view_.storage, tokens);
  }
  static WeightView weights(const PackedMatrix& w) {
    if (!w.packed_) return {w.view_.data, w.view_.row_stride, w.rows_, w.columns_};
    return {w.packed_.get(), w.group_bytes_, w.rows_, w.columns_, true};
  }
  static double group_cost(const PackedMatrix& w) {  // bytes
    return double(w.packed_ ? w.group_bytes_ : w.view_.row_stride * kGroup);
  }
  static int64_t bf16_stride(const Input& x) { return odd_lines(round_up(x.columns_, kPad), 2); }
  static uint16_t* bf16_row(const Input& x, int64_t token) {
    return x.room_->bf16 + token * bf16_stride(x);
  }
  static InputView input(const Input& x, int64_t first) {
    const Input::Room& room = *x.room_;
    InputView view;
    view.f32 = room.f32;
    view.f32_stride = odd_lines(round_up(x.columns_, kPad), 4);
    view.bf16 = room.bf16;
    view.bf16_stride = bf16_stride(x);
    view.blocks = room.blocks;
    view.blocks_stride = x.columns_ / kBlock | 1;
    view.pairs = room.pairs;
    view.pairs_stride = odd_lines(x.columns_, 2);
    view.f32 += first * view.f32_stride;
    view.bf16 += first * view.bf16_stride;
    view.blocks += first * view.blocks_stride;
    view.pairs += first * view.pairs_stride;
    return view;
  }
};

}  // namespace ridge::cpu
