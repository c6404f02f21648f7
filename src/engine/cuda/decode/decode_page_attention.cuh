// Attention in the decode kernel, by the 8 math warps of an SM: flash decoding over KV pages.
//
// An item is one row, one KV head with the query heads that share it, and a run of adjacent splits
// of the row's pages (AttentionRun). Pages arrive in the ring, the last one first:
//   1. Warps 6 and 7 write this step's values and keys into the last page, in shared memory and in
//      the cache. So a token attends to whole pages however its sequence was cut into steps.
//   2. Warp w attends to pages w, w + 8, ... of each split with its own online softmax
//      (page_attention.cuh), and leaves its state of the split in shared memory.
//   3. The states of the warps are combined, split by split.
//   4. The states of the splits are published, and merged in their order: by each SM with a run of
//      the row for a part of the outputs. So bits do not depend on how splits form runs.
//
// Queries, keys and values are polled in qkv_out, and the states of splits where they are published
// (decode_sync.cuh): every wait for a fence or a grid barrier would be 0.7 to 2 us.
#pragma once

#include "engine/cuda/attention/page_attention.cuh"
#include "engine/cuda/decode/decode_sync.cuh"

#ifdef __CUDA_ARCH__
namespace ridge::cuda {

// Loads a head of qkv_out; zeros where the quad has no vector (`valid`). Returns the largest of its
// words: kNotReadyFloat if any is not ready.
template <int kD>
__device__ inline uint32_t load_polled_head(HeadVector<kD>& to, const float* from, bool valid,
                                            int t) {
  uint32_t largest = 0;
#pragma unroll
  for (int j = 0; j < kD; ++j) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float pair[2] = {0, 0};
      if (valid) ptx::ld_relaxed(from + j * 16 + h * 8 + t * 2, pair);
      to[j][h] = {pair[0], pair[1]};
      largest = max(largest, max(__float_as_uint(pair[0]), __float_as_uint(pair[1])));
    }
  }
  return largest;
}

// The same for a value: lane l holds elements l + 32 i.
template <int kPerLane>
__device__ inline uint32_t load_polled_value(float (&to)[kPerLane], const float* from, int lane) {
  uint32_t largest = 0;
#pragma unroll
  for (int i = 0; i < kPerLane; ++i) {
    to[i] = ptx::ld_relaxed(from + lane + 32 * i);
    largest = max(largest, __float_as_uint(to[i]));
  }
  return largest;
}

// Copies the weights of the layer's norms of queries and keys to shared memory, before the queries
// are ready. All math warps; a barrier must follow.
__device__ inline void load_head_norms(const DecodeArgs& args, const DecodeShared& shared,
                                       int layer, int thread) {
  const int offset = thread * 4, of_keys = offset - args.head_dim;
  if (offset < 2 * args.head_dim) {
    const float* from = of_keys < 0 ? args.q_norm + layer * args.head_dim + offset
                                    : args.k_norm + layer * args.head_dim + of_keys;
    ptx::cp_async_16(shared.head_norms + offset, from);
    ptx::cp_async_wait_all();
  }
}

// The step's tokens of the row's sequence, up to the row's own. They are written into the page in
// shared memory, and the row's own into the cache.
template <int kRows, int kD, KvFormat kKv>
struct StepTokens {
  static constexpr int kHeadDim = 16 * kD;
  static_assert(kRows <= 8, "a warp rotates one key per quad");
  const int columns;  // of qkv_out
  const int first;    // the row of the first token
  const int own;      // the row's own token is `own` tokens after the first
  const int slot;     // of the first token in the page
  const float* keys;  // of the first token
  uint8_t* const page;
  uint8_t* const cached;  // the page in the cache

