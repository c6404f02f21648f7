// The kernel of decode_attention.cuh: O = softmax(Q K^T) V for up to 8 query columns of a KV head
// per item, over the pages of the item. One persistent block per SM, its warps have roles:
//   warps 0-7   attention  each takes every eighth stage of an item and keeps an online softmax of
//                          8 columns; the warps then combine their states into the output or, with
//                          several splits, into a partial record. Of an item in parts, warps p,
//                          p + parts, ... write a record each
//   warp 8      KV         keeps the ring full, item after item, the latest pages first
//   warp 9      queries    norm and RoPE of the queries, an item ahead
//   warp 10     append     norm and RoPE of the step's key; key and value go to the latest page in
//                          the ring and to the cache
//   warp 11     splits     counts the finished splits and parts of an item
//
// Shared memory: decode_attention_layout.cuh. Barriers:
//   full / empty [slot]       KV -> attention and append, by transaction bytes; back by one arrival
//                             of the attention warp that read the stage
//   queries_full [2 stages]   queries and append -> attention (2 arrivals): the queries are ready
//                             and the latest page is complete
//   queries_empty [2 stages]  attention -> queries and append, one arrival per warp
//   partial_written           attention -> splits, one arrival per warp
//   splits_counted            splits -> attention: is_last is set. Attention waits for it only
//                             after the pages of the next item, so the atomic's latency is hidden
//   named barrier 1           the attention warps, around combine_warps()
#pragma once

#include "base/ptx/memory_order.cuh"
#include "engine/cuda/attention/decode_attention_producer.cuh"
#include "engine/cuda/elementwise/fp8_tokens.cuh"

namespace ridge::cuda {

#ifdef RIDGE_HOPPER

template <int kD, KvFormat kFormat>
struct DecodeAttention : DecodeProducers<kD, kFormat> {
  using Producers = DecodeProducers<kD, kFormat>;
  using Producers::kHeadDim, Producers::launch, Producers::shared, Producers::lane;
  using Producers::stage_count, Producers::part_stages;
  using Producers::sync_barrier_init, Producers::wait_stage;
  using typename Producers::Shape;
  static constexpr int kThreads = kAttentionWarps * 32;
  static constexpr int kQuads = kHeadDim / 4;  // float4s of a column's output
  // A partial record: outputs, then (maximum, sum) of each column.
  static constexpr int kRecord = partial_record_size(kHeadDim);
  static constexpr int kRecordSums = kQueryColumns * kHeadDim;

  // The attention warps.
  __device__ void attend_items(int warp) const {
    unsigned first_stage = 0, counted = 0;
    bool pending = false;  // the previous item has several records and is not combined yet
    sync_barrier_init();
#pragma unroll 1
    for (int n = 0;; ++n) {
      const auto combine_previous = [&] {
        if (!pending) return;
        ptx::mbarrier_wait(&shared.splits_counted, counted & 1);
        if (shared.is_last[counted % 2]) combine_records(shared.items[(n - 1) % kItemRing], warp);
        ++counted;
      };
      ptx::mbarrier_wait(&shared.queries_full[n % kQueryStages], n / kQueryStages & 1);
      const DecodeItem& item = shared.items[n % kItemRing];
      if (item.page_count == 0) return combine_previous();
      SoftmaxState<kD> state;
      first_stage += attend_item(item, n % kQueryStages, first_stage, warp, state);
      finish_softmax<kD, kFormat>(state);
      combine_previous();
      if (item.log2_parts > 0) {
        if (in_part(item, warp)) write_state(item, state, warp);
        __syncwarp();
      } else {
        combine_warps(item, state, warp);
      }
      pending = item.splits << item.log2_parts > 1;
      if (pending && lane == 0) ptx::mbarrier_arrive(&shared.partial_written);
    }
  }

  static __device__ bool in_part(const DecodeItem& item, int warp) {
    return (warp & item.parts() - 1) == item.part;
  }

