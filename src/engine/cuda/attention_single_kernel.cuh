// The kernel of attention_single.cuh.
#pragma once

#include "engine/cuda/attend.cuh"
#include "engine/cuda/attention_single.cuh"
#include "engine/cuda/device.cuh"

namespace ridge::cuda {

constexpr int kAttending = 8;  // warps
constexpr int kSingleThreads = (kAttending + 4) * 32;
constexpr int kAtOnce = 4;            // stages that are asked for together: one by one is too slow
constexpr int kColumns = 8;           // of the MMA
constexpr int kAhead = 2;             // items whose queries are ready
constexpr int kItemRing = 4;          // those, and the one being written
constexpr int kUnderWay = 96 * 1024;  // bytes of an SM that memory has been asked for at a time

template <int kD, KvFormat kFormat>
struct SingleShape {
  static constexpr int kHeadDim = 16 * kD;
  static constexpr int kPageBytes = page_bytes(kFormat, kHeadDim);
  // Of a stage: small ones would come one by one too slowly.
  static constexpr int kTogether = kPageBytes > 5000 ? 1 : kPageBytes > 2500 ? 2 : 4;
  static constexpr int kStageBytes = kTogether * kPageBytes;
  static constexpr int kPadded = kHeadDim + 4;  // columns of a quad's lanes in different banks
  static constexpr int kOtherBytes = kAttending * kColumns * kPadded * 4 + kAhead * kD * 32 * 8 +
                                     (kColumns + 1) * 8 * kD * 8 + 3 * 1024;
  static constexpr int kSlots = (227 * 1024 - kOtherBytes) / kStageBytes;
  // A barrier tells a phase from the next alone: who waits for a slot's next stage must know that
  // the one before it has arrived. An attending warp knows that of its last stage, and of all that
  // came kFlying before it.
  static constexpr int kMostFlying = kSlots % kAttending == 0 ? kSlots : kSlots - kAttending;
  static constexpr int kFlying =
      kUnderWay / kStageBytes < kMostFlying ? kUnderWay / kStageBytes : kMostFlying;
  static constexpr int kSharedBytes = kOtherBytes + kSlots * kStageBytes;
};

#ifdef RIDGE_HOPPER

template <int kD, KvFormat kFormat>
struct SingleShared {
  using Shape = SingleShape<kD, kFormat>;
  uint8_t ring[Shape::kSlots][Shape::kStageBytes];
  float out[kAttending][kColumns][Shape::kPadded];  // of each warp
  uint2 queries[kAhead][kD][32];                    // as the lanes hold them
  float2 rotation[kColumns][8 * kD], own_rotation[8 * kD];
  SingleItem items[kItemRing];
  float scale[kAhead][kColumns];  // of the scores
  float most[kAttending][kColumns], sum[kAttending][kColumns];
  uint64_t full[Shape::kSlots], empty[Shape::kSlots];
  uint64_t ready[kAhead], taken[kAhead];  // queries, and the step's own key and value
  unsigned asked;                         // stages that memory has been asked for
  uint64_t written, counted;              // an item's part of several spans
  int last[2];                            // whether all parts are there, of items in turn
};

// This block's items, read one ahead; the last has no pages.
class SingleShare {
 public:
  __device__ explicit SingleShare(const SingleLaunch& launch)
      : at_(launch.items + blockIdx.x), next_(*at_) {}
  __device__ SingleItem take() {
    const SingleItem item = next_;
    if (item.page_count > 0) next_ = *(at_ += gridDim.x);
    return item;
  }

 private:
  const SingleItem* at_;
  SingleItem next_;
};

// A token's rotations, by a warp.
template <int kD>
__device__ inline void rotations(float2* to, const AttentionArgs& args, int position, int lane) {
#pragma unroll 1
  for (int i = lane; i < 8 * kD; i += 32) {
    float sine, cosine;
    sincosf(static_cast<float>(position) * args.frequency[i], &sine, &cosine);
    to[i] = {cosine * args.magnitude, sine * args.magnitude};
  }
}

template <int kD, KvFormat kFormat>
struct SingleBlock {
  using Shape = SingleShape<kD, kFormat>;
  static constexpr int kHeadDim = Shape::kHeadDim, kThreads = kAttending * 32;
  static constexpr int kQuads = kHeadDim / 4;  // of a column's outputs
  static constexpr int kRecord = single_record(kHeadDim), kSums = kColumns * kHeadDim;
  const SingleLaunch& launch;
  SingleShared<kD, kFormat>& shared;
  const int lane;