  __device__ StepTokens(const DecodeArgs& args, const RowContext& row, int layer,
                        const AttentionRun& run, uint8_t* page_in_ring)
      : columns((args.heads + 2 * args.kv_heads) * kHeadDim),
        first(kRows == 1 ? 0 : row.first),
        own(kRows == 1 ? 0 : run.row - row.first),
        slot(run.position % kPageTokens - own),
        keys(args.qkv_out + size_t(first) * columns + (args.heads + run.kv_head) * kHeadDim),
        page(page_in_ring),
        cached(args.kv + ((size_t(layer) * args.cache_pages +
                           args.pages[row.pages + run.position / kPageTokens]) *
                              args.kv_heads +
                          run.kv_head) *
                             page_bytes(kKv, kHeadDim)) {}

  // One warp: one key per quad.
  __device__ void append_keys(const float* norm, float norm_eps, const float2* rope, int lane) {
    const int token = lane / 4, t = lane % 4;
    const bool valid = token <= own;
    HeadVector<kD> key;
    while (load_polled_head<kD>(key, keys + size_t(token) * columns, valid, t) == kNotReadyFloat) {
    }
    norm_and_rope<kD>(key, norm, norm_eps, rope + (valid ? first + token : 0) * 8 * kD, t);
    write_key<kD, kKv>(key, valid, slot + token, t, page, token == own ? cached : nullptr);
  }
  // One warp: one value after the other.
  __device__ void append_values(int kv_heads, int lane) {
    const float* from = keys + kv_heads * kHeadDim;
#pragma unroll 1
    for (int token = 0; token <= own; ++token, from += columns) {
      float value[kD / 2];
      while (load_polled_value(value, from, lane) == kNotReadyFloat) {
      }
      write_value<kD, kKv>(value, slot + token, lane, page, token == own ? cached : nullptr);
    }
  }
};

// The states of the warps in shared memory: [split of the run][warp][head][padded head], where
// GEMMs have their activations. A head has its outputs, then the maximum and the sum.
__device__ inline int padded_head(int head_dim) {
  return head_dim + 8;  // puts the heads of a quad in different banks
}
__device__ inline float* warp_states(const DecodeArgs& args, const DecodeShared& shared,
                                     int split_of_run) {
  return reinterpret_cast<float*>(shared.activations) +
         split_of_run * kMathWarps * args.group * padded_head(args.head_dim);
}

