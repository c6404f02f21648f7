// The order of work of the decode kernel: the list of operators, which 16-row blocks of an operator
// belong to which SM, and how attention is split over the context. Every warp walks the same list,
// so producer, math and epilogue warps agree without exchanging a message.
#pragma once

#include <climits>

#include "engine/cuda/decode/decode.cuh"
#include "engine/cuda/decode/decode_shared_memory.cuh"

namespace ridge::cuda {

enum class OpKind { embed, qkv, attention, out, route, gate_up, down, head };

// One operator of the launch, as this SM sees it.
struct DecodeOp {
  OpKind kind;
  int index;  // in the launch
  int step, layer;
  // Of all SMs: 16-row blocks, or (row, KV head, run of splits) of attention, or experts of the
  // router. gate_up of experts: (choice, block). down of experts: blocks, each of all choices.
  int items;
  int first;  // this SM computes items first, first + SMs, ...
  // Attention: splits of the row with the longest context, in runs of adjacent ones.
  int splits, run_splits, runs;
};

// Attention over fewer pages per split costs more in combining the splits than it saves.
constexpr int kMinPagesPerSplit = 16;

#ifdef __CUDA_ARCH__

// Depends on the row's own context only. Otherwise a row's bits would depend on the batch.
__device__ inline int splits_of(const DecodeArgs& args, int pages) {
  return max(1, min((pages + kMinPagesPerSplit - 1) / kMinPagesPerSplit, args.max_splits));
}

// Splits of a run, which one SM computes one after the other: queries are loaded once, the warps do
// not wait for each other between splits, and results are published once. The number that leaves
// the busiest SM the fewest splits; of equal ones the largest. Bits do not depend on it.
__device__ inline int splits_per_run(const DecodeArgs& args, int splits) {
  const int grid = gridDim.x;
  int best = 1, fewest = INT_MAX;
  for (int n = 1; n <= min(splits, args.max_run_splits); ++n) {
    const int items = args.row_count * args.kv_heads * ((splits + n - 1) / n);
    const int busiest = (items + grid - 1) / grid * n;
    if (busiest <= fewest) best = n, fewest = busiest;
  }
  return best;
}

// Pages of the longest context that the tokens of this layer see.
template <DecodeVariant kVariant>
__device__ inline int most_pages(const DecodeArgs& args, int layer, int step) {
  const int pages = (args.max_position + step) / kPageTokens + 1;
  const int window = kVariant == DecodeVariant::gemma ? args.window[layer] : 0;
  return window ? min(pages, (window - 1) / kPageTokens + 2) : pages;
}

// Calls function(op) for every operator of the launch, in order. Items are dealt to the SMs round
// robin and the deal continues across operators: `base` is the SM of the operator's first item.
template <DecodeVariant kVariant, typename Function>
__device__ __forceinline__ void for_each_op(const DecodeArgs& args, const Function& function) {
  constexpr bool kExperts = kVariant == DecodeVariant::experts;
  const int grid = gridDim.x;
  int base = 0, index = 0;
  for (int step = 0; step < args.steps; ++step) {
    constexpr int kPerLayer = ops_per_layer(kExperts);
    const int ops = ops_per_step(args.layers, kExperts);
    for (int o = 0; o < ops; ++o, ++index) {
      DecodeOp op;
      op.index = index;
      op.step = step;
      op.layer = (o - 1) / kPerLayer;
      int in_layer = (o - 1) % kPerLayer + 1;
      if (!kExperts && in_layer >= int(OpKind::route)) ++in_layer;
      op.kind = o == 0         ? OpKind::embed
                : o == ops - 1 ? OpKind::head
                               : static_cast<OpKind>(in_layer);
      switch (op.kind) {
        case OpKind::embed:
          op.items = args.hidden / kBlockRows;
          break;
        case OpKind::qkv:
          op.items = args.qkv.blocks;
          break;
        case OpKind::attention:
          // In every layer anew: kept in registers, they would spill.
          op.splits = splits_of(args, most_pages<kVariant>(args, op.layer, step));
          op.run_splits = splits_per_run(args, op.splits);
          op.runs = (op.splits + op.run_splits - 1) / op.run_splits;
          op.items = args.row_count * args.kv_heads * op.runs;
          break;
        case OpKind::out:
          op.items = args.out.blocks;
          break;
        case OpKind::route:
          op.items = args.experts;
          break;
        case OpKind::gate_up:
          op.items = (kExperts ? args.top_k : 1) * args.gate_up.blocks;
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
// Columns of that input, for one row.
__device__ inline int input_size(const DecodeArgs& args, OpKind kind) {
  return kind == OpKind::out    ? args.heads * args.head_dim
         : kind == OpKind::down ? args.ffn
                                : args.hidden;
}
// Writes one activation, or two adjacent ones, to all copies of the input of `kind`.
template <WeightFormat kFormat, int kRows, DecodeVariant kVariant, typename Bits>
__device__ inline void store_input(const DecodeArgs& args, OpKind kind, uint16_t* to, Bits bits) {
#pragma unroll
  for (int copy = 0; copy < input_copies(kFormat, kVariant, kRows); ++copy) {
    *reinterpret_cast<Bits*>(to + copy * copy_stride(input_size(args, kind))) = bits;
  }
}
// `row`: or the copy of one row.
__device__ inline float* sums_of_squares_of(const DecodeArgs& args, OpKind kind, int row) {
  return args.sums_of_squares + (norm_index(kind) * kMaxRows + row) * (args.hidden / kBlockRows);
}

// Whether the input of a GEMM comes from a norm.
__device__ inline bool follows_norm(OpKind kind) {
  return kind != OpKind::out && kind != OpKind::down;
}

// Chunks of K whose activations fit in shared memory at a time: all of them, or a multiple of a
// stage. Inputs from a norm fit whole where they have two columns for each row
// (decode_kernel_tokens), so the number of rows decides.
template <WeightFormat kFormat, int kRows>
__device__ inline int resident_chunks(const DecodeArgs& args, int chunks) {
  constexpr int kChunkBytes = activation_chunk_bytes(kFormat, kRows);
  if (chunks * kChunkBytes <= args.activation_bytes) return chunks;
  return args.activation_bytes / kChunkBytes / kChunksPerStage * kChunksPerStage;
}

// One attention item: a run of splits, and the KV pages of the row.
struct AttentionRun : SplitRun {
  int position, first_key;            // of the row's token, and of the first key that it sees
  int begin, pages, pages_per_split;  // pages of the sequence from `begin` on

  // Whether the run has the row's last page, which holds this step's tokens. Splits at the end of a
  // long row may be empty.
  __device__ bool has_step_page() const {
    const int end = begin + pages;
    return page_begin(first_split) < end && page_end(end_split - 1) == end;
  }
  __device__ int page_begin(int split) const { return begin + min(pages, split * pages_per_split); }
  __device__ int page_end(int split) const { return page_begin(split + 1); }
};

__device__ inline AttentionRun attention_run(const DecodeArgs& args, const RowContext* rows,
                                             const DecodeOp& op, int item) {
  AttentionRun r;
  const int pair = item / op.runs;
  r.kv_head = pair % args.kv_heads;
  r.row = pair / args.kv_heads;
  const RowContext row = rows[r.row];
  r.position = row.past + op.step + r.row - row.first;
  const int window = args.window[op.layer];
  r.first_key = window ? max(0, r.position - window + 1) : 0;
  r.begin = r.first_key / kPageTokens, r.pages = r.position / kPageTokens + 1 - r.begin;
  r.splits = splits_of(args, r.pages);
  r.pages_per_split = (r.pages + r.splits - 1) / r.splits;
  r.first_split = item % op.runs * op.run_splits;
  r.end_split = min(r.splits, r.first_split + op.run_splits);
  return r;
}

// The tag of what operator `index` of this launch publishes. The counter grows by more than a
// launch has operators.
__device__ inline unsigned op_tag(const DecodeArgs& args, int index) {
  return args.grid_barrier_base[0] + index;
}
// The tag of a layer's router sums, in the operators that read them too.
__device__ inline unsigned route_tag(const DecodeArgs& args, const DecodeOp& op) {
  return op_tag(args, op.index - (int(op.kind) - int(OpKind::route)));
}

// Timestamps of SM 0 per operator: 0 activations are ready (attention: it begins to poll them), 1
// last math done, 2 results written.
// An operator in which SM 0 has no item leaves 0 and 1 as they were.
__device__ inline void stamp(const DecodeArgs& args, const DecodeOp& op, int event) {
  if (args.timestamps && blockIdx.x == 0) args.timestamps[op.index * 3 + event] = clock64();
}

#endif

}  // namespace ridge::cuda
