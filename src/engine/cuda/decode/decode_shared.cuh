// What the roles of the decode kernel share: the order of work, and this SM's shared memory.
#pragma once

#include "base/ptx/execution.cuh"
#include "base/ptx/memory_order.cuh"
#include "base/ptx/mma.cuh"
#include "engine/cuda/decode/decode.cuh"
#include "engine/cuda/layout/dequantize.cuh"
#include "engine/cuda/ptx/grid_barrier.cuh"
#include "engine/cuda/ptx/pipeline.cuh"

namespace ridge::cuda {

// Warps that multiply. With four more an SM's partition has three, with 168 registers each: nothing
// is spilled. 16 would unpack faster, but spill in attention, and lose more there.
constexpr int kConsumers = 8;
constexpr int kFinishers = 3;  // one alone needs 1.3 us a block of rows, which int4 brings in 0.9
constexpr int kThreads = (kConsumers + 1 + kFinishers) * 32;
constexpr int kChunksPerStage = 32;  // 16 KB in bf16
// Copies under way at a time. 48 KB an SM are 6.3 MB in all, 1.3 us at 4.7 TB/s: what HBM's latency
// under load needs. With 12 instead of 3, Llama-3-8B took 3.91 ms instead of 3.68: they queue at
// the memory, SMs get unequal shares, and small reads between operators wait behind them.
constexpr int kInFlight = 3;
// While the ring is full, which it is where SMs do attention, stages to come are asked into L2, so
// that HBM does not idle: so many at most (32 MB in all, of 50), one in the time HBM needs for it.
constexpr int kAhead = 14;
constexpr unsigned kStageClocks = 850;
constexpr int kMaxSlots = 16;
constexpr int kSums = kFinishers;  // buffers of partial results, one for each finisher
// Blocks whose sums stay in registers while one piece of the activations after the other passes.
constexpr int kGroup = 2;
// Attention: a split has at least this many pages, or joining the splits costs more than they save.
constexpr int kLeastPages = 16;

__host__ __device__ constexpr int stage_bytes(WeightFormat format) {
  return kChunksPerStage * format_info(format).chunk_bytes;
}

// What activations are while they are multiplied. They come as bf16, and bf16 weights take them so.
// fp8 is soonest made into f16, int8 and int4 into bytes. So activations of a token are scaled, by
// a power of two for each 64 columns (a group) that brings the largest of them close below 2^15 or
// 2^14, and become
//   f16     exact from there down to 2^-28 of the largest;
//   digits  integers as two signed bytes, each a column of its own: exact down to 2^-6 of the
//           largest, below that with an error of up to 2^-14 of it: for a group together 2^-11,
//           where rounding to bf16 errs by up to 2^-8.
// Whatever their size, as long as bf16 holds them.
enum class Operand { bf16, f16, digits };
__host__ __device__ constexpr Operand operand_of(WeightFormat format) {
  return format == WeightFormat::bf16                                   ? Operand::bf16
         : format == WeightFormat::int8 || format == WeightFormat::int4 ? Operand::digits
                                                                        : Operand::f16;
}
constexpr int kGroupColumns = 64;
constexpr int kDigits = 2;
constexpr int kMostColumns = 32768;  // times rows: of activations in shared memory
// Bytes of a chunk's activations in shared memory.
__host__ __device__ constexpr int x_chunk_bytes(WeightFormat format, int rows) {
  return format_info(format).columns * rows * 2;
}
// The MMA's columns. Digits: of all tokens the lower, then the higher, so that a lane's two columns
// are two tokens; a token alone has every second column.
__host__ __device__ constexpr int columns_of_digit(int rows) { return rows < 2 ? 2 : rows; }
__host__ __device__ constexpr int tiles_of_rows(WeightFormat format, int rows) {
  return ((operand_of(format) == Operand::digits ? kDigits * columns_of_digit(rows) : rows) + 7) /
         8;
}
// What a group's sums of a column are multiplied with, and int4: what is added before.
struct Undo {
  float factor;
  int add;
};
__host__ __device__ constexpr int undo_bytes(WeightFormat format, int rows, int x_bytes) {
  if (operand_of(format) == Operand::bf16) return 0;
  const int columns = (operand_of(format) == Operand::digits ? kDigits : 1) * rows;
  return (x_bytes / (kGroupColumns * rows * 2) + 1) * columns * int(sizeof(Undo)) / 128 * 128 + 128;
}

// Shared memory: fixed part, then the ring, the activations, levels, the partial sums, the
// rotations.
struct Fixed {
  uint64_t full[kMaxSlots], empty[kMaxSlots];  // of the ring
  uint64_t sum_full[kSums], sum_free[kSums];   // of the partial sums
  uint64_t attention_done;
  unsigned met;                       // operators of this launch that all SMs have finished
  int last;                           // attention: whether this SM joins the splits
  float scale[kFinishers][kMaxRows];  // of the norm before this operator
  int token[kMaxRows];
  RowContext rows[kMaxRows];
  int page[32];  // numbers of the pages that the fetching warp's lanes ask for next
  float most[kConsumers][8], sum[kConsumers][8];  // attention: of each warp and head
};

// nf4: the two levels that each byte names, in f16, once for each lane: whatever the bytes, no two
// lanes meet at a bank.
constexpr int kLevelBytes = 256 * 32 * 4;
__host__ __device__ constexpr int level_bytes(WeightFormat format) {
  return format == WeightFormat::nf4 ? kLevelBytes : 0;
}

__host__ __device__ constexpr size_t sum_bytes(int rows) {
  return size_t{kSums} * kConsumers * kBlockRows * rows * 4;
}

#ifdef RIDGE_HOPPER

struct Shared {
  Fixed& fixed;
  uint8_t* ring;
  uint8_t* x;
  Undo* undo;        // [group][column]
  uint32_t* levels;  // nf4: [byte][lane]
  float* sums;       // [kSums][warp][row][16]
  float2* rotation;  // [row][head_dim / 2]: cos, sin
};

// Until all SMs have finished so many operators of this launch, as the finishing warp saw it. A
// plain number and not an mbarrier: where an SM has no part in operators, it may be passed by two.
__device__ inline void wait_met(const Fixed& fixed, unsigned operators, int lane) {
  if (lane == 0) {
    while (*reinterpret_cast<const volatile unsigned*>(&fixed.met) < operators) {
    }
  }
  __syncwarp();
}

enum class Kind { embed, qkv, attention, out, gate_up, down, head };

struct Op {
  Kind kind;
  int index;  // in the launch
  int step, layer;
  int items;   // in all
  int first;   // this SM's: first, first + SMs, ...
  int splits;  // attention: of the row that has most
};

// Depends on the row's own pages alone, or its result would depend on the batch.
__device__ inline int splits_of(const DecodeArgs& args, int pages) {
  return max(1, min((pages + kLeastPages - 1) / kLeastPages, args.max_splits));
}

// Every role walks the same list.
template <typename Function>
__device__ inline void for_each_op(const DecodeArgs& args, const Function& function) {
  const int grid = gridDim.x;
  int base = 0, index = 0;
  for (int step = 0; step < args.steps; ++step) {
    const int ops = ops_per_step(args.layers);
    for (int o = 0; o < ops; ++o, ++index) {
      Op op;
      op.index = index;
      op.step = step;
      op.layer = (o - 1) / 5;
      op.kind = o == 0         ? Kind::embed
                : o == ops - 1 ? Kind::head
                               : static_cast<Kind>((o - 1) % 5 + 1);
      op.splits = splits_of(args, (args.max_position + step) / kPageTokens + 1);
      switch (op.kind) {
        case Kind::embed:
          op.items = args.hidden / kBlockRows;
          break;
        case Kind::qkv:
          op.items = args.qkv.blocks;
          break;
        case Kind::attention:
          op.items = args.row_count * args.kv_heads * op.splits;
          break;
        case Kind::out:
          op.items = args.out.blocks;
          break;
        case Kind::gate_up:
          op.items = args.gate_up.blocks;
          break;
        case Kind::down:
          op.items = args.down.blocks;
          break;
        case Kind::head:
          op.items = args.head.blocks;
          break;
      }
      op.first = static_cast<int>(blockIdx.x) - base;
      if (op.first < 0) op.first += grid;
      function(op);
      base += op.kind == Kind::attention ? op.items % grid : args.block_remainder[int(op.kind)];
      if (base >= grid) base -= grid;
    }
  }
}

__device__ inline const Tiles& tiles_of(const DecodeArgs& args, Kind kind) {
  return kind == Kind::qkv       ? args.qkv
         : kind == Kind::out     ? args.out
         : kind == Kind::gate_up ? args.gate_up
         : kind == Kind::down    ? args.down
                                 : args.head;
}

// Activations that do not fit are taken in pieces of this many chunks.
template <WeightFormat kFormat, int kRows>
__device__ inline int piece_chunks(const DecodeArgs& args, int chunks) {
  constexpr int kChunkBytes = x_chunk_bytes(kFormat, kRows);
  if (chunks * kChunkBytes <= args.activation_bytes) return chunks;
  return args.activation_bytes / kChunkBytes / kChunksPerStage * kChunksPerStage;
}

// One attention item: a row, a KV head, and a span of the pages that hold what it sees.
struct Span {
  int row, kv_head, split, splits;  // split >= splits: nothing to do
  int position, low;                // the row's own token, and the first it sees
  int first_page, page_count;       // of the sequence
  bool own;                         // the latest page is the one of this step's tokens
};

__device__ inline Span span_of(const DecodeArgs& args, const RowContext* rows, const Op& op,
                               int item) {
  Span span;
  span.split = item % op.splits;
  const int pair = item / op.splits;
  span.kv_head = pair % args.kv_heads;
  span.row = pair / args.kv_heads;
  const RowContext row = rows[span.row];
  span.position = row.past + op.step + span.row - row.first;
  const int window = args.window[op.layer];
  span.low = window ? max(0, span.position - window + 1) : 0;
  const int begin = span.low / kPageTokens, pages = span.position / kPageTokens + 1 - begin;
  span.splits = splits_of(args, pages);
  const int each = (pages + span.splits - 1) / span.splits;
  span.first_page = begin + min(pages, span.split * each);
  span.page_count = min(pages, (span.split + 1) * each) - min(pages, span.split * each);
  span.own = span.page_count > 0 && span.first_page + span.page_count == begin + pages;
  return span;
}

// The activations that an operator multiplies.
__device__ inline int norm_of(Kind kind) {
  return kind == Kind::qkv ? 0 : kind == Kind::gate_up ? 1 : 2;
}
__device__ inline uint16_t* activations_of(const DecodeArgs& args, Kind kind) {
  return kind == Kind::out    ? args.attention_out
         : kind == Kind::down ? args.mlp_hidden
                              : args.normed + norm_of(kind) * args.normed_stride;
}
// A token's sums of squares, for the scale of the norm before it.
__device__ inline float* squares_of(const DecodeArgs& args, Kind kind, int token) {
  return args.sums_of_squares + (norm_of(kind) * kMaxRows + token) * (args.hidden / kBlockRows);
}

// Clocks of SM 0 by operator: 0 activations there, 1 last product done, 2 results written. The
// first two stay as they were where it has no part.
__device__ inline void stamp(const DecodeArgs& args, const Op& op, int which) {
  if (args.timestamps && blockIdx.x == 0) args.timestamps[op.index * 3 + which] = clock64();
}

#endif

}  // namespace ridge::cuda
