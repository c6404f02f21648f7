// Synchronisation of the decode kernel. All waiting between warps and between SMs is here, or in
// the pipeline of stages (ptx/pipeline.cuh), and follows these rules.
//
// Within an SM
//   full, empty [stage]         producer -> 8 math warps -> producer: weights and KV pages
//   partials_full, _empty [b]   8 math warps -> one epilogue warp -> 8 math warps: the split-K
//                               partial sums of one 16-row block. Blocks take the buffers in turn,
//                               and epilogue warp b owns buffer b.
//   attention_done              math warp 0 -> epilogue warp 0: this SM's attention is written
//   ops_completed               epilogue warp 0 -> all warps: grid barriers that have completed. A
//                               plain counter in shared memory and not an mbarrier: a warp without
//                               work may see it advance by two.
//
// Between SMs. Let i be the index of an operator in the launch.
//   Grid barrier: epilogue warp 0 arrives for operator i when this SM has written all results of i.
//   Not-ready sentinel: the inputs of GEMMs and of attention (bf16 activations: kNotReady; sums of
//   squares and qkv_out: all ones) hold a NaN that is never computed until their value is written.
//   Some have copies (input_copies), of which an SM polls one; all are written and reset alike.
//   Readers poll the data and need no barrier, which saves 0.7 us in every operator but embed.
//   Tag: what is published and read within an operator, or the next two, carries the operator's
//   number in the launch (TaggedFloat).
//
// Invariants
//   1. An SM writes results of operator i only when all SMs have completed operators 0 .. i-2.
//      embed waits for 0 .. i-1: its input (argmax_keys) has no sentinel.
//      With kBarrierAhead an SM arrives for i-1 when its epilogue begins operator i, and one
//      epilogue warp waits for the barrier of i-1 before its own block of i. No other warp has to
//      wait at the beginning of i+1, and no result of i-1 depends on a block of i.
//   2. So an SM arrives for i only when the barrier of i-2 is complete. At any time arrivals for at
//      most two consecutive operators are counted. Even and odd operators have a counter each: on a
//      single one, an SM without work in i could stand in for one that is late in i-1.
//   3. An input is reset to not-ready when all SMs have completed its reader r: by the epilogue of
//      operator r+2 (of attention with experts: r+3), and after the head for the inputs of the last
//      two GEMMs. Its next writer is at the earliest operator r+4 (r+5), which by 1 writes after
//      all SMs have completed r+2 (r+3).
//   4. The math warps poll the input of operator i after all SMs have completed 0 .. i-3. The reset
//      of that input happened in i-3 or before, so what they find is not-ready or this step's
//      value.
//   5. The math warps themselves write the results of attention. So they wait as 1 demands before
//      they write: what they polled was written when 0 .. i-3 were complete, but attention_out is
//      reset in i-2, by SMs without a block of i-2 at any time before they arrive. An SM whose
//      items are empty waits as 4 demands: otherwise it could signal attention_done twice before
//      its epilogue warp waits.
//   6. Polls use relaxed loads past L1 (cp.async.cg, ld.relaxed): an acquire would invalidate L1 in
//      each iteration. A bf16 value or a float is one store, so readers see the value or the
//      sentinel. What a grid barrier publishes is read past L1 too (__ldcg, bulk copies).
//   7. Router sums are overwritten when all SMs have completed the gate_up that read them, or the
//      down of an SM without a part of it. So a warp waits for them only where this SM's part of
//      the operator needs them.
//   8. The SMs with splits of a row and KV head publish the states of the splits and poll those of
//      each other. An SM publishes the states of all its items before it polls any, and nothing
//      before that waits for attention of another SM. States are overwritten in the next layer, by
//      SMs that have read its qkv_out: by 1 it was written when all had completed this attention.
//   9. Where norms follow blocks, all epilogue warps of all SMs read the sums of the input of qkv,
//      gate_up and the head during that operator, also on SMs without a block of it. Their blocks
//      of the following out or down need the norm's scale, and by then the sums may have been
//      reset.
//   10. The KV page of a step's tokens is read by bulk copies of the next step. The producer waits
//      until all SMs have completed the attention that wrote it; writer and reader fence the
//      asynchronous proxy.
#pragma once

#include "base/ptx/execution.cuh"
#include "base/ptx/memory_order.cuh"
#include "engine/cuda/decode/decode_schedule.cuh"
#include "engine/cuda/device/grid_barrier.cuh"

