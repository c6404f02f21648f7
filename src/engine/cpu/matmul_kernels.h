// The contract between the GEMM driver (matmul.cc) and the kernels of each instruction
// set (matmul_plain.cc, matmul_blocks.cc).
//
// All kernels work on groups of 16 rows and leave raw sums as sums[token][16]. The order in which
// a sum is made is fixed by the columns, the storage and the instruction set:
//   plain  per chunk of columns, lane l of one vector sums columns l, l + lanes, ...; the lanes are
//          added up in a fixed tree, and the chunks in order;
//   block  per block of 32 (q6: 16), an exact integer, scaled and added in f32, blocks in order.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/cpu/matmul.h"
#include "engine/cpu/pack.h"

namespace ridge::cpu {

// A block of 32 activations in int8, one cache line. The sums are what the unsigned weights of a
// layout are off by: an accumulator starts at minus its offset times the sum of the integers.
struct alignas(64) InputBlock {
  int8_t q[kBlock];
  float scale;
  float scaled_sum;     // scale x sum: multiplies a row's min
  int32_t start_8;      // -8 x sum (q4)
  int32_t start_16;     // -16 x sum (q5)
  int32_t start_32[2];  // -32 x sum of each half (q6)
  int32_t start_128;    // -128 x sum (q8)
};
static_assert(sizeof(InputBlock) == 64);

// Activations as the kernels read them; token t starts at t strides (in elements). Strides are an
// odd number of cache lines, so that tokens do not meet in one set of the L1.
struct InputView {
  const float* f32 = nullptr;  // columns padded with zeros to a multiple of kPad
  int64_t f32_stride = 0;
  const uint16_t* bf16 = nullptr;  // the same
  int64_t bf16_stride = 0;
  const InputBlock* blocks = nullptr;
  int64_t blocks_stride = 0;
  const int16_t* pairs = nullptr;  // the integers again, as columns 0, 2, 1, 3 of each four
  int64_t pairs_stride = 0;
};
inline constexpr int64_t kPad = 32;  // the widest vector: 32 of bf16

struct WeightView {
  const std::byte* data = nullptr;
  int64_t stride = 0;  // bytes of a row (plain) or of a group (blocks)
  int64_t rows = 0, columns = 0;
};

// Tokens of a block: weights are unpacked once for all of them, while their activations of one
// chunk of columns stay in 270 KB of the L2: 132 of f32 or bf16 (2 KB each), 264 of int8 (1 KB; 2
// KB with pairs). Multiples of 12: tiles of 2, 3, 4 and 6 tokens fill them.
inline constexpr int kTokenBlock = 264;         // the most
inline constexpr int kPanelBytes = 20 << 10;    // of a group of blocks, unpacked
inline constexpr int kScratchBytes = 40 << 10;  // of any panel: at most 16 x 528 floats, 2 groups

struct MatmulKernel {
  const char* name = "";
  InputKind input = InputKind::f32;
  int chunk = 0;         // columns of a panel
  int panel_groups = 1;  // that `multiply` likes to take at once
  int token_block = kTokenBlock / 2;
  int stream_tokens = 8;  // up to here `stream` is the faster
  // sums = w x, weights used as they stream: for few tokens.
  void (*stream)(const WeightView& w, int64_t group, const InputView& x, int token, int tokens,
                 float* sums) = nullptr;
  // Weights of columns [column, column + chunk) as `multiply` wants them. Null: as they are packed.
  void (*unpack)(const WeightView& w, int64_t group, int64_t column, std::byte* panel) = nullptr;
  // sums += panel x for 1 .. panel_groups groups, panel_stride bytes apart; group g's sums lie at
  // sums + g kTokenBlock 16. `columns`: of the matrix. Without unpack the panels are the groups.
  void (*multiply)(const std::byte* panel, int64_t panel_stride, int groups, int64_t column,
                   int64_t columns, const InputView& x, int token, int tokens,
                   float* sums) = nullptr;
};

// The epilogue of a GEMM.
struct Epilogue {
  float* y = nullptr;  // of the first row and token
  int64_t stride = 0;
  int rows = 0, tokens = 0;
  const float* bias = nullptr;
  bool accumulate = false;
  const float* sums = nullptr;  // [group][token][16]
  const float* up = nullptr;    // the same of the gated product's other half
  int64_t group_stride = 0;     // floats between two groups' sums
  Activation activation = Activation::silu;
};

struct InputKernels {
  // Each pads with zeros to `padded` columns.
  void (*copy)(const float* x, int64_t columns, int64_t padded, float* to) = nullptr;
  void (*round)(const float* x, int64_t columns, int64_t padded, uint16_t* to) = nullptr;
  void (*quantize)(const float* x, int64_t columns, InputBlock* blocks, int16_t* pairs) = nullptr;
};

struct PlainKernels {
  const char* isa = "";
  MatmulKernel f32, f16, bf16;
  InputKernels input;
  void (*finish)(const Epilogue& epilogue) = nullptr;
};
struct BlockKernels {
  const char* isa = "";
  MatmulKernel of[kLayoutCount];  // by Layout; plain unused
  bool pairs = false;             // some kernel reads InputView::pairs
};

struct MatmulKernels {
  PlainKernels plain;
  BlockKernels blocks;
  const char* isa = "";  // "AVX3_BF16"
  const MatmulKernel& of(Storage storage) const;
};

// Those this CPU has, best first; of every file once. Never empty.
std::vector<PlainKernels> plain_kernels();
std::vector<BlockKernels> block_kernels();
const std::vector<MatmulKernels>& all_matmul_kernels();

// The set in use: the best, until tests and benchmarks choose another (index into the above). A
// PackedMatrix and an Input belong to the set they were made with.
const MatmulKernels& matmul_kernels();
void choose_matmul_kernels(int index);

}  // namespace ridge::cpu