  // This warp's stages of an item. Returns the number of stages of this part.
  __device__ __forceinline__ int attend_item(const DecodeItem& item, int query_stage,
                                             unsigned first_stage, int warp,
                                             SoftmaxState<kD>& state) const {
    const AttentionArgs& args = launch.args;
    const int t = lane % 4;
    HeadFragment<kD> q;
#pragma unroll
    for (int j = 0; j < kD; ++j) {
      const uint2 pair = shared.queries[query_stage][j][lane];
      q[j][0] = pair.x, q[j][1] = pair.y;
    }
    float scale[2];
    int low[2], high[2];  // keys that the lane's columns attend to
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      scale[c] = shared.scale[query_stage][t * 2 + c];
      const int column = min(item.column + t * 2 + c, item.rows * launch.group.by - 1);
      high[c] = item.past + launch.group.quotient(column) + 1;
      low[c] = args.window > 0 ? max(0, high[c] - args.window) : 0;
    }
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&shared.queries_empty[query_stage]);
    const int stages = in_part(item, warp) ? stage_count(item) : 0;
    const int pages = item.page_count, latest = item.first_page + pages - 1;
    const int each = kAttentionWarps >> item.log2_parts;
    unsigned n = first_stage + (warp >> item.log2_parts);  // stage of this block
#pragma unroll 1
    for (int s = warp; s < stages; s += kAttentionWarps, n += each) {
      const uint8_t* page = wait_stage(n);
#pragma unroll 1
      for (int i = s * Shape::kStagePages; i < min((s + 1) * Shape::kStagePages, pages); ++i) {
        attend_page<kD, kFormat>(
            state, q, scale, args.softcap, (latest - i) * kPageTokens,
            [&](int token, int c) { return token >= low[c] && token < high[c]; }, lane, page);
        page += Shape::kPageBytes;
      }
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&shared.empty[n % Shape::kSlots]);
    }
    return part_stages(item);
  }

  // Writes four outputs of a column, from dimension d on.
  __device__ void write(const DecodeItem& item, int column, int d, float4 out, float max,
                        float sum) const {
    const int packed = item.column + column, group = launch.group.by;
    const bool valid = packed < item.rows * group;
    if (!valid && !launch.args.fp8_out) return;
    const int token = launch.group.quotient(packed), head = packed - token * group;
    if (launch.args.sinks) {
      constexpr float kExponent = kFormat == KvFormat::bf16 ? 0 : kF16Exponent;  // of the weights
      const float sink = launch.args.sinks[item.kv_head * group + head] * kLog2e;
      sum += exp2f(fminf(sink - max + kExponent, 120.0f));
    }
    const float inverse = 1 / sum;
    out = {out.x * inverse, out.y * inverse, out.z * inverse, out.w * inverse};
    const int to_column = (item.kv_head * group + head) * kHeadDim + d, to_row = item.row + token;
    if (launch.args.fp8_out) return write_fp8(to_column, to_row, out, valid);
    *reinterpret_cast<uint2*>(launch.args.out +
                              wide_at(to_column, to_row, launch.args.out_tokens)) = {
        pack_bf16(out.x, out.y), pack_bf16(out.z, out.w)};
  }

  // The same in E4M3. The lanes of a head, at most a warp, share a scale.
  __device__ void write_fp8(int column, int row, const float4& out, bool valid) const {
    float largest = fmaxf(fmaxf(fabsf(out.x), fabsf(out.y)), fmaxf(fabsf(out.z), fabsf(out.w)));
#pragma unroll
    for (int i = 1; i < (kQuads < 32 ? kQuads : 32); i *= 2) {
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, i));
    }
    const Quantization quantized = quantization<KvFormat::fp8>(largest);
    uint8_t* const to = reinterpret_cast<uint8_t*>(launch.args.out);
    const int tokens = launch.args.out_tokens;
    store_fp8_quad(to, column, row, tokens, out, quantized.factor, valid);
    if (valid && column % 64 == 0) {
      *reinterpret_cast<float*>(to + fp8_group_scale_at(column, row, tokens)) = quantized.scale;
    }
  }

  // Four outputs of a column with the maximum and the sum of their softmax.
  struct Outputs {
    float max = kMaskedScore, sum = 0;
    float4 out = {0, 0, 0, 0};

    __device__ void add(float factor, const float2& max_sum, const float4& v) {
      sum = __fmaf_rn(factor, max_sum.y, sum);
      out = {__fmaf_rn(factor, v.x, out.x), __fmaf_rn(factor, v.y, out.y),
             __fmaf_rn(factor, v.z, out.z), __fmaf_rn(factor, v.w, out.w)};
    }
  };

  // The states of the 8 warps of an item, from max_sum(warp) and out(warp).
  template <typename MaxSum, typename Out>
  static __device__ __forceinline__ Outputs combine_states(const MaxSum& max_sum, const Out& out) {
    Outputs all;
    float2 of_warp[kAttentionWarps];
#pragma unroll
    for (int w = 0; w < kAttentionWarps; ++w) {
      of_warp[w] = max_sum(w);
      all.max = fmaxf(all.max, of_warp[w].x);
    }
#pragma unroll
    for (int w = 0; w < kAttentionWarps; ++w) {
      all.add(exp2f(of_warp[w].x - all.max), of_warp[w], out(w));
    }
    return all;
  }

  // A part of an item: this warp's state becomes record split * 8 + warp.
  __device__ void write_state(const DecodeItem& item, const SoftmaxState<kD>& state,
                              int warp) const {
    const int g = lane / 4, t = lane % 4;
    float* to =
        launch.partials + size_t(item.partial + item.split * kAttentionWarps + warp) * kRecord;
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const int column = t * 2 + c;
      if (g == 0) {
        *reinterpret_cast<float2*>(to + kRecordSums + column * 2) = {state.max[c], state.sum[c]};
      }
#pragma unroll
      for (int j = 0; j < kD; ++j) {
        to[column * kHeadDim + j * 16 + g] = state.out[j][c];
        to[column * kHeadDim + j * 16 + g + 8] = state.out[j][2 + c];
      }
    }
  }

  // Combines the warps' states into the output, or into the partial record of a split.
  __device__ void combine_warps(const DecodeItem& item, const SoftmaxState<kD>& state,
                                int warp) const {
    const int g = lane / 4, t = lane % 4;
    if (g == 0) {
      *reinterpret_cast<float2*>(&shared.max[warp][t * 2]) = {state.max[0], state.max[1]};
      *reinterpret_cast<float2*>(&shared.sum[warp][t * 2]) = {state.sum[0], state.sum[1]};
    }
#pragma unroll
    for (int j = 0; j < kD; ++j) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        shared.out[warp][t * 2 + v % 2][j * 16 + g + v / 2 * 8] = state.out[j][v];
      }
    }
    ptx::bar_sync<1>(kThreads);
