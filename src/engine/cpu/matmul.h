// GEMMs of weights and activations on the CPU: y[t][r] = sum over c of w[r][c] x[t][c].
//
// Weights in f32, f16, bf16 and fp8 are read in place, except bf16 on a CPU with AMX. That and the
// block formats are repacked so that 16 rows are side by side, one per lane. Every y is summed in
// the same order for any number of tokens, rows and threads, so batching and chunking change no
// bit. The exception are block formats on a CPU with AMX: from 24 tokens on they are multiplied as
// bf16 in tiles, which rounds otherwise than the integer dot products of fewer tokens. An invariant
// matrix never is.
#pragma once

#include <memory>
#include <span>

#include "base/thread_team.h"
#include "engine/weights/weights.h"
#include "model/architecture.h"

namespace ridge::cpu {

// Activation types that the kernels of a matrix read.
enum class InputKind : uint8_t {
  f32,
  bf16,  // bf16 and fp8 weights on a CPU with bf16 dot products; block formats in tiles
  int8,  // block formats: blocks of 32 with a scale and the sum of the integers
};

// Bytes of 16 rows in the layout that this CPU's kernels read. 0: they read the rows in place.
int64_t packed_group_bytes(Storage storage, int64_t columns);

class PackedMatrix {
 public:
  PackedMatrix() = default;
  // A view of `matrix`, or a repacked copy. Invariant: the bits of a sum do not depend
  // on the number of tokens.
  PackedMatrix(const Matrix& matrix, ThreadTeam& team, bool invariant = false);
  explicit operator bool() const { return rows_ > 0; }
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  InputKind input_kind(int tokens) const;     // of a GEMM of so many
  double repacked_bytes() const;              // 0: read in place
  std::span<const std::byte> memory() const;  // the bytes that the kernels stream

 private:
  friend struct MatmulAccess;
  int64_t rows_ = 0, columns_ = 0;
  bool invariant_ = false;
  Matrix view_;
  std::shared_ptr<const std::byte> packed_;
  int64_t group_bytes_ = 0;  // of packed_, 16 rows
};

// x / rms(x) * w, applied to activations as they are converted.
struct InputNorm {
  const float* w = nullptr;
  float eps = 0;
};

// Activations of a step, converted once for all matrices that read them. Allocates for the largest
// step, so nothing is allocated later.
class Input {
 public:
  Input(int64_t max_tokens, int64_t max_columns);
  ~Input();
  // x[t] starts at x + t * stride and must outlive the GEMMs. Converts to the types in use.
  void set(ThreadTeam& team, const float* x, int64_t stride, int tokens, int64_t columns,
           std::span<const InputKind> kinds, const InputNorm& norm = {}) {
    set_parts(team, x, stride, tokens, columns, 0, 1, kinds, norm);
  }
  // Parts of `columns` of every x[t], `step` apart, each the input of GEMMs of its own: token t of
  // part p becomes token p tokens + t (Gemm::first). The Input has room for tokens * parts of them.
  void set_parts(ThreadTeam& team, const float* x, int64_t stride, int tokens, int64_t columns,
                 int64_t step, int parts, std::span<const InputKind> kinds,
                 const InputNorm& norm = {});
  // For a GEMM that writes its results here as bf16 (Gemm::to).
  void open(int tokens, int64_t columns);
  int tokens() const { return tokens_; }

 private:
  friend struct MatmulAccess;
  int tokens_ = 0;
  int64_t columns_ = 0, stride_ = 0;
  const float* x_ = nullptr;
  struct Room;
  std::unique_ptr<Room> room_;
};

// One GEMM; with `up`, the gated MLP's y = activation(w x + bias) * (up x + up_bias) in one pass.
struct Gemm {
  const PackedMatrix* w = nullptr;
  const Input* x = nullptr;
  int first = 0, tokens = 0;  // of x; 0 tokens: as many as were set
  float* y = nullptr;         // y[t][r] at y + t * stride + r, for token first + t of x
  int64_t stride = 0;
  const float* bias = nullptr;  // [rows], added
  bool accumulate = false;      // adds to y (the residual) instead of overwriting it
  Input* to = nullptr;          // overwritten instead of y: the input of the next GEMMs in bf16
  const PackedMatrix* up = nullptr;
  const float* up_bias = nullptr;  // [rows]
  Activation activation = Activation::silu;
};

// Runs up to 16 GEMMs in one parallel region, more in several. The rows are divided among the
// threads in contiguous ranges of equal bytes, so that each core reads one stream.
void multiply(ThreadTeam& team, std::span<const Gemm> gemms);

// Name of the kernel that `multiply` runs for a storage: for `ridge bench` and the tests.
std::string kernel_name(Storage storage, bool invariant = false);  // "AVX3_BF16 bf16 dot"

}  // namespace ridge::cpu
