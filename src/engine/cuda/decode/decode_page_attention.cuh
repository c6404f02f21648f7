// Attention in the decode kernel, by the 8 math warps of an SM: flash decoding over KV pages.
//
// An item is one row, one KV head with the query heads that share it, and a run of adjacent splits
// of the row's pages (AttentionRun). Pages arrive in the ring, the last one first:
//   1. Math warp 7 writes this step's keys and values into the last page, in shared memory and in
//      the cache. So a token attends to whole pages however its sequence was cut into steps.
//   2. Warp w attends to pages w, w + 8, ... of each split with its own online softmax
//      (page_attention.cuh), and leaves its state of the split in shared memory.
//   3. The states of the warps are combined, split by split.
//   4. The results of the splits are merged in the order of the splits, by the SM that has them
//   all,
//      or by the one that arrives last. So bits do not depend on how splits form runs.
#pragma once

#include "engine/cuda/attention/page_attention.cuh"
#include "engine/cuda/decode/decode_sync.cuh"

#ifdef __CUDA_ARCH__
namespace ridge::cuda {

// Writes the step's tokens of the row's sequence, up to the row's own, into the page in shared
// memory, and the row's own token into the cache. Values are loaded before keys are processed: one
// load takes as long as all of them.
template <int kD, KvFormat kKv>
__device__ inline void append_step_tokens(const DecodeArgs& args, const DecodeShared& shared,
                                          const DecodeOp& op, const AttentionRun& run,
                                          const float2* rope, uint8_t* page, int lane) {
  const RowContext& row = shared.control.rows[run.row];
  constexpr int kHeadDim = 16 * kD, kPerLane = kHeadDim / 32;
  const int columns = (args.heads + 2 * args.kv_heads) * kHeadDim;
  const int g = lane / 4, t = lane % 4, own = run.row - row.first;
  const float* keys =
      args.qkv_out + size_t(row.first) * columns + (args.heads + run.kv_head) * kHeadDim;
  const float* values = keys + args.kv_heads * kHeadDim;
  const float* norm = args.k_norm ? args.k_norm + op.layer * kHeadDim : nullptr;
  const int slot = run.position % kPageTokens - own;  // of the step's first token
  const int number = args.pages[row.pages + run.position / kPageTokens];
  HeadVector<kD> key;
  load_head<kD>(key, keys + size_t(g) * columns, g <= own, t);
  float value[kPerLane];
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) value[i] = __ldcg(values + lane + 32 * i);

  uint8_t* cached =
      args.kv + ((size_t(op.layer) * args.cache_pages + number) * args.kv_heads + run.kv_head) *
                    page_bytes(kKv, kHeadDim);
#pragma unroll 1
  for (int token = 0; token <= own; ++token) {
    write_value<kD, kKv>(value, slot + token, lane, page, token == own ? cached : nullptr);
    if (token == own) break;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
      value[i] = __ldcg(values + size_t(token + 1) * columns + lane + 32 * i);
    }
  }
#pragma unroll 1
  for (int token = g; token <= (own | 7); token += 8) {
    const bool valid = token <= own;
    if (token >= 8) load_head<kD>(key, keys + size_t(token) * columns, valid, t);
    norm_and_rope<kD>(key, norm, args.norm_eps, rope + (valid ? row.first + token : 0) * 8 * kD, t);
    write_key<kD, kKv>(key, valid, slot + token, t, page, token == own ? cached : nullptr);
  }
  __syncwarp();
}

// One output from the partial results of all splits. A record has the outputs, then the maximum and
// the sum of each head.
__device__ inline float merge_splits(const float* records, int splits, int record, int outputs,
                                     int group, int o, int head) {
  float most = kMaskedScore, sum = 0, out = 0;
#pragma unroll 2
  for (int i = 0; i < splits; ++i) {
    const float* from = records + i * record;
    const float split_max = __ldcg(from + outputs + head);
    const float split_sum = __ldcg(from + outputs + group + head), split_out = __ldcg(from + o);
    const float both = fmaxf(most, split_max);
    const float keep = exp2f(most - both), add = exp2f(split_max - both);
    sum = sum * keep + split_sum * add;
    out = out * keep + split_out * add;
    most = both;
  }
  return out / sum;
}