  static __device__ int stages_of(const SingleItem& item) {
    return (item.page_count + Shape::kTogether - 1) / Shape::kTogether;
  }
  // Waits for the n-th stage of this block; where it lies.
  __device__ uint8_t* stage(unsigned n) const {
    wait(&shared.full[n % Shape::kSlots], n / Shape::kSlots & 1);
    return shared.ring[n % Shape::kSlots];
  }
  __device__ int columns() const {
    return (launch.args.heads + 2 * launch.args.kv_heads) * kHeadDim;
  }

  // Every role calls it once, when it has asked for what it needs first.
  static __device__ void barriers_ready() { __syncthreads(); }

  // Page numbers are read 32 at once and well ahead.
  struct Pages {
    int count = 0, kv_head;
    int number;  // of this lane's page
    bool late;   // this step's other kernels write to them
  };
  struct PageWalk {
    SingleShare share;
    SingleItem item = {};
    int done = 0;
    __device__ Pages next(const SingleLaunch& launch, int lane) {
      Pages pages;
      if (done >= item.page_count) item = share.take(), done = 0;
      pages.count = min(32, item.page_count - done);
      if (pages.count == 0) return pages;
      pages.kv_head = item.kv_head;
      pages.late = item.rows > 1;
      const int page = item.first_page + item.page_count - 1 - done - min(lane, pages.count - 1);
      pages.number = launch.args.pages[item.pages + page];
      done += pages.count;
      return pages;
    }
  };

  __device__ void fetch_pages() const {
    PageWalk walk{SingleShare(launch)};
    Pages now = walk.next(launch, lane);
    barriers_ready();
    const uint64_t once = evict_first();
    unsigned n = 0;
#pragma unroll 1
    while (now.count > 0) {
      const Pages ahead = walk.next(launch, lane);
      if (now.late) after_previous();
#pragma unroll 1
      for (int p = 0; p < now.count; p += kAtOnce * Shape::kTogether) {
        const int count = min(kAtOnce * Shape::kTogether, now.count - p);  // of pages
        const int number = __shfl_sync(0xffffffffu, now.number, (p + lane) % 32);
        const unsigned its = n + lane / Shape::kTogether;
        const int slot = its % Shape::kSlots, in_stage = lane % Shape::kTogether;
        if (lane < count && in_stage == 0) {
          if (its >= Shape::kFlying) stage(its - Shape::kFlying);
          wait(&shared.empty[slot], its / Shape::kSlots & 1 ^ 1);
          arrive_expecting(&shared.full[slot],
                           min(Shape::kTogether, count - lane) * Shape::kPageBytes);
        }
        __syncwarp();
        if (lane < count) {
          fetch(shared.ring[slot] + in_stage * Shape::kPageBytes,
                launch.args.kv +
                    (size_t(number) * launch.args.kv_heads + now.kv_head) * Shape::kPageBytes,
                Shape::kPageBytes, &shared.full[slot], once);
        }
        n += (count + Shape::kTogether - 1) / Shape::kTogether;
        if (lane == 0) *const_cast<volatile unsigned*>(&shared.asked) = n;
      }
      now = ahead;
    }
  }