#pragma unroll 1
    for (int o = warp * 32 + lane; o < kQueryColumns * kQuads; o += kThreads) {
      const int column = o / kQuads, d = o % kQuads * 4;
      const Outputs all = combine_states(
          [&](int w) {
            return float2{shared.max[w][column], shared.sum[w][column]};
          },
          [&](int w) { return *reinterpret_cast<const float4*>(&shared.out[w][column][d]); });
      if (item.splits == 1) {
        write(item, column, d, all.out, all.max, all.sum);
      } else {
        float* to = launch.partials + size_t(item.partial + item.split) * kRecord;
        *reinterpret_cast<float4*>(to + o * 4) = all.out;
        if (d == 0) *reinterpret_cast<float2*>(to + kRecordSums + column * 2) = {all.max, all.sum};
      }
    }
    ptx::bar_sync<1>(kThreads);
  }

  // Combines the partial records of all splits, in order, and before that those of a split's warps.
  __device__ void combine_records(const DecodeItem& item, int warp) const {
#pragma unroll 1
    for (int o = warp * 32 + lane; o < kQueryColumns * kQuads; o += kThreads) {
      const float* from = launch.partials + size_t(item.partial) * kRecord;
      const int column = o / kQuads;
      const auto max_sum = [&](int i) {
        return __ldcg(
            reinterpret_cast<const float2*>(from + i * kRecord + kRecordSums + column * 2));
      };
      const auto out = [&](int i) {
        return __ldcg(reinterpret_cast<const float4*>(from + i * kRecord + o * 4));
      };
      Outputs all;
      const auto merge = [&](const float2& split, const float4& v) {
        const float both = fmaxf(all.max, split.x), rescale = exp2f(all.max - both);
        all.max = both, all.sum *= rescale;
        all.out = {all.out.x * rescale, all.out.y * rescale, all.out.z * rescale,
                   all.out.w * rescale};
        all.add(exp2f(split.x - both), split, v);
      };
      if (item.log2_parts > 0) {
#pragma unroll 1
        for (int split = 0; split < item.splits; ++split, from += kAttentionWarps * kRecord) {
          const Outputs of_split = combine_states(max_sum, out);
          merge({of_split.max, of_split.sum}, of_split.out);
        }
      } else {
#pragma unroll 4
        for (int split = 0; split < item.splits; ++split) merge(max_sum(split), out(split));
      }
      write(item, column, o % kQuads * 4, all.out, all.max, all.sum);
    }
  }

  // The splits warp. The last block to arrive at an item's counter resets it.
  __device__ void count_splits() const {
    DecodeScheduler scheduler(launch);
    sync_barrier_init();
#pragma unroll 1
    for (unsigned n = 0;;) {
      const DecodeItem item = scheduler.next();
      if (item.page_count == 0) return;
      const int records = item.splits << item.log2_parts;
      if (records == 1) continue;
      ptx::mbarrier_wait(&shared.partial_written, n & 1);
      if (lane == 0) {
        unsigned* arrived = launch.arrived + item.counter;
        const bool last = ptx::atom_release_increment(arrived) == unsigned(records - 1);
        if (last) {
          *arrived = 0;
          __threadfence();
        }
        shared.is_last[n % 2] = last;
        ptx::mbarrier_arrive(&shared.splits_counted);
      }
      ++n;
    }
  }
};

