// The contract between the GEMM driver (matmul.cc) and the kernels of each instruction
// set (matmul_plain.cc, matmul_blocks.cc, matmul_amx.h).
//
// All kernels work on groups of 16 rows and leave raw sums as sums[token][16]. The order of a sum
// is fixed by the columns, the storage and the instruction set:
//   plain  per chunk of columns, lane l of one vector sums columns l, l + lanes, ...; the lanes are
//          added up in a fixed tree, and the chunks in order;
//   fp8    the same, with one vector for each block of 128 columns, scaled and added to the
//   chunk's; tiles  per 32 columns, the sums of the even and of the odd ones, added to the sum
//   (AMX); block  per block of 32 (q6: 16), an exact integer, scaled and added in f32, blocks in
//   order.
// Many tokens of a block format go through tiles where the CPU has them (MatmulKernels::of): other
// roundings than those of few tokens, unless the matrix is to be invariant.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/cpu/matmul.h"
#include "engine/cpu/pack.h"

namespace ridge::cpu {

// A block of 32 activations in int8, one cache line. Weights are stored unsigned, with an offset
// per layout. An accumulator starts at minus that offset times the sum of the integers, which
// corrects for it.
struct alignas(64) InputBlock {
  int8_t q[kBlock];
  float scale;
  float scaled_sum;     // scale x sum: multiplied by a row's min
  int32_t start_8;      // -8 x sum (q4)
  int32_t start_16;     // -16 x sum (q5)
  int32_t start_32[2];  // -32 x sum of each half (q6)
  int32_t start_128;    // -128 x sum (q8)
};
static_assert(sizeof(InputBlock) == 64);

// Activations as the kernels read them; token t starts at t strides (in elements). Strides are an
// odd number of cache lines, so that tokens do not map to the same set of the L1.
struct InputView {
  const float* f32 = nullptr;  // columns padded with zeros to a multiple of kPad
  int64_t f32_stride = 0;
  const uint16_t* bf16 = nullptr;  // padded like f32
  int64_t bf16_stride = 0;
  const InputBlock* blocks = nullptr;
  int64_t blocks_stride = 0;
  const int16_t* pairs = nullptr;  // the same integers, as columns 0, 2, 1, 3 of each four
  int64_t pairs_stride = 0;
};
inline constexpr int64_t kPad = 32;  // the widest vector: 32 elements of bf16

struct WeightView {
  const std::byte* data = nullptr;
  int64_t stride = 0;  // bytes of a row (plain) or of a group (packed)
  int64_t rows = 0, columns = 0;
  bool packed = false;  // as pack.h has it
};

// Tokens per block: weights are unpacked once for all of them, while their activations of one chunk
// of columns stay in 270 KB of the L2: 132 tokens of f32 or bf16 (2 KB each), 264 of int8 (1 KB
// each; 2 KB with pairs). Multiples of 12, so that tiles of 2, 3, 4 and 6 tokens divide them.
inline constexpr int kTokenBlock = 264;       // the maximum
inline constexpr int kStreamSlice = 12;       // tokens of a call of `stream`, at most
inline constexpr int kPanelBytes = 20 << 10;  // one unpacked group of a block format
inline constexpr int kScratchBytes =
    40 << 10;  // largest panel: 16 x 528 floats and fp8's scales, 2 groups

// Lines of memory in equal pieces, a stride apart: prefetched into the L2 a few at a time between
// the multiplications.
class Lines {
 public:
  Lines() = default;
  Lines(const void* from, int64_t pieces, int64_t piece_bytes, int64_t stride)
      : at_(static_cast<const std::byte*>(from)),
        piece_lines_((piece_bytes + kLine - 1) / kLine),
        skip_(stride - piece_lines_ * kLine),
        left_in_piece_(piece_lines_),
        left_(pieces * piece_lines_) {}
  int64_t left() const { return left_; }
  void prefetch(int64_t count) {
    for (count = std::min(count, left_), left_ -= count; count > 0; --count) {
      __builtin_prefetch(at_, 0, 2);
      at_ += kLine;
      if (--left_in_piece_ == 0) at_ += skip_, left_in_piece_ = piece_lines_;
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  const std::byte* at_ = nullptr;
  int64_t piece_lines_ = 0, skip_ = 0, left_in_piece_ = 0, left_ = 0;
};

// What unpack(w, group, column) will read for `groups` groups. Without prefetches, unpacking would
// stall on memory.
inline Lines panel_lines(const WeightView& w, int64_t group, int64_t groups, int64_t column,
                         int64_t chunk) {
  const int64_t rows = w.packed ? groups : std::min(groups * kGroup, w.rows - group * kGroup);
  const int64_t columns = std::min(chunk, w.columns - column);
  const std::byte* const from =
      w.data + (w.packed ? group : group * kGroup) * w.stride + w.stride * column / w.columns;
  return {from, rows, w.stride * columns / w.columns + 64, w.stride};
}

// Prefetched during a multiplication, evenly.
struct Ahead {
  Lines panel;              // the next panel
  int64_t panel_lines = 0;  // of it
  Lines results;            // of y, all
};

using StreamGroup = void (*)(const WeightView& w, int64_t group, const InputView& x, int token,
                             int tokens, float* sums);
using UnpackPanel = void (*)(const WeightView& w, int64_t group, int64_t column, std::byte* panel);

struct MatmulKernel {
  const char* name = "";
  InputKind input = InputKind::f32;
  int chunk = 0;         // columns of a panel
  int panel_groups = 1;  // groups that `multiply` processes together
  int token_block = kTokenBlock / 2;
  int token_tile = 12;        // blocks of tokens are multiples of it
  bool tokens_outer = false;  // all rows for one block of tokens, then for the next
  bool starts_sums = false;  // `multiply` overwrites the sums at column 0 instead of adding to them
  int stream_tokens = 8;     // largest token count for which `stream` is faster
  // A thread calls `begin` before it calls the others, and `end` when it is done. Null: nothing.
  void (*begin)() = nullptr;
  void (*end)() = nullptr;
  // sums = w x, for few tokens. Weights are used directly as they are loaded.
  StreamGroup stream = nullptr;
  // Plain weights: the layout in which the kernel reads a group of 16 rows. Null: the rows in
  // place.
  int64_t (*packed_bytes)(int64_t columns) = nullptr;
  void (*pack)(const Matrix& matrix, int64_t group, std::byte* to) = nullptr;
  // Unpacks the weights of columns [column, column + chunk) for `multiply`. Null: `multiply` reads
  // the packed weights, from the start of the group or, where a column has `packed_column_bytes`,
  // from `column`.
  UnpackPanel unpack = nullptr;
  int64_t packed_column_bytes = 0;
  // sums += panel x for 1 .. panel_groups groups, panel_stride bytes apart; group g's sums start at
  // sums + g kTokenBlock 16. `columns` is the matrix's column count. Without unpack the panels are
  // the packed groups.
  void (*multiply)(const std::byte* panel, int64_t panel_stride, int groups, int64_t column,
                   int64_t columns, const InputView& x, int token, int tokens,
                   float* sums) = nullptr;
  // The same, and prefetches meanwhile. Null: the driver prefetches before.
  void (*multiply_ahead)(const std::byte* panel, int64_t panel_stride, int groups, int64_t column,
                         int64_t columns, const InputView& x, int token, int tokens, float* sums,
                         Ahead& ahead) = nullptr;
};

// The epilogue of a GEMM.
struct Epilogue {
  float* y = nullptr;        // at the first row and token
  uint16_t* bf16 = nullptr;  // instead of y
  int64_t stride = 0;        // of either
  bool streams = false;      // past the caches, where a whole line of y is aligned
  int rows = 0, tokens = 0;
  const float* bias = nullptr;
  bool accumulate = false;
  const float* sums = nullptr;  // [group][token][16]
  const float* up = nullptr;    // the same for the up projection of a gated MLP
  const float* up_bias = nullptr;
  int64_t group_stride = 0;  // floats between the sums of two groups
  Activation activation = Activation::silu;
};

// Two whole groups without biases, of no MLP or of SiLU's to bf16.
inline bool is_plain_pair(const Epilogue& e) {
  return e.rows == 2 * kGroup && e.bias == nullptr && e.up_bias == nullptr &&
         (e.up == nullptr || (e.bf16 != nullptr && e.activation == Activation::silu));
}

struct InputKernels {
  // Each conversion pads with zeros to `padded` columns.
  void (*copy)(const float* x, int64_t columns, int64_t padded, float* to) = nullptr;
  void (*round)(const float* x, int64_t columns, int64_t padded, uint16_t* to) = nullptr;
  void (*quantize)(const float* x, int64_t columns, InputBlock* blocks, int16_t* pairs) = nullptr;
};

struct PlainKernels {
  const char* isa = "";
  MatmulKernel f32, f16, bf16, fp8;
  InputKernels input;
  void (*finish)(const Epilogue& epilogue) = nullptr;
  // The same of what is_plain_pair(). Null: finish().
  void (*finish_pair)(const Epilogue& epilogue) = nullptr;
};
struct BlockKernels {
  const char* isa = "";
  MatmulKernel of[kLayoutCount];                // by Layout; the entry of plain is unused
  StreamGroup stream_ahead[kLayoutCount] = {};  // the same sums with prefetches, for some CPUs
  UnpackPanel bf16[kLayoutCount] = {};  // to pairs of bf16, as tiles read them (matmul_amx.h)
  bool pairs = false;                   // some kernel reads InputView::pairs
};

// Sets PlainKernels::finish_pair to that of finish_x86.cc, for CPUs with AVX-512 BF16.
void use_finish_pair(PlainKernels& kernels);
// Sets BlockKernels::bf16 to those of unpack_bf16_x86.cc, for CPUs with AVX-512 VBMI and BF16.
void use_vbmi_unpack(BlockKernels& kernels);

// bf16 by AMX tiles (matmul_amx.h); only where amx_is_usable().
MatmulKernel amx_kernel();

// From so many tokens on tiles are faster than integer dot products, although they need the weights
// unpacked to bf16 (by prototypes on an Emerald Rapids).
inline constexpr int kTiledTokens = 24;

struct MatmulKernels {
  PlainKernels plain;
  BlockKernels blocks;
  const char* isa = "";              // "AVX3_BF16"
  MatmulKernel tiled[kLayoutCount];  // block formats by tiles; without any: no `multiply`
  // For any number of tokens: their sums are the same bits.
  const MatmulKernel& of(Storage storage) const;
  // The fastest one.
  const MatmulKernel& of(Storage storage, int tokens) const;
};

// The same with BlockKernels::stream_ahead.
MatmulKernels with_prefetches(MatmulKernels kernels);
// The same with tiles, whose kernel for bf16 is given, for block formats too.
MatmulKernels with_tiles(MatmulKernels kernels, const MatmulKernel& tiles);

// The kernels that this CPU supports, best first. Each list has every compiled target once and is
// never empty.
std::vector<PlainKernels> plain_kernels();
std::vector<BlockKernels> block_kernels();
const std::vector<MatmulKernels>& all_matmul_kernels();

// The kernels in use: the best ones, unless a test or benchmark chooses others, which must outlive
// their use. A PackedMatrix and an Input may only be used with the kernels they were made with.
const MatmulKernels& matmul_kernels();
void choose_matmul_kernels(const MatmulKernels& kernels);

}  // namespace ridge::cpu