  __device__ void turn_queries() const {
    const AttentionArgs& args = launch.args;
    const int g = lane / 4, t = lane % 4, group = launch.group.by;
    SingleShare share(launch);
    barriers_ready();
#pragma unroll 1
    for (int n = 0;; ++n) {
      const SingleItem item = share.take();
      const int to = n % kAhead;
      if (item.page_count == 0) {
        wait(&shared.taken[to], n / kAhead & 1 ^ 1);
        if (lane == 0) {
          shared.items[n % kItemRing].page_count = 0;
          arrive(&shared.ready[to]);
        }
        return;
      }
      const int packed = item.rows * group, column = item.column + g;
      const int first = launch.group.quotient(item.column);
      const int token = launch.group.quotient(min(column, packed - 1));
      const int last = launch.group.quotient(min(item.column + kColumns, packed) - 1);
#pragma unroll 1
      for (int i = first; i <= last; ++i) {
        rotations<kD>(shared.rotation[i - first], args, item.past + i, lane);
      }
      __syncwarp();
      after_previous();
      Floats<kD> floats;
      const int head = item.kv_head * group + column - token * group;
      load<kD>(floats, args.qkv + size_t(item.row + token) * columns() + head * kHeadDim,
               column < packed, t);
      turn<kD>(floats, args.q_norm, args.eps, shared.rotation[token - first], t);
      Pairs<kD> q;
      const float factor = pack_query<kD, kFormat>(q, floats);
      wait(&shared.taken[to], n / kAhead & 1 ^ 1);
#pragma unroll
      for (int j = 0; j < kD; ++j) shared.queries[to][j][lane] = {q[j][0], q[j][1]};
      if (t == 0) shared.scale[to][g] = args.scale * factor;
      if (lane == 0) shared.items[n % kItemRing] = item;
      __syncwarp();
      if (lane == 0) arrive(&shared.ready[to]);
    }
  }

  // Of a sequence with one token in this step.
  __device__ void add_own() const {
    const AttentionArgs& args = launch.args;
    SingleShare share(launch);
    barriers_ready();
    unsigned first_stage = 0;
#pragma unroll 1
    for (int n = 0;; ++n) {
      const SingleItem item = share.take();
      const int page = item.past / kPageTokens;
      const bool own = item.rows == 1 && item.first_page + item.page_count == page + 1;
      if (own) {
        rotations<kD>(shared.own_rotation, args, item.past, lane);
        const int number = args.pages[item.pages + page];
        uint8_t* cached =
            item.column == 0
                ? args.kv + (size_t(number) * args.kv_heads + item.kv_head) * Shape::kPageBytes
                : nullptr;
        __syncwarp();
        after_previous();
        const float* from =
            args.qkv + size_t(item.row) * columns() + (args.heads + item.kv_head) * kHeadDim;
        Floats<kD> key;
        load<kD>(key, from, lane < 4, lane % 4);
        float value[kD / 2];
#pragma unroll
        for (int i = 0; i < kD / 2; ++i) {
          value[i] = __ldcg(from + args.kv_heads * kHeadDim + lane + 32 * i);
        }
        turn<kD>(key, args.k_norm, args.eps, shared.own_rotation, lane % 4);
        // A barrier tells a phase from the next alone: not before its slot's last one is over.
        while (*const_cast<volatile unsigned*>(&shared.asked) <= first_stage) __nanosleep(64);
        uint8_t* latest = stage(first_stage);
        const int slot = item.past % kPageTokens;
        put_key<kD, kFormat>(key, lane < 4, slot, lane % 4, latest, cached);
        put_value<kD, kFormat>(value, slot, lane, latest, cached);
        fence_proxy_shared();  // a bulk copy comes next to where it has written
      }
      first_stage += stages_of(item);
      wait(&shared.taken[n % kAhead], n / kAhead & 1 ^ 1);
      __syncwarp();
      if (lane == 0) arrive(&shared.ready[n % kAhead]);
      if (item.page_count == 0) return;
    }
  }

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
        wait(&shared.counted, counted & 1);
        if (shared.last[counted % 2]) join_spans(shared.items[(n - 1) % kItemRing], warp);
        ++counted;
      };
      wait(&shared.ready[n % kAhead], n / kAhead & 1);
      const SingleItem& item = shared.items[n % kItemRing];
      if (item.page_count == 0) return join_before();
      Pairs<kD> q;
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
      if (lane == 0) arrive(&shared.taken[n % kAhead]);
      const int stages = stages_of(item), pages = item.page_count;
      const int latest = item.first_page + pages - 1;
      State<kD> state;
#pragma unroll 1
      for (int s = warp; s < stages; s += kAttending) {
        const uint8_t* page = stage(first_stage + s);
#pragma unroll 1
        for (int i = s * Shape::kTogether; i < min((s + 1) * Shape::kTogether, pages); ++i) {
          attend<kD, kFormat>(
              state, q, scale, args.softcap, (latest - i) * kPageTokens,
              [&](int token, int c) { return token >= low[c] && token < high[c]; }, lane, page);
          page += Shape::kPageBytes;
        }
        __syncwarp();
        if (lane == 0) arrive(&shared.empty[(first_stage + s) % Shape::kSlots]);
      }
      first_stage += stages;
      finish<kD, kFormat>(state);
      join_before();
      join(item, state, warp);
      spans = item.spans > 1;
      if (spans && lane == 0) arrive(&shared.written);
    }
  }

  // Four outputs of a column, from d on.
  __device__ void write(const SingleItem& item, int column, int d, float4 out, float sum) const {
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
  __device__ void join(const SingleItem& item, const State<kD>& state, int warp) const {
    const int g = lane / 4, t = lane % 4;
    if (g == 0) {
      *reinterpret_cast<float2*>(&shared.most[warp][t * 2]) = {state.most[0], state.most[1]};
      *reinterpret_cast<float2*>(&shared.sum[warp][t * 2]) = {state.sum[0], state.sum[1]};
    }
#pragma unroll
    for (int j = 0; j < kD; ++j) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        shared.out[warp][t * 2 + v % 2][j * 16 + g + v / 2 * 8] = state.out[j][v];
      }
    }
    meet<1>(kThreads);