#endif

template <int kD, KvFormat kFormat>
__global__ void __launch_bounds__(kDecodeAttentionThreads, 1)
    decode_attention_kernel(const __grid_constant__ DecodeAttentionLaunch launch) {
#ifdef RIDGE_HOPPER
  extern __shared__ __align__(128) uint8_t memory[];
  auto& shared = *reinterpret_cast<DecodeAttentionShared<kD, kFormat>*>(memory);
  static_assert(sizeof(shared) <= DecodeAttentionShape<kD, kFormat>::kSharedBytes);
  if (threadIdx.x < DecodeAttentionShape<kD, kFormat>::kSlots) {
    ptx::mbarrier_init(&shared.full[threadIdx.x], 1);
    ptx::mbarrier_init(&shared.empty[threadIdx.x], 1);
  }
  if (threadIdx.x == 0) {
    shared.stages_issued = 0;
    ptx::mbarrier_init(&shared.partial_written, kAttentionWarps);
    ptx::mbarrier_init(&shared.splits_counted, 1);
  }
  if (threadIdx.x < kQueryStages) {
    ptx::mbarrier_init(&shared.queries_full[threadIdx.x], 2);
    ptx::mbarrier_init(&shared.queries_empty[threadIdx.x], kAttentionWarps);
  }
  ptx::fence_proxy_async();
  ptx::griddepcontrol_launch_dependents();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const DecodeAttention<kD, kFormat> block{{launch, shared, lane}};
  if (warp < kAttentionWarps) {
    block.attend_items(warp);
  } else if (warp == kAttentionWarps) {
    block.produce_pages();
  } else if (warp == kAttentionWarps + 1) {
    block.produce_queries();
  } else if (warp == kAttentionWarps + 2) {
    block.append_kv();
  } else {
    block.count_splits();
  }
#endif
}

}  // namespace ridge::cuda
