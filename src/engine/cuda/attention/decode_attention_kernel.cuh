// The kernel of attention_single.cuh.
#pragma once

#include "base/ptx/execution.cuh"
#include "base/ptx/memory_order.cuh"
#include "engine/cuda/attention/decode_attention_producer.cuh"

namespace ridge::cuda {

#ifdef RIDGE_HOPPER

template <int kD, KvFormat kFormat>
struct SingleBlock : SingleFeed<kD, kFormat> {
  using Feed = SingleFeed<kD, kFormat>;
  using Feed::barriers_ready, Feed::stage, Feed::stages_of;
  using Feed::kHeadDim, Feed::launch, Feed::shared, Feed::lane;
  using typename Feed::Shape;
  static constexpr int kThreads = kAttending * 32;
  static constexpr int kQuads = kHeadDim / 4;  // of a column's outputs
  static constexpr int kRecord = partial_record_size(kHeadDim), kSums = kColumns * kHeadDim;

  __device__ void attend_pages(int warp) const {
    const AttentionArgs& args = launch.args;
    const int t = lane % 4;
    unsigned first_stage = 0, counted = 0;
    bool spans = false;  // the item before was one of several
    barriers_ready();
#pragma unroll 1
    for (int n = 0;; ++n) {
      const auto join_before = [&] {
        if (!spans) return;
        ptx::mbarrier_wait(&shared.counted, counted & 1);
        if (shared.last[counted % 2]) join_spans(shared.items[(n - 1) % kItemRing], warp);
        ++counted;
      };
      ptx::mbarrier_wait(&shared.ready[n % kAhead], n / kAhead & 1);
      const DecodeItem& item = shared.items[n % kItemRing];
      if (item.page_count == 0) return join_before();
      HeadFragment<kD> q;
#pragma unroll
      for (int j = 0; j < kD; ++j) {
        const uint2 pair = shared.queries[n % kAhead][j][lane];
        q[j][0] = pair.x, q[j][1] = pair.y;
      }
      float scale[2];
      int low[2], high[2];
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        scale[c] = shared.scale[n % kAhead][t * 2 + c];
        const int column = min(item.column + t * 2 + c, item.rows * launch.group.by - 1);
        high[c] = item.past + launch.group.quotient(column) + 1;
        low[c] = args.window > 0 ? max(0, high[c] - args.window) : 0;
      }
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&shared.taken[n % kAhead]);
      const int stages = stages_of(item), pages = item.page_count;
      const int latest = item.first_page + pages - 1;
      SoftmaxState<kD> state;
#pragma unroll 1
      for (int s = warp; s < stages; s += kAttending) {
        const uint8_t* page = stage(first_stage + s);
#pragma unroll 1
        for (int i = s * Shape::kTogether; i < min((s + 1) * Shape::kTogether, pages); ++i) {
          attend_page<kD, kFormat>(
              state, q, scale, args.softcap, (latest - i) * kPageTokens,
              [&](int token, int c) { return token >= low[c] && token < high[c]; }, lane, page);
          page += Shape::kPageBytes;
        }
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(&shared.empty[(first_stage + s) % Shape::kSlots]);
      }
      first_stage += stages;
      finish_softmax<kD, kFormat>(state);
      join_before();
      join(item, state, warp);
      spans = item.spans > 1;
      if (spans && lane == 0) ptx::mbarrier_arrive(&shared.written);
    }
  }

  // Four outputs of a column, from d on.
  __device__ void write(const DecodeItem& item, int column, int d, float4 out, float sum) const {
    const int packed = item.column + column, group = launch.group.by;
    if (packed >= item.rows * group) return;
    const int token = launch.group.quotient(packed), head = packed - token * group;
    const float part = 1 / sum;
    *reinterpret_cast<uint2*>(launch.args.out +
                              wide_at((item.kv_head * group + head) * kHeadDim + d,
                                      item.row + token, launch.args.out_tokens)) = {
        pack_bf16(out.x * part, out.y * part), pack_bf16(out.z * part, out.w * part)};
  }

  static __device__ void add(float4& to, float share, const float4& v) {
    to = {to.x + share * v.x, to.y + share * v.y, to.z + share * v.z, to.w + share * v.w};
  }

  // The warps' states, into the output or a record of a span.
  __device__ void join(const DecodeItem& item, const SoftmaxState<kD>& state, int warp) const {
    const int g = lane / 4, t = lane % 4;
    if (g == 0) {
      *reinterpret_cast<float2*>(&shared.most[warp][t * 2]) = {state.max[0], state.max[1]};
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
    for (int o = warp * 32 + lane; o < kColumns * kQuads; o += kThreads) {
      const int column = o / kQuads, d = o % kQuads * 4;
      float most = kMaskedScore, sum = 0;
      float4 out = {0, 0, 0, 0};
#pragma unroll
      for (int w = 0; w < kAttending; ++w) most = fmaxf(most, shared.most[w][column]);
#pragma unroll
      for (int w = 0; w < kAttending; ++w) {
        const float share = exp2f(shared.most[w][column] - most);
        sum += share * shared.sum[w][column];
        add(out, share, *reinterpret_cast<const float4*>(&shared.out[w][column][d]));
      }
      if (item.spans == 1) {
        write(item, column, d, out, sum);
      } else {
        float* to = launch.partial + size_t(item.record + item.span) * kRecord;
        *reinterpret_cast<float4*>(to + o * 4) = out;
        if (d == 0) *reinterpret_cast<float2*>(to + kSums + column * 2) = {most, sum};
      }
    }
    ptx::bar_sync<1>(kThreads);
  }

  __device__ void join_spans(const DecodeItem& item, int warp) const {
#pragma unroll 1
    for (int o = warp * 32 + lane; o < kColumns * kQuads; o += kThreads) {
      const float* from = launch.partial + size_t(item.record) * kRecord;
      const int column = o / kQuads;
      float most = kMaskedScore, sum = 0;
      float4 out = {0, 0, 0, 0};
#pragma unroll 4
      for (int span = 0; span < item.spans; ++span, from += kRecord) {
        const float2 its = __ldcg(reinterpret_cast<const float2*>(from + kSums + column * 2));
        const float4 v = __ldcg(reinterpret_cast<const float4*>(from + o * 4));
        const float both = fmaxf(most, its.x);
        const float keep = exp2f(most - both), share = exp2f(its.x - both);
        sum = sum * keep + its.y * share;
        out = {out.x * keep, out.y * keep, out.z * keep, out.w * keep};
        add(out, share, v);
        most = both;
      }
      write(item, column, o % kQuads * 4, out, sum);
    }
  }

  // One warp: counts the spans that are done, while the others go on.
  __device__ void count_spans() const {
    SingleShare share(launch);
    barriers_ready();
#pragma unroll 1
    for (unsigned n = 0;;) {
      const DecodeItem item = share.take();
      if (item.page_count == 0) return;
      if (item.spans == 1) continue;
      ptx::mbarrier_wait(&shared.written, n & 1);
      if (lane == 0) {
        unsigned* arrived = launch.arrived + item.counter;
        const bool last = ptx::atom_release_increment(arrived) == unsigned(item.spans - 1);
        if (last) {
          *arrived = 0;
          __threadfence();
        }
        shared.last[n % 2] = last;
        ptx::mbarrier_arrive(&shared.counted);
      }
      ++n;
    }
  }
};