#ifdef __CUDA_ARCH__
namespace ridge::cuda {

// Named barriers; 0 is __syncthreads.
constexpr int kMathBarrier = 1;      // the 8 math warps
constexpr int kStepPageBarrier = 2;  // math warps 6 and 7 to 0: the page of this step's tokens
constexpr int kStepPageThreads = 96;
constexpr int kEpilogueBarrier = 3;  // the 3 epilogue warps

// ---- grid barrier

// Epilogue warp 0: waits until all SMs have completed `ops` operators, and publishes that to the
// other warps of the SM.
__device__ inline void wait_grid(const DecodeArgs& args, DecodeControl& control, int ops,
                                 int lane) {
  if (lane == 0 && control.ops_completed < ops) {
    const unsigned last = ops - 1;
    grid_barrier_wait(args.grid_barrier + last % 2,
                      args.grid_barrier_base[last % 2] + (last / 2 + 1) * gridDim.x);
    *const_cast<volatile unsigned*>(&control.ops_completed) = ops;
  }
  __syncwarp();
}

// The same for all other warps: polls what epilogue warp 0 has seen.
__device__ inline void wait_ops_completed(const DecodeControl& control, unsigned ops, int lane) {
  if (lane == 0) {
    while (*reinterpret_cast<const volatile unsigned*>(&control.ops_completed) < ops) {
    }
  }
  __syncwarp();
}

// Operators that all SMs must have completed before results of `op` are written (invariant 1).
__device__ inline int ops_before_epilogue(const DecodeOp& op) {
  return max(0, op.kind == OpKind::embed ? op.index : op.index - 1);
}
// The same, before the inputs of `op` are polled (invariant 4).
__device__ inline int ops_before_input(const DecodeOp& op) { return max(0, op.index - 2); }

// ---- not-ready sentinel

// Whether any of 8 activations is not ready.
__device__ inline bool not_ready(const uint4& v) {
  uint32_t largest = v.x;
  for (const uint32_t pair : {v.y, v.z, v.w}) {
    largest = max_u16x2(largest, pair);
  }
  return largest >> 16 == kNotReady || (largest & 0xffff) == kNotReady;
}
// The bits of a float that is not ready: a sum of squares, or an element of qkv_out.
constexpr uint32_t kNotReadyFloat = ~0u;

// Resets the inputs of operator `kind` to not-ready: this SM's share, by one warp (invariant 3).
template <WeightFormat kFormat, int kRows, DecodeVariant kVariant>
__device__ inline void reset_inputs(const DecodeArgs& args, OpKind kind, int lane) {
  constexpr bool kExperts = kVariant == DecodeVariant::experts;
  const int columns = input_size(args, kind);
  static_assert(kNotReady == 0xffff);
  uint4* at = reinterpret_cast<uint4*>(activations_of(args, kind));
  const int inputs = columns * (follows_norm(kind) ? input_columns(kVariant, kRows) : kRows);
  const bool choices = kExperts && kind == OpKind::down;
  const int parts = choices ? args.top_k : input_copies(kFormat, kVariant, kRows);
  const int stride = choices ? args.choice_stride : copy_stride(columns);
  for (int part = 0; part < parts; ++part, at += stride / 8) {
    for (int i = blockIdx.x * 32 + lane; i < inputs / 8; i += gridDim.x * 32) {
      __stcg(at + i, uint4{~0u, ~0u, ~0u, ~0u});
    }
  }
  if (!follows_norm(kind)) return;
  constexpr int kSums = kVariant == DecodeVariant::gemma ? 4 : 1;  // of a block
  const int count = args.hidden / kBlockRows * kSums;
  constexpr int kCopies = sum_copies(kFormat, kVariant, kRows);
  for (int n = 0; n < (kCopies > 1 ? kCopies : args.row_count); ++n) {
    float* sums = args.sums_of_squares + (norm_index(kind) * kMaxRows + n) * count;
    for (int i = blockIdx.x * 32 + lane; i < count; i += gridDim.x * 32) {
      __stcg(sums + i, __uint_as_float(kNotReadyFloat));
    }
  }
}

// The same for the input of attention.
__device__ inline void reset_qkv(const DecodeArgs& args, int lane) {
  uint4* at = reinterpret_cast<uint4*>(args.qkv_out);
  const int count = args.row_count * args.qkv.blocks * kBlockRows / 4;
  for (int i = blockIdx.x * 32 + lane; i < count; i += gridDim.x * 32) {
    __stcg(at + i, uint4{kNotReadyFloat, kNotReadyFloat, kNotReadyFloat, kNotReadyFloat});
  }
}

// Resets, in the epilogue of `op`, the inputs of the operator two before; with experts those
// of out three before, and those of gate_up are the router's too, which reads them first.
template <WeightFormat kFormat, int kRows, DecodeVariant kVariant>
__device__ inline void reset_completed_inputs(const DecodeArgs& args, const DecodeOp& op,
                                              int lane) {
  if (op.kind == OpKind::out) reset_inputs<kFormat, kRows, kVariant>(args, OpKind::qkv, lane);
  if (op.kind == OpKind::down) reset_inputs<kFormat, kRows, kVariant>(args, OpKind::out, lane);
  if (op.kind == OpKind::qkv || op.kind == OpKind::head) {
    reset_inputs<kFormat, kRows, kVariant>(args, OpKind::gate_up, lane);
  }
  if (op.kind == OpKind::attention) {
    reset_inputs<kFormat, kRows, kVariant>(args, OpKind::down, lane);
  }
  if (op.kind == OpKind::gate_up) reset_qkv(args, lane);
}

// ---- tagged results

__device__ inline unsigned long long word_of(TaggedFloat result) {
  return static_cast<unsigned long long>(result.tag) << 32 | __float_as_uint(result.value);
}
__device__ inline void store_tagged(TaggedFloat* to, TaggedFloat result) {
  ptx::st_relaxed(reinterpret_cast<unsigned long long*>(to), word_of(result));
}
// Two adjacent results, the first at an even index.
__device__ inline void store_tagged(TaggedFloat* to, TaggedFloat first, TaggedFloat second) {
  ptx::st_relaxed(reinterpret_cast<unsigned long long*>(to), word_of(first), word_of(second));
}
__device__ inline TaggedFloat load_tagged(const TaggedFloat* from) {
  const auto word = ptx::ld_relaxed(reinterpret_cast<const unsigned long long*>(from));
  return {__uint_as_float(static_cast<unsigned>(word)), static_cast<unsigned>(word >> 32)};
}

// ---- split-K partial sums: math warps to an epilogue warp

// Math warp: waits for a free buffer.
__device__ inline void acquire_partials(DecodeShared& shared, const PipelineState& partials) {
  ptx::mbarrier_wait(&shared.control.partials_empty[partials.stage], partials.phase ^ 1);
}
// Math warp: its partial sums are in the buffer.
__device__ inline void publish_partials(DecodeShared& shared, PipelineState& partials, int lane) {
  __syncwarp();
  if (lane == 0) ptx::mbarrier_arrive(&shared.control.partials_full[partials.stage]);
  partials.advance(kPartialBuffers);
}
// Epilogue warp: waits for the partial sums of all math warps.
__device__ inline void wait_partials(DecodeShared& shared, const PipelineState& partials) {
  ptx::mbarrier_wait(&shared.control.partials_full[partials.stage], partials.phase);
}
// Epilogue warp: has read the buffer.
__device__ inline void release_partials(DecodeShared& shared, PipelineState& partials, int lane) {
  __syncwarp();
  if (lane == 0) ptx::mbarrier_arrive(&shared.control.partials_empty[partials.stage]);
  partials.advance(kPartialBuffers);
}

// ---- stages of the ring

// Math warp: has read the stage.
__device__ inline void release_stage(const DecodeArgs& args, DecodeShared& shared,
                                     PipelineState& stage, int lane) {
  __syncwarp();
  if (lane == 0) ptx::mbarrier_arrive(&shared.control.empty[stage.stage]);
  stage.advance(args.stages);
}
// The same for `count` stages, fewer than the ring has, one lane each. All of them must have been
// filled, or be about to be.
__device__ inline void release_stages(const DecodeArgs& args, DecodeShared& shared,
                                      PipelineState& stage, int count, int lane) {
  __syncwarp();
  if (lane < count) {
    ptx::mbarrier_arrive(&shared.control.empty[stage.ahead(lane, args.stages).stage]);
  }
  stage = stage.ahead(count, args.stages);
}
// Math warp in attention: releases `count` stages that have no page for it, and waits for the one
// after them. When that one is full, the producer has acquired those before it, so releasing them
// is in order although nobody waited for them here. Stage by stage, each took 0.2 us.
//
// The wait is for the parity of a phase, so the slot's stage of the lap before must be full. This
// warp may have passed over that one too. The stage that it waited for last is full, so all those
// before it but the latest copies_in_flight - 1 are: no jump may reach further back. Rings that are
// too short for the jump are waited for stage by stage.
__device__ inline void pass_stages(const DecodeArgs& args, DecodeShared& shared,
                                   PipelineState& stage, int count, int lane) {
  for (; count >= max(1, args.stages - args.copies_in_flight); --count) {
    ptx::mbarrier_wait(&shared.control.full[stage.stage], stage.phase);
    release_stage(args, shared, stage, lane);
  }
  const PipelineState next = stage.ahead(count, args.stages);
  ptx::mbarrier_wait(&shared.control.full[next.stage], next.phase);
  release_stages(args, shared, stage, count, lane);
}

}  // namespace ridge::cuda
#endif