// Steps 1 and 2. One long function on purpose: with its parts as members of a struct, nvcc 13 does
// not inline it, and the kernel gets 60 % more instructions and spills.
template <int kRows, int kD, KvFormat kKv>
__device__ __forceinline__ void attend_pages(const DecodeArgs& args, DecodeShared& shared,
                                             const DecodeOp& op, const AttentionRun& run,
                                             const float2* rope, int ring_stage_bytes, int warp,
                                             int lane, PipelineState& stage) {
  // As in attention(): nothing that depends on the lane is computed once for all KV formats.
  asm volatile("" : "+r"(warp), "+r"(lane));
  constexpr int kHeadDim = 16 * kD, kPage = page_bytes(kKv, kHeadDim);
  DecodeControl& control = shared.control;
  const int group = args.group;
  const int columns = (args.heads + 2 * args.kv_heads) * kHeadDim;
  const int per_stage = min(32, ring_stage_bytes / kPage);
  const int g = lane / 4, t = lane % 4;
  const bool has_step_page = run.has_step_page();

  // 1. The last page comes first. Warps 6 and 7 complete it while warp 0 loads the queries.
  if (has_step_page && warp >= kMathWarps - 2) {
    StepTokens<kRows, kD, kKv> tokens(args, control.rows[run.row], op.layer, run,
                                      shared.ring + stage.stage * ring_stage_bytes);
    ptx::mbarrier_wait(&control.full[stage.stage], stage.phase);
    if (warp == kMathWarps - 1) {
      tokens.append_keys(args.k_norm ? shared.head_norms + kHeadDim : nullptr, args.norm_eps, rope,
                         lane);
    } else {
      tokens.append_values(args.kv_heads, lane);
    }
    __syncwarp();
    ptx::fence_proxy_async_shared();  // a later bulk copy writes to the same stage
    ptx::bar_arrive<kStepPageBarrier>(kStepPageThreads);
    ptx::fence_proxy_async();  // the next step's bulk copies read the cache (invariant 10)
  }
  HeadFragment<kD> q = {};
  float scale[2] = {};
  if (warp < run.pages_per_split) {
    const int head = run.kv_head * group + g;
    HeadVector<kD> query;
    while (load_polled_head<kD>(query, args.qkv_out + size_t(run.row) * columns + head * kHeadDim,
                                g < group, t) == kNotReadyFloat) {
    }
    norm_and_rope<kD>(query, args.q_norm ? shared.head_norms : nullptr, args.norm_eps,
                      rope + run.row * 8 * kD, t);
    score_scale<kKv>(scale, args.query_scale, pack_query<kD, kKv>(q, query), t);
  }
  if (has_step_page && warp == 0) ptx::bar_sync<kStepPageBarrier>(kStepPageThreads);

    // 2. This warp's pages.
#pragma unroll 1
  for (int split = run.end_split - 1; split >= run.first_split; --split) {
    const int end = run.page_end(split), count = end - run.page_begin(split);
    const int stages = (count + per_stage - 1) / per_stage;
    SoftmaxState<kD> state;
    int passed = 0;  // stages of the split
#pragma unroll 1
    for (int i = warp; passed < stages; i += kMathWarps) {
      const bool has_page = i < count;
      const int next = has_page ? i / per_stage : stages - 1;
      pass_stages(args, shared, stage, next - passed, lane);
      passed = next;
      if (!has_page) break;
      attend_page<kD, kKv>(
          state, q, scale, args.attention_softcap, (end - 1 - i) * kPageTokens,
          [&](int token, int) { return token >= run.first_key && token <= run.position; }, lane,
          shared.ring + stage.stage * ring_stage_bytes + (i - next * per_stage) * kPage);
    }
    if (stages > 0) release_stages(args, shared, stage, 1, lane);
    finish_softmax<kD, kKv>(state);
    float* to =
        warp_states(args, shared, split - run.first_split) + warp * group * padded_head(kHeadDim);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int head = t * 2 + c;
      if (head >= group) continue;
      float* of_head = to + head * padded_head(kHeadDim);
      if (g == 0) of_head[kHeadDim] = state.max[c], of_head[kHeadDim + 1] = state.sum[c];
#pragma unroll
      for (int j = 0; j < kD; ++j) {
        of_head[j * 16 + g] = state.out[j][c], of_head[j * 16 + g + 8] = state.out[j][2 + c];
      }
    }
  }
}

// The states of the splits in global memory: [row][KV head][split][state]. A state has the outputs
// of all heads, then the maximum and the sum of each head.
struct SplitStates {
  int group, head_dim, outputs, size;
  TaggedFloat* first;  // of the run's row and KV head
  unsigned tag;

  __device__ SplitStates(const DecodeArgs& args, const DecodeOp& op, const SplitRun& run)
      : group(args.group),
        head_dim(args.head_dim),
        outputs(group * head_dim),
        size(outputs + 2 * group),
        first(args.split_states + size_t(run.row * args.kv_heads + run.kv_head) * op.splits * size),
        tag(op_tag(args, op.index)) {}
  __device__ int head_of(int o) const { return o >> (31 - __clz(head_dim)); }  // a power of two
  __device__ TaggedFloat* of(int split) const { return first + split * size; }
};

template <int kRows>
__device__ inline uint16_t* attention_output(const DecodeArgs& args, const SplitRun& run,
                                             int outputs, int o) {
  return args.attention_out + activation_at(run.kv_head * outputs + o, run.row, kRows);
}

