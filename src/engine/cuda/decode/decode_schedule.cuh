// The order of work of the decode kernel: the list of operators, which 16-row blocks of an operator
// belong to which SM, and how attention is split over the context. Every warp walks the same list,
// so producer, math and epilogue warps agree without exchanging a message.
#pragma once

#include "engine/cuda/decode/decode.cuh"
#include "engine/cuda/decode/decode_shared_memory.cuh"

namespace ridge::cuda {

enum class OpKind { embed, qkv, attention, out, gate_up, down, head };

// One operator of the launch, as this SM sees it.
struct DecodeOp {
  OpKind kind;
  int index;  // in the launch
  int step, layer;
  int items;   // of all SMs: 16-row blocks, or (row, KV head, split) of attention
  int first;   // this SM computes items first, first + SMs, ...
  int splits;  // attention: splits of the row with the longest context
};

// Attention over fewer pages per split costs more in combining the splits than it saves.
constexpr int kMinPagesPerSplit = 16;

#ifdef RIDGE_HOPPER

// Depends on the row's own context only. Otherwise a row's bits would depend on the batch.
__device__ inline int splits_of(const DecodeArgs& args, int pages) {
  return max(1, min((pages + kMinPagesPerSplit - 1) / kMinPagesPerSplit, args.max_splits));
}

// Calls function(op) for every operator of the launch, in order. Items are dealt to the SMs round
// robin and the deal continues across operators: `base` is the SM of the operator's first item.
template <typename Function>
__device__ inline void for_each_op(const DecodeArgs& args, const Function& function) {
  const int grid = gridDim.x;
  int base = 0, index = 0;
  for (int step = 0; step < args.steps; ++step) {
    const int ops = ops_per_step(args.layers);
    for (int o = 0; o < ops; ++o, ++index) {
      DecodeOp op;
      op.index = index;
      op.step = step;
      op.layer = (o - 1) / 5;
      op.kind = o == 0         ? OpKind::embed
                : o == ops - 1 ? OpKind::head
                               : static_cast<OpKind>((o - 1) % 5 + 1);
      op.splits = splits_of(args, (args.max_position + step) / kPageTokens + 1);
      switch (op.kind) {
        case OpKind::embed:
          op.items = args.hidden / kBlockRows;
          break;
        case OpKind::qkv:
          op.items = args.qkv.blocks;
          break;
        case OpKind::attention:
          op.items = args.row_count * args.kv_heads * op.splits;
          break;
        case OpKind::out:
          op.items = args.out.blocks;
          break;
        case OpKind::gate_up:
          op.items = args.gate_up.blocks;
          break;
        case OpKind::down:
          op.items = args.down.blocks;
          break;
        case OpKind::head:
          op.items = args.head.blocks;
          break;
      }
      op.first = static_cast<int>(blockIdx.x) - base;
      if (op.first < 0) op.first += grid;
      function(op);
      base += op.kind == OpKind::attention ? op.items % grid : args.block_remainder[int(op.kind)];
      if (base >= grid) base -= grid;
    }
  }
}

__device__ inline const Tiles& tiles_of(const DecodeArgs& args, OpKind kind) {
  return kind == OpKind::qkv       ? args.qkv
         : kind == OpKind::out     ? args.out
         : kind == OpKind::gate_up ? args.gate_up
         : kind == OpKind::down    ? args.down
                                   : args.head;
}

// Inputs of a GEMM: activations, and for those after a norm the residual's sums of squares.
__device__ inline int norm_index(OpKind kind) {
  return kind == OpKind::qkv ? 0 : kind == OpKind::gate_up ? 1 : 2;
}
__device__ inline uint16_t* activations_of(const DecodeArgs& args, OpKind kind) {
  return kind == OpKind::out    ? args.attention_out
         : kind == OpKind::down ? args.mlp_hidden
                                : args.normed + norm_index(kind) * args.normed_stride;
}
__device__ inline float* sums_of_squares_of(const DecodeArgs& args, OpKind kind, int row) {
  return args.sums_of_squares + (norm_index(kind) * kMaxRows + row) * (args.hidden / kBlockRows);
}

// Chunks of K whose activations fit in shared memory at a time: all of them, or a multiple of a
// stage.
template <WeightFormat kFormat, int kRows>
__device__ inline int resident_chunks(const DecodeArgs& args, int chunks) {
  constexpr int kChunkBytes = activation_chunk_bytes(kFormat, kRows);
  if (chunks * kChunkBytes <= args.activation_bytes) return chunks;
  return args.activation_bytes / kChunkBytes / kChunksPerStage * kChunksPerStage;
}

// One attention item: a row, a KV head, and a split of the row's KV pages.
struct AttentionSplit {
  int row, kv_head, split, splits;  // split >= splits: no work
  int position, first_key;          // of the row's token, and of the first key that it sees
  int first_page, page_count;       // in the sequence
  bool has_step_page;               // the last page is the one that holds this step's tokens
};

__device__ inline AttentionSplit attention_split(const DecodeArgs& args, const RowContext* rows,
                                                 const DecodeOp& op, int item) {
  AttentionSplit s;
  s.split = item % op.splits;
  const int pair = item / op.splits;
  s.kv_head = pair % args.kv_heads;
  s.row = pair / args.kv_heads;
  const RowContext row = rows[s.row];
  s.position = row.past + op.step + s.row - row.first;
  const int window = args.window[op.layer];
  s.first_key = window ? max(0, s.position - window + 1) : 0;
  const int begin = s.first_key / kPageTokens, pages = s.position / kPageTokens + 1 - begin;
  s.splits = splits_of(args, pages);
  const int per_split = (pages + s.splits - 1) / s.splits;
  s.first_page = begin + min(pages, s.split * per_split);
  s.page_count = min(pages, (s.split + 1) * per_split) - min(pages, s.split * per_split);
  s.has_step_page = s.page_count > 0 && s.first_page + s.page_count == begin + pages;
  return s;
}

// Timestamps of SM 0 per operator: 0 activations are ready, 1 last math done, 2 results written.
// An operator in which SM 0 has no item leaves 0 and 1 as they were.
__device__ inline void stamp(const DecodeArgs& args, const DecodeOp& op, int event) {
  if (args.timestamps && blockIdx.x == 0) args.timestamps[op.index * 3 + event] = clock64();
}

#endif

}  // namespace ridge::cuda
