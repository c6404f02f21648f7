// Of attention_single.cuh's kernel: what a block has, and the warps around those that attend.
#pragma once

#include "engine/cuda/attention/decode_attention.cuh"
#include "engine/cuda/attention/page_attention.cuh"
#include "engine/cuda/device.cuh"

namespace ridge::cuda {

constexpr int kAttending = 8;  // warps
constexpr int kSingleThreads = (kAttending + 4) * 32;
constexpr int kAtOnce = 4;            // stages that are asked for together: one by one is too slow
constexpr int kColumns = 8;           // of the MMA
constexpr int kAhead = 2;             // items whose queries are ready
constexpr int kItemRing = 4;          // those, and the one being written
constexpr int kUnderWay = 72 * 1024;  // bytes of an SM that memory has been asked for at a time

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
  DecodeItem items[kItemRing];
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
  __device__ explicit SingleShare(const DecodeAttentionLaunch& launch)
      : at_(launch.items + blockIdx.x), next_(*at_) {}
  __device__ DecodeItem take() {
    const DecodeItem item = next_;
    if (item.page_count > 0) next_ = *(at_ += gridDim.x);
    return item;
  }

 private:
  const DecodeItem* at_;
  DecodeItem next_;
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
struct SingleFeed {
  using Shape = SingleShape<kD, kFormat>;
  static constexpr int kHeadDim = Shape::kHeadDim;
  const DecodeAttentionLaunch& launch;
  SingleShared<kD, kFormat>& shared;
  const int lane;

  static __device__ int stages_of(const DecodeItem& item) {
    return (item.page_count + Shape::kTogether - 1) / Shape::kTogether;
  }
  // Waits for the n-th stage of this block; where it lies.
  __device__ uint8_t* stage(unsigned n) const {
    ptx::mbarrier_wait(&shared.full[n % Shape::kSlots], n / Shape::kSlots & 1);
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
    DecodeItem item = {};
    int done = 0;
    __device__ Pages next(const DecodeAttentionLaunch& launch, int lane) {
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
    const uint64_t once = ptx::createpolicy_evict_first();
    unsigned n = 0;
#pragma unroll 1
    while (now.count > 0) {
      const Pages ahead = walk.next(launch, lane);
      if (now.late) ptx::griddepcontrol_wait();
#pragma unroll 1
      for (int p = 0; p < now.count; p += kAtOnce * Shape::kTogether) {
        const int count = min(kAtOnce * Shape::kTogether, now.count - p);  // of pages
        const int number = __shfl_sync(0xffffffffu, now.number, (p + lane) % 32);
        const unsigned its = n + lane / Shape::kTogether;
        const int slot = its % Shape::kSlots, in_stage = lane % Shape::kTogether;
        if (lane < count && in_stage == 0) {
          if (its >= Shape::kFlying) stage(its - Shape::kFlying);
          ptx::mbarrier_wait(&shared.empty[slot], its / Shape::kSlots & 1 ^ 1);
          ptx::mbarrier_arrive_expect_tx(&shared.full[slot],
                                         min(Shape::kTogether, count - lane) * Shape::kPageBytes);
        }
        __syncwarp();
        if (lane < count) {
          ptx::cp_async_bulk(
              shared.ring[slot] + in_stage * Shape::kPageBytes,
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
      const DecodeItem item = share.take();
      const int to = n % kAhead;
      if (item.page_count == 0) {
        ptx::mbarrier_wait(&shared.taken[to], n / kAhead & 1 ^ 1);
        if (lane == 0) {
          shared.items[n % kItemRing].page_count = 0;
          ptx::mbarrier_arrive(&shared.ready[to]);
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
      ptx::griddepcontrol_wait();
      HeadVector<kD> floats;
      const int head = item.kv_head * group + column - token * group;
      load_head<kD>(floats, args.qkv + size_t(item.row + token) * columns() + head * kHeadDim,
                    column < packed, t);
      norm_and_rope<kD>(floats, args.q_norm, args.eps, shared.rotation[token - first], t);
      HeadFragment<kD> q;
      const float factor = pack_query<kD, kFormat>(q, floats);
      ptx::mbarrier_wait(&shared.taken[to], n / kAhead & 1 ^ 1);
#pragma unroll
      for (int j = 0; j < kD; ++j) shared.queries[to][j][lane] = {q[j][0], q[j][1]};
      if (t == 0) shared.scale[to][g] = args.scale * factor;
      if (lane == 0) shared.items[n % kItemRing] = item;
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&shared.ready[to]);
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
      const DecodeItem item = share.take();
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
        ptx::griddepcontrol_wait();
        const float* from =
            args.qkv + size_t(item.row) * columns() + (args.heads + item.kv_head) * kHeadDim;
        HeadVector<kD> key;
        load_head<kD>(key, from, lane < 4, lane % 4);
        float value[kD / 2];
#pragma unroll
        for (int i = 0; i < kD / 2; ++i) {
          value[i] = __ldcg(from + args.kv_heads * kHeadDim + lane + 32 * i);
        }
        norm_and_rope<kD>(key, args.k_norm, args.eps, shared.own_rotation, lane % 4);
        // A barrier tells a phase from the next alone: not before its slot's last one is over.
        while (*const_cast<volatile unsigned*>(&shared.asked) <= first_stage) __nanosleep(64);
        uint8_t* latest = stage(first_stage);
        const int slot = item.past % kPageTokens;
        write_key<kD, kFormat>(key, lane < 4, slot, lane % 4, latest, cached);
        write_value<kD, kFormat>(value, slot, lane, latest, cached);
        ptx::fence_proxy_async_shared();  // a bulk copy comes next to where it has written
      }
      first_stage += stages_of(item);
      ptx::mbarrier_wait(&shared.taken[n % kAhead], n / kAhead & 1 ^ 1);
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&shared.ready[n % kAhead]);
      if (item.page_count == 0) return;
    }
  }
};

#endif

}  // namespace ridge::cuda