#pragma unroll 1
    for (int o = warp * 32 + lane; o < kColumns * kQuads; o += kThreads) {
      const int column = o / kQuads, d = o % kQuads * 4;
      float most = kNone, sum = 0;
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
    meet<1>(kThreads);
  }

  __device__ void join_spans(const SingleItem& item, int warp) const {
#pragma unroll 1
    for (int o = warp * 32 + lane; o < kColumns * kQuads; o += kThreads) {
      const float* from = launch.partial + size_t(item.record) * kRecord;
      const int column = o / kQuads;
      float most = kNone, sum = 0;
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
      const SingleItem item = share.take();
      if (item.page_count == 0) return;
      if (item.spans == 1) continue;
      wait(&shared.written, n & 1);
      if (lane == 0) {
        unsigned* arrived = launch.arrived + item.counter;
        const bool last = add_releasing(arrived) == unsigned(item.spans - 1);
        if (last) {
          *arrived = 0;
          __threadfence();
        }
        shared.last[n % 2] = last;
        arrive(&shared.counted);
      }
      ++n;
    }
  }
};

#endif

template <int kD, KvFormat kFormat>
__global__ void __launch_bounds__(kSingleThreads, 1)
    single_kernel(const __grid_constant__ SingleLaunch launch) {
#ifdef RIDGE_HOPPER
  extern __shared__ __align__(128) uint8_t memory[];
  auto& shared = *reinterpret_cast<SingleShared<kD, kFormat>*>(memory);
  static_assert(sizeof(shared) <= SingleShape<kD, kFormat>::kSharedBytes);
  if (threadIdx.x < SingleShape<kD, kFormat>::kSlots) {
    init(&shared.full[threadIdx.x], 1);
    init(&shared.empty[threadIdx.x], 1);
  }
  if (threadIdx.x == 0) {
    shared.asked = 0;
    init(&shared.written, kAttending);
    init(&shared.counted, 1);
  }
  if (threadIdx.x < kAhead) {
    init(&shared.ready[threadIdx.x], 2);
    init(&shared.taken[threadIdx.x], kAttending);
  }
  fence_proxy();
  let_next_begin();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const SingleBlock<kD, kFormat> block{launch, shared, lane};
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
