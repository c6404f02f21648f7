// GEMMs of weights and activations on the CPU: y[t][r] = sum over c of w[r][c] x[t][c].
//
// Weights in f32, f16 and bf16 are read where they lie; block formats are repacked so that 16 rows
// stand side by side, one to a lane. Every y is summed in the same order whatever the number of
// tokens, rows and threads, so batches and chunks change nothing.
#pragma once

#include <memory>
#include <span>

#include "base/thread_team.h"
#include "engine/weights/architecture.h"
#include "engine/weights/weights.h"

namespace ridge::cpu {

// What the kernels of a matrix take as activations.
enum class InputKind : uint8_t {
  f32,
  bf16,  // where the CPU multiplies bf16 pairs itself and the weights are bf16
  int8,  // blocks of 32 with a scale and the sum of the integers: block formats
};

class PackedMatrix {
 public:
  PackedMatrix() = default;
  PackedMatrix(const Matrix& matrix, ThreadTeam& team);  // views `matrix`, or repacks it
  explicit operator bool() const { return rows_ > 0; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  InputKind input_kind() const { return input_kind_; }
  double repacked_bytes() const;              // 0: used where it lies
  std::span<const std::byte> memory() const;  // what the kernels stream

 private:
  friend struct MatmulAccess;
  int64_t rows_ = 0, columns_ = 0;
  InputKind input_kind_ = InputKind::f32;
  Matrix view_;
  std::shared_ptr<const std::byte> packed_;
  int layout_ = 0;
};

// Activations of a step, made ready once for all matrices that read them. Holds room for the
// largest step, so nothing is allocated later.
class Input {
 public:
  Input(int max_tokens, int64_t max_columns);
  ~Input();
  // x[t] starts at x + t * stride and must outlive the GEMMs. Converts to the kinds in use.
  void set(ThreadTeam& team, const float* x, int64_t stride, int tokens, int64_t columns,
           std::span<const InputKind> kinds);
  int tokens() const { return tokens_; }

 private:
  friend struct MatmulAccess;
  int tokens_ = 0;
  int64_t columns_ = 0, stride_ = 0;
  const float* x_ = nullptr;
  struct Room;
  std::unique_ptr<Room> room_;
};

// One GEMM; with `up`, the gated MLP's y = activation(w x) * (up x) in one pass.
struct Gemm {
  const PackedMatrix* w = nullptr;
  const Input* x = nullptr;
  float* y = nullptr;  // y[t][r] at y + t * stride + r
  int64_t stride = 0;
  const float* bias = nullptr;  // [rows], added
  bool accumulate = false;      // adds to what y holds: the residual
  const PackedMatrix* up = nullptr;
  Activation activation = Activation::silu;
};

// All GEMMs in one parallel region, their rows dealt to the threads in contiguous runs of equal
// bytes, so that each core streams.
void multiply(ThreadTeam& team, std::span<const Gemm> gemms);

// What `multiply` computes, per (storage, instruction set): for `ridge bench` and the tests.
std::string kernel_name(Storage storage);  // "AVX3_BF16 bf16 dot"

}  // namespace ridge::cpu