// Step 3. Each thread combines the states of the warps for pairs of outputs.
template <WeightFormat kFormat, int kRows, DecodeVariant kVariant>
__device__ __forceinline__ void combine_warps(const DecodeArgs& args, const DecodeShared& shared,
                                              const SplitRun& run, const SplitStates& states,
                                              int thread) {
  const int padded = padded_head(states.head_dim), warp_stride = states.group * padded;
  const auto load_pair = [](const float* from) { return *reinterpret_cast<const float2*>(from); };
#pragma unroll 1
  for (int split = run.first_split; split < run.end_split; ++split) {
    const float* of_split = warp_states(args, shared, split - run.first_split);
#pragma unroll 1
    for (int o = thread * 2; o < states.outputs; o += kMathWarps * 32 * 2) {
      const int head = states.head_of(o), element = o - head * states.head_dim;
      const float* of_head = of_split + head * padded;
      float2 max_sum[kMathWarps];
      float most = kMaskedScore, sum = 0;
      float2 out = {0, 0};
#pragma unroll
      for (int w = 0; w < kMathWarps; ++w) {
        max_sum[w] = load_pair(of_head + w * warp_stride + states.head_dim);
        most = fmaxf(most, max_sum[w].x);
      }
#pragma unroll
      for (int w = 0; w < kMathWarps; ++w) {
        const float share = fast_exp2(max_sum[w].x - most);
        const float2 pair = load_pair(of_head + w * warp_stride + element);
        sum += share * max_sum[w].y;
        out.x += share * pair.x, out.y += share * pair.y;
      }
      if (run.splits == 1) {
        const float inverse = __fdividef(activation_scale(kFormat), sum);
        store_input<kFormat, kRows, kVariant>(args, OpKind::out,
                                              attention_output<kRows>(args, run, states.outputs, o),
                                              pack_bf16(out.x * inverse, out.y * inverse));
        continue;
      }
      TaggedFloat* const to = states.of(split);
      store_tagged(to + o, {out.x, states.tag}, {out.y, states.tag});
      if (element == 0) {
        store_tagged(to + states.outputs + head * 2, {most, states.tag}, {sum, states.tag});
      }
    }
  }
}

// Output `o` from the states of all splits, once they are published. The splits are taken kInFlight
// at a time and in order, whoever computed them.
__device__ inline float merge_splits(const SplitStates& states, int splits, int o, int head) {
  constexpr int kInFlight = 8;  // splits of 2048 tokens: one round trip to L2
  const unsigned tag = states.tag;
  float most = kMaskedScore, sum = 0, out = 0;
#pragma unroll 1
  for (int first = 0; first < splits; first += kInFlight) {
    TaggedFloat split_max[kInFlight], split_sum[kInFlight], split_out[kInFlight];
    bool again;
    do {
      again = false;
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        split_max[i] = {kMaskedScore, tag}, split_sum[i] = split_out[i] = {0, tag};
        if (first + i < splits) {
          const TaggedFloat* from = states.of(first + i);
          split_max[i] = load_tagged(from + states.outputs + head * 2);
          split_sum[i] = load_tagged(from + states.outputs + head * 2 + 1);
          split_out[i] = load_tagged(from + o);
        }
      }
#pragma unroll
      for (int i = 0; i < kInFlight; ++i) {
        again |= split_max[i].tag != tag || split_sum[i].tag != tag || split_out[i].tag != tag;
      }
    } while (again);
    float both = most;
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) both = fmaxf(both, split_max[i].value);
    const float keep = fast_exp2(most - both);
    sum *= keep, out *= keep, most = both;
#pragma unroll
    for (int i = 0; i < kInFlight; ++i) {
      const float share = fast_exp2(split_max[i].value - most);
      sum += share * split_sum[i].value, out += share * split_out[i].value;
    }
  }
  return __fdividef(out, sum);
}

