// Shared memory of the decode kernel: the sizes that the host and the device agree on, and the
// pointers to its parts. decode_kernel.cuh draws the layout.
#pragma once

#include "engine/cuda/decode/decode.cuh"
#include "engine/cuda/device/pipeline.cuh"

namespace ridge::cuda {

// Warps by role. 8 + 1 + 3 warps are three per SM partition, with 168 registers per thread: nothing
// spills. 16 math warps dequantize faster, but attention spills and loses more.
constexpr int kMathWarps = 8;
constexpr int kEpilogueWarps = 3;  // one alone takes 1.3 us per block; an int4 block arrives in 0.9
constexpr int kThreads = (kMathWarps + 1 + kEpilogueWarps) * 32;

constexpr int kChunksPerStage = 32;  // 16 KB in bf16
constexpr int kMaxStages = 16;
// Copies of a stage in flight per SM. 3 x 16 KB x 132 SMs = 6.3 MB, 1.3 us at 4.7 TB/s: the latency
// of HBM under load. With 12, Llama-3-8B took 3.91 ms instead of 3.68: copies queue at the memory,
// SMs get unequal shares, and small reads between operators wait behind them.
// cp.async of the portable kernels, 2, 3 and 4 copies: bf16 3.99, 3.61 and 3.55 ms, int4 1.33, 1.34
// and 1.36.
constexpr int copies_in_flight(WeightFormat format, KernelSet kernels) {
  if (kernels == KernelSet::hopper) return 3;
  return format == WeightFormat::bf16 ? 4 : has_group_scale(format) ? 2 : 3;
}
// Partial sums of a 16-row block: one buffer for each epilogue warp.
constexpr int kPartialBuffers = kEpilogueWarps;
// Blocks whose accumulators stay in registers while slices of K pass through shared memory.
constexpr int kBlocksHeld = 2;

__host__ __device__ constexpr int stage_bytes(WeightFormat format) {
  return kChunksPerStage * format_info(format).chunk_bytes;
}

// The type in which activations are multiplied, and to which the weights are converted. Activations
// arrive as bf16. For f16 and int8x2 each group of 64 columns of a row is scaled by its own power
// of two, which brings the largest magnitude just below 2^15 or 2^14. Every SM converts all
// activations of all rows, so a conversion must save more in the weights than it costs.
// clang-format off
//   bf16    bf16 and fp8 weights; int8 and int4 with 2 rows or more. fp8: times 2^60
//           (activation_scale)
//   f16     nf4 with 2 rows or more: levels from a table. Exact down to 2^-28 of the group's largest
//   int8x2  int8, int4 and nf4 with one row: 16-bit integers as two signed bytes, low and high, each
//           in its own MMA column. Exact down to 2^-6 of the group's largest, and below that with an
//           error of at most 2^-14 of it: 2^-11 over a group, where rounding to bf16 errs by up to
//           2^-8.
// clang-format on
// So a row of int8, int4 and nf4 has other bits alone than in a batch, and the same in every batch;
// rows of the other formats have the same bits everywhere.
// For f16 and int8x2 any value that bf16 holds is in range.
enum class OperandType { bf16, f16, int8x2 };
__host__ __device__ constexpr OperandType operand_type(WeightFormat format, int rows) {
  const bool integer = format == WeightFormat::int8 || has_group_scale(format);
  if (integer && rows == 1) return OperandType::int8x2;
  return format == WeightFormat::nf4 ? OperandType::f16 : OperandType::bf16;
}
// What activations are multiplied with when they are written, and row scales too: fp8 weights are
// 2^-120 times their value as bf16 (dequantize_unscaled). Activations of fp8 are in range up to
// 2^67.
__host__ __device__ constexpr float activation_scale(WeightFormat format) {
  return format == WeightFormat::fp8 ? 0x1p60f : 1.0f;
}
constexpr int kGroupColumns = 64;
constexpr int kBytePlanes = 2;      // int8x2: low and high bytes
constexpr int kMaxColumns = 32768;  // rows x columns of activations in shared memory

__host__ __device__ constexpr int activation_chunk_bytes(WeightFormat format, int rows) {
  return format_info(format).columns * rows * 2;
}
// Columns of the MMA. int8x2: the low bytes of all rows, then the high bytes, so that the two
// columns of a lane belong to two rows. A single row uses every second column.
__host__ __device__ constexpr int columns_per_plane(int rows) { return rows < 2 ? 2 : rows; }
__host__ __device__ constexpr int mma_tiles(WeightFormat format, int rows) {
  const bool bytes = operand_type(format, rows) == OperandType::int8x2;
  return ((bytes ? kBytePlanes * columns_per_plane(rows) : rows) + 7) / 8;
}

// Reverts the scaling of a group of activations: sum x factor. int4: `offset` is added to the
// integer sum first, -8 times the sum of the group's activations, since w = d (q - 8).
struct GroupScale {
  float factor;
  int offset;
};
__host__ __device__ constexpr int group_scale_bytes(WeightFormat format, int rows,
                                                    int activation_bytes) {
  if (operand_type(format, rows) == OperandType::bf16) return 0;
  const int columns = (operand_type(format, rows) == OperandType::int8x2 ? kBytePlanes : 1) * rows;
  const int groups = activation_bytes / (kGroupColumns * rows * 2) + 1;
  return groups * columns * int(sizeof(GroupScale)) / 128 * 128 + 128;
}

// nf4 with 2 rows or more: the two f16 levels of each byte value, one copy per lane, so that lanes
// never conflict at a bank.
constexpr int kLevelBytes = 256 * 32 * 4;
__host__ __device__ constexpr int level_bytes(WeightFormat format, int rows) {
  return operand_type(format, rows) == OperandType::f16 ? kLevelBytes : 0;
}

__host__ __device__ constexpr size_t partial_bytes(int columns) {
  return size_t{kPartialBuffers} * kMathWarps * kBlockRows * columns * 4;
}

// Attention keeps the softmax states of its warps where GEMMs have activations: of one split at
// least.
__host__ __device__ constexpr int attention_state_bytes(const DecodeArgs& args) {
  return args.heads / args.kv_heads * (args.head_dim + 8) * 4 * kMathWarps;
}

// Cosines and sines, and the weights of the norms of queries and keys where the model has them.
__host__ __device__ constexpr int rope_bytes(const DecodeArgs& args, int rows) {
  return args.ropes * rows * args.head_dim / 2 * 8;
}
__host__ __device__ constexpr int head_norm_bytes(const DecodeArgs& args) {
  return args.q_norm ? 2 * args.head_dim * 4 : 0;
}

// Adjacent splits of a row and KV head, which one SM computes (decode_schedule.cuh).
struct SplitRun {
  int row, kv_head;
  int first_split, end_split;  // first_split >= end_split: no work
  int splits;                  // of the row
};

// The part of fixed size: barriers and small tables.
struct DecodeControl {
  uint64_t full[kMaxStages], empty[kMaxStages];
  uint64_t partials_full[kPartialBuffers], partials_empty[kPartialBuffers];
  uint64_t attention_done;
  unsigned ops_completed;  // operators of this launch that all SMs have completed
  SplitRun run;            // attention: this SM's current item
  float norm_scale[kEpilogueWarps][kMaxRows];  // of the norm before this operator
  // gemma: of the norm after the last block, which completes the residual.
  float added_scale[kEpilogueWarps][kMaxRows];
  int token[kMaxRows];
  RowContext rows[kMaxRows];
  int page_number[32];      // of the pages that the producer's lanes load next
  int expert[kMaxChoices];  // the producer's
  float choice_sums[2][kMaxChoices][kBlockRows];  // the epilogue's, of a block's choices; in turn
};

#ifdef __CUDA_ARCH__

struct DecodeShared {
  DecodeControl& control;
  uint8_t* ring;             // [stage][stage_bytes]: weights or KV pages
  uint8_t* activations;      // of the current operator; attention: softmax states of the warps
  GroupScale* group_scales;  // [group][column]
  uint32_t* levels;          // nf4, 2 rows or more: [byte][lane]
  float* partials;           // [kPartialBuffers][warp][column][16]
  float2* rope;              // [row][head_dim / 2]: cos, sin
  float* head_norms;         // [2][head_dim]: weights of the norms of queries and keys
};

#endif

}  // namespace ridge::cuda