// One long function on purpose. With its parts as members of a struct, nvcc 13 does not inline it,
// and the kernel gets 60 % more instructions and spills.
template <WeightFormat kFormat, int kRows, int kD, KvFormat kKv>
__device__ __forceinline__ void page_attention(const DecodeArgs& args, DecodeShared& shared,
                                               const DecodeOp& op, const float2* rope,
                                               int ring_stage_bytes, int warp, int lane,
                                               PipelineState& stage) {
  constexpr int kHeadDim = 16 * kD, kMathThreads = kMathWarps * 32;
  constexpr int kPadded = kHeadDim + 8;  // puts the heads of a quad in different banks
  DecodeControl& control = shared.control;
  const int group = args.heads / args.kv_heads, outputs = group * kHeadDim;
  const int columns = (args.heads + 2 * args.kv_heads) * kHeadDim;
  constexpr int kPage = page_bytes(kKv, kHeadDim);
  const int per_stage = min(32, ring_stage_bytes / kPage);
  const int g = lane / 4, t = lane % 4, thread = warp * 32 + lane;
  // States of the warps, [split of the run][warp][head][kPadded], where GEMMs have their
  // activations: the outputs, then the maximum and the sum.
  float* const states = reinterpret_cast<float*>(shared.activations);

  // All SMs have written qkv_out of this step. SMs without pages wait too: otherwise they would
  // signal attention_done, and again for the next attention, before the epilogue warp waits.
  wait_ops_completed(control, op.index, lane);
  if (thread == 0) stamp(args, op, 0);
  for (int item = op.first; item < op.items; item += gridDim.x) {
    const AttentionRun run = attention_run(args, control.rows, op, item);
    if (run.first_split >= run.end_split) continue;
    const bool has_step_page = run.has_step_page();

    // 1. The last page comes first. Warp 7 completes it while warp 0 loads the queries.
    if (has_step_page && warp == kMathWarps - 1) {
      ptx::mbarrier_wait(&control.full[stage.stage], stage.phase);
      append_step_tokens<kD, kKv>(args, shared, op, run, rope,
                                  shared.ring + stage.stage * ring_stage_bytes, lane);
      ptx::fence_proxy_async_shared();  // a later bulk copy writes to the same stage
      ptx::bar_sync<kStepPageBarrier>(64);
    }
    HeadFragment<kD> q = {};
    float scale[2] = {};
    if (warp < run.pages_per_split) {
      const int head = run.kv_head * group + g;
      HeadVector<kD> query;
      load_head<kD>(query, args.qkv_out + size_t(run.row) * columns + head * kHeadDim, g < group,
                    t);
      norm_and_rope<kD>(query, args.q_norm ? args.q_norm + op.layer * kHeadDim : nullptr,
                        args.norm_eps, rope + run.row * 8 * kD, t);
      score_scale<kKv>(scale, args.query_scale, pack_query<kD, kKv>(q, query), t);
    }
    if (has_step_page && warp == 0) ptx::bar_sync<kStepPageBarrier>(64);

      // 2. This warp's pages. Every warp passes through every stage.
#pragma unroll 1
    for (int split = run.end_split - 1; split >= run.first_split; --split) {
      const int end = run.page_end(split), count = end - run.page_begin(split);
      SoftmaxState<kD> state;
#pragma unroll 1
      for (int p = 0; p < count; p += per_stage) {
        ptx::mbarrier_wait(&control.full[stage.stage], stage.phase);
#pragma unroll 1
        for (int i = p; i < min(p + per_stage, count); ++i) {
          if (i % kMathWarps != warp) continue;
          attend_page<kD, kKv>(
              state, q, scale, args.attention_softcap, (end - 1 - i) * kPageTokens,
              [&](int token, int) { return token >= run.first_key && token <= run.position; }, lane,
              shared.ring + stage.stage * ring_stage_bytes + (i - p) * kPage);
        }
        release_stage(args, shared, stage, lane);
      }
      finish_softmax<kD, kKv>(state);
      float* to = states + ((split - run.first_split) * kMathWarps + warp) * group * kPadded;
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int head = t * 2 + c;
        if (head >= group) continue;
        float* of_head = to + head * kPadded;
        if (g == 0) of_head[kHeadDim] = state.max[c], of_head[kHeadDim + 1] = state.sum[c];
#pragma unroll
        for (int j = 0; j < kD; ++j) {
          of_head[j * 16 + g] = state.out[j][c], of_head[j * 16 + g + 8] = state.out[j][2 + c];
        }
      }
    }
    ptx::bar_sync<kMathBarrier>(kMathThreads);

    // 3. Each thread combines the states of the warps for its outputs.
    const auto store = [&](int o, float value) {
      const int k = run.kv_head * outputs + o;
      args.attention_out[activation_at(k, run.row, kRows)] =
          bf16_bits(value * activation_scale(kFormat));
    };
    // Of all splits of the row: the outputs, then the maximum and the sum of each head.
    const int record = outputs + 2 * group, pair = item / op.runs;
    float* const records = args.split_partials + size_t(pair) * op.splits * record;
    const int run_outputs = (run.end_split - run.first_split) * outputs;
#pragma unroll 1
    for (int i = thread; i < run_outputs; i += kMathThreads) {
      const int split = i / outputs, o = i - split * outputs, head = o / kHeadDim;
      const float* state = states + (split * kMathWarps * group + head) * kPadded;
      float most = kMaskedScore, sum = 0, result = 0;
#pragma unroll
      for (int w = 0; w < kMathWarps; ++w) {
        most = fmaxf(most, state[w * group * kPadded + kHeadDim]);
      }
#pragma unroll
      for (int w = 0; w < kMathWarps; ++w, state += group * kPadded) {
        const float share = exp2f(state[kHeadDim] - most);
        sum += share * state[kHeadDim + 1];
        result += share * state[o % kHeadDim];
      }
      if (run.splits == 1) {
        store(o, result / sum);
      } else {
        float* to = records + (run.first_split + split) * record;
        to[o] = result;
        if (o % kHeadDim == 0) to[outputs + head] = most, to[outputs + group + head] = sum;
      }
    }

    // 4. The SM that arrives last at the (row, KV head) pair merges its splits.
    if (run.splits > 1) {
      ptx::bar_sync<kMathBarrier>(kMathThreads);
      if (thread == 0) {
        const int runs = (run.splits + op.run_splits - 1) / op.run_splits;
        const unsigned before = ptx::atom_release_increment(&args.split_arrivals[pair]);
        control.merges_splits = before == static_cast<unsigned>(runs - 1);
        if (control.merges_splits) args.split_arrivals[pair] = 0;
      }
      ptx::bar_sync<kMathBarrier>(kMathThreads);
      if (control.merges_splits) {
#pragma unroll 1
        for (int o = thread; o < outputs; o += kMathThreads) {
          store(o, merge_splits(records, run.splits, record, outputs, group, o, o / kHeadDim));
        }
      }
    }
    // The next step's bulk copies read what this warp wrote to the cache (invariant 8).
    if (has_step_page && warp == kMathWarps - 1) ptx::fence_proxy_async();
    ptx::bar_sync<kMathBarrier>(kMathThreads);
  }
}