template <WeightFormat kFormat, int kRows, DecodeVariant kVariant>
__device__ __forceinline__ void attention(const DecodeArgs& args, DecodeShared& shared,
                                          const DecodeOp& op, int ring_stage_bytes, int warp,
                                          int lane, PipelineState& stage) {
  // Hides the values from the compiler. Otherwise it would keep what depends on them in registers
  // for the whole launch, and attention runs once per layer.
  asm volatile("" : "+r"(warp), "+r"(lane));
  constexpr int kMathThreads = kMathWarps * 32;
  constexpr bool kGemma = kVariant == DecodeVariant::gemma;
  const float2* rope = shared.rope;
  if (kGemma) rope += args.rope[op.layer] * kRows * args.head_dim / 2;
  const auto attend = [&](const AttentionRun& run, auto kv) __attribute__((always_inline)) {
    constexpr KvFormat kKv = decltype(kv)::value;
    if (args.head_dim == 128) {
      attend_pages<kRows, 8, kKv>(args, shared, op, run, rope, ring_stage_bytes, warp, lane, stage);
    } else {
      constexpr int kD = kGemma ? 16 : 4;
      attend_pages<kRows, kD, kKv>(args, shared, op, run, rope, ring_stage_bytes, warp, lane,
                                   stage);
    }
  };

  if (args.q_norm) load_head_norms(args, shared, op.layer, warp * 32 + lane);
  wait_ops_completed(shared.control, ops_before_input(op), lane);
  ptx::bar_sync<kMathBarrier>(kMathThreads);  // no warp multiplies activations of qkv any more
  if (warp == 0 && lane == 0) stamp(args, op, 0);
#pragma unroll 1
  for (int item = op.first; item < op.items; item += gridDim.x) {
    const AttentionRun run = attention_run(args, shared.control.rows, op, item);
    if (run.first_split >= run.end_split) continue;
    // For combine_warps: kept in registers it spills, found again it costs divisions.
    if (warp == 0 && lane == 0) shared.control.run = run;
    switch (args.kv_format) {
      case KvFormat::bf16:
        attend(run, std::integral_constant<KvFormat, KvFormat::bf16>());
        break;
      case KvFormat::f16:
        attend(run, std::integral_constant<KvFormat, KvFormat::f16>());
        break;
      case KvFormat::fp8:
        attend(run, std::integral_constant<KvFormat, KvFormat::fp8>());
        break;
      case KvFormat::int8:
        attend(run, std::integral_constant<KvFormat, KvFormat::int8>());
        break;
    }
    // Before results are written (invariant 5).
    if (warp == 0) wait_ops_completed(shared.control, ops_before_epilogue(op), lane);
    ptx::bar_sync<kMathBarrier>(kMathThreads);
    const SplitStates states(args, op, shared.control.run);
    combine_warps<kFormat, kRows, kVariant>(args, shared, shared.control.run, states,
                                            warp * 32 + lane);
    // The states in shared memory have been read.
    ptx::bar_sync<kMathBarrier>(kMathThreads);
  }

  // Step 4. Run r of the n runs of a row merges each n-th 32 outputs, from the r-th on.
#pragma unroll 1
  for (int item = op.first; op.splits > 1 && item < op.items; item += gridDim.x) {
    const AttentionRun run = attention_run(args, shared.control.rows, op, item);
    if (run.splits == 1 || run.first_split >= run.end_split) continue;
    const SplitStates states(args, op, run);
    const int runs = (run.splits + op.run_splits - 1) / op.run_splits;
#pragma unroll 1
    for (int at = item % op.runs + warp * runs; at < states.outputs / 32; at += kMathWarps * runs) {
      const int o = at * 32 + lane;
      const float out = merge_splits(states, run.splits, o, states.head_of(o));
      store_input<kFormat, kRows, kVariant>(args, OpKind::out,
                                            attention_output<kRows>(args, run, states.outputs, o),
                                            bf16_bits(out * activation_scale(kFormat)));
    }
  }
  ptx::bar_sync<kMathBarrier>(kMathThreads);
}

}  // namespace ridge::cuda
#endif