#endif

template <int kD, KvFormat kFormat>
__global__ void __launch_bounds__(kSingleThreads, 1)
    single_kernel(const __grid_constant__ DecodeAttentionLaunch launch) {
#ifdef RIDGE_HOPPER
  extern __shared__ __align__(128) uint8_t memory[];
  auto& shared = *reinterpret_cast<SingleShared<kD, kFormat>*>(memory);
  static_assert(sizeof(shared) <= SingleShape<kD, kFormat>::kSharedBytes);
  if (threadIdx.x < SingleShape<kD, kFormat>::kSlots) {
    ptx::mbarrier_init(&shared.full[threadIdx.x], 1);
    ptx::mbarrier_init(&shared.empty[threadIdx.x], 1);
  }
  if (threadIdx.x == 0) {
    shared.asked = 0;
    ptx::mbarrier_init(&shared.written, kAttending);
    ptx::mbarrier_init(&shared.counted, 1);
  }
  if (threadIdx.x < kAhead) {
    ptx::mbarrier_init(&shared.ready[threadIdx.x], 2);
    ptx::mbarrier_init(&shared.taken[threadIdx.x], kAttending);
  }
  ptx::fence_proxy_async();
  ptx::griddepcontrol_launch_dependents();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const SingleBlock<kD, kFormat> block{{launch, shared, lane}};
  if (warp < kAttending) {
    block.attend_pages(warp);
  } else if (warp == kAttending) {
    block.fetch_pages();
  } else if (warp == kAttending + 1) {
    block.turn_queries();
  } else if (warp == kAttending + 2) {
    block.add_own();
  } else {
    block.count_spans();
  }
#endif
}

}  // namespace ridge::cuda