template <WeightFormat kFormat, int kRows, DecodeVariant kVariant>
__device__ __forceinline__ void attention(const DecodeArgs& args, DecodeShared& shared,
                                          const DecodeOp& op, int ring_stage_bytes, int warp,
                                          int lane, PipelineState& stage) {
  // Hides the values from the compiler. Otherwise it would keep what depends on them in registers
  // for the whole launch, and attention runs once per layer.
  asm volatile("" : "+r"(warp), "+r"(lane));
  constexpr bool kGemma = kVariant == DecodeVariant::gemma;
  const float2* rope = shared.rope;
  if (kGemma) rope += args.rope[op.layer] * kRows * args.head_dim / 2;
  const auto run = [&](auto kv) {
    constexpr KvFormat kKv = decltype(kv)::value;
    if (args.head_dim == 128) {
      page_attention<kFormat, kRows, 8, kKv>(args, shared, op, rope, ring_stage_bytes, warp, lane,
                                             stage);
    } else {
      constexpr int kD = kGemma ? 16 : 4;
      page_attention<kFormat, kRows, kD, kKv>(args, shared, op, rope, ring_stage_bytes, warp, lane,
                                              stage);
    }
  };
  switch (args.kv_format) {
    case KvFormat::bf16:
      return run(std::integral_constant<KvFormat, KvFormat::bf16>());
    case KvFormat::f16:
      return run(std::integral_constant<KvFormat, KvFormat::f16>());
    case KvFormat::fp8:
      return run(std::integral_constant<KvFormat, KvFormat::fp8>());
    case KvFormat::int8:
      return run(std::integral_constant<KvFormat, KvFormat::int8>());
  }
}

}  // namespace ridge::cuda
#endif
