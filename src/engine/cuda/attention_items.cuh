// What a block of the attention kernel has to do, and the warps around those that compute: one
// copies keys and values into shared memory, one queries, others join the spans of single tokens.
#pragma once

#include "engine/cuda/attention.cuh"
#include "engine/cuda/mma.cuh"
#include "engine/cuda/ring.cuh"

namespace ridge::cuda {

// Where a token has more keys, its spans of so many are attended to apart and joined. Long enough
// that a block is done joining (some 25 us beside others' reads) before its next span ends.
constexpr int kSpan = 2048;

// A divisor that does not change: n / by for n < 2^32 / by, without the long way.
struct Divisor {
  int by;
  unsigned reciprocal;  // 2^32 / by, rounded up; none for 1
  Divisor(int number) : by(number), reciprocal(number > 1 ? 0xffffffffu / number + 1 : 0) {}
  __device__ int quotient(int n) const {
    return by == 1 ? n : int(__umulhi(unsigned(n), reciprocal));
  }
  __device__ int remainder(int n) const { return n - quotient(n) * by; }
};

constexpr int kItems = 3;
// Warps that join spans; each its own part of the rows.
constexpr int kJoiners = 2;

struct AttentionLaunch {
  AttentionArgs args;
  Divisor group, kv_heads;
  const AttentionWork* work;
  const int* begin;  // prompts: where each block's work begins
  int items;         // single tokens: spans, each for all KV heads
  // Of sequences with several spans, for each packed row and span: outputs and (maximum, sum).
  float* partial;
  float2* partial_sums;
  unsigned* arrived;  // spans that are done, for each sequence, KV head and joiner
};

// kGroups: warpgroups that compute; 2 for prompts, 1 for single tokens.
template <int kHeadDim, int kGroups>
struct AttentionShape {
  static constexpr bool kPrompts = kGroups == 2;
  static constexpr int kRows = 64 * kGroups;
  static constexpr int kKeys = kHeadDim == 256 || (!kPrompts && kHeadDim == 128) ? 64 : 128;
  static constexpr int kPages = kKeys / kPageTokens;
  static constexpr int kPartBytes = kKeys * kHeadDim * 2;  // a tile's keys, or values
  static constexpr int kQueryBytes = kRows * kHeadDim * 2;
  // Blocks of an SM, and tiles that fit in their shares of its 228 KB.
  static constexpr int kBlocks = kPrompts || kHeadDim == 256 ? 1 : 2;
  static constexpr int kSlots = kPrompts && kHeadDim == 256 ? 2 : 3;
  static constexpr int kThreads = 128 * (kGroups + 1);
  // Registers that threads begin with, and what those that copy keep of them and the others get: of
  // 65536 an SM, in eights. One warpgroup alone has enough from the start.
  static constexpr int kKeep = kBlocks * kGroups == 1 ? 0 : kPrompts ? 40 : 64;
  static constexpr int kHave = 65536 / (kBlocks * kThreads) / 8 * 8;
  static constexpr int kGet = kHave + (kHave - kKeep) / kGroups / 8 * 8;
  static constexpr int kSharedBytes = kQueryBytes + kSlots * 2 * kPartBytes + 512;
};

#ifdef RIDGE_HOPPER

// Finite, so that a difference of two is zero and not NaN.
constexpr float kMasked = -1e30f;

__device__ inline float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// What a block does next, with the keys that count for any of its rows.
template <int kHeadDim, int kGroups>
struct AttentionItem {
  using Shape = AttentionShape<kHeadDim, kGroups>;
  AttentionWork work;
  int packed;     // rows of the sequence
  int first;      // of them, here
  int low, high;  // keys
  int tile_low, tile_high;
  int span_low, span_high;  // of the sequence: single tokens

  AttentionItem() = default;
  __device__ AttentionItem(const AttentionLaunch& launch, const AttentionWork& its) : work(its) {
    const int window = launch.args.window;
    packed = work.rows * launch.group.by, first = Shape::kPrompts ? work.part * Shape::kRows : 0;
    high = work.past + min(work.rows, launch.group.quotient(first + Shape::kRows - 1) + 1);
    low = window > 0 ? max(0, work.past + launch.group.quotient(first) + 1 - window) : 0;
    if constexpr (!Shape::kPrompts) {
      span_low = low / kSpan, span_high = (high + kSpan - 1) / kSpan;
      low = max(low, work.part * kSpan), high = min(high, (work.part + 1) * kSpan);
    }
    tile_low = low / Shape::kKeys, tile_high = (high + Shape::kKeys - 1) / Shape::kKeys;
  }
  // Single tokens: whether the window has left this span; whether there is no other.
  __device__ bool empty() const { return !Shape::kPrompts && low >= high; }
  __device__ bool whole() const { return Shape::kPrompts || span_high - span_low == 1; }
  // Where partial results of this span begin: rows.
  __device__ size_t record(const AttentionLaunch& launch, int span) const {
    return work.record + (size_t(span) * launch.kv_heads.by + work.kv_head) * packed;
  }
  // Where the output of a row of the sequence begins; it goes on by wide_at.
  __device__ uint16_t* output(const AttentionLaunch& launch, int row) const {
    const int token = launch.group.quotient(row), head = row - token * launch.group.by;
    return launch.args.out + wide_at((work.kv_head * launch.group.by + head) * kHeadDim,
                                     work.row + token, launch.args.out_tokens);
  }
};

// This block's work, read one ahead.
template <int kHeadDim, int kGroups>
class AttentionShare {
 public:
  __device__ explicit AttentionShare(const AttentionLaunch& launch) : launch_(launch) {
    if constexpr (kGroups == 2) {
      at_ = launch.begin[blockIdx.x], end_ = launch.begin[blockIdx.x + 1], step_ = 1;
    } else {
      at_ = blockIdx.x, end_ = launch.items * launch.kv_heads.by, step_ = gridDim.x;
    }
    read();
  }
  __device__ bool more() const { return at_ < end_; }
  __device__ AttentionWork take() {
    const AttentionWork work = next_;
    at_ += step_;
    read();
    return work;
  }

 private:
  __device__ void read() {
    if (!more()) return;
    if constexpr (kGroups == 2) {
      next_ = launch_.work[at_];
    } else {
      next_ = launch_.work[launch_.kv_heads.quotient(at_)];
      next_.kv_head = launch_.kv_heads.remainder(at_);
    }
  }
  const AttentionLaunch& launch_;
  int at_, end_, step_;
  AttentionWork next_;
};

template <int kHeadDim, int kGroups>
struct AttentionShared {
  using Shape = AttentionShape<kHeadDim, kGroups>;
  uint8_t queries[Shape::kQueryBytes];
  uint8_t ring[Shape::kSlots][2][Shape::kPartBytes];  // keys, values
  uint64_t full[Shape::kSlots][2], empty[Shape::kSlots][2];
  uint64_t queries_full, queries_empty;
  uint64_t written, noticed;  // a span's result
  // The items whose queries come next, are in use, and whose outputs are being written. One without
  // rows is the end.
  AttentionItem<kHeadDim, kGroups> items[kItems];
};

// One warp. Tiles come last first: the masked ones before the rest. Page numbers are read 32 at
// once, well ahead: under full load the answer takes as long as several tiles.
template <int kHeadDim, int kGroups>
class TileFetcher {
 public:
  __device__ TileFetcher(const AttentionLaunch& launch, AttentionShared<kHeadDim, kGroups>& shared,
                         int lane)
      : launch_(launch), shared_(shared), share_(launch), lane_(lane) {}

  __device__ void run() {
    constexpr int kPageBytes = kHeadDim * kPageTokens * 2;
    Batch now = next();
    after_previous();
    Place place;
#pragma unroll 1
    while (now.tiles > 0) {
      const Batch ahead = next();
#pragma unroll 1
      for (int t = 0; t < now.tiles; ++t) {
        const int number = __shfl_sync(0xffffffffu, now.number, t * kPages + lane_ % kPages);
        const uint16_t* from =
            launch_.args.kv +
            (size_t(number) * launch_.kv_heads.by + now.kv_head) * page_elements(kHeadDim);
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          uint64_t* full = &shared_.full[place.slot][part];
          wait(&shared_.empty[place.slot][part], place.parity ^ 1);
          if (lane_ == 0) arrive_expecting(full, Shape::kPartBytes);
          __syncwarp();
          if (lane_ < kPages) {
            fetch(shared_.ring[place.slot][part] + lane_ * kPageBytes,
                  from + part * kPageTokens * kHeadDim, kPageBytes, full);
          }
        }
        place.advance(Shape::kSlots);
      }
      now = ahead;
    }
  }

 private:
  using Shape = AttentionShape<kHeadDim, kGroups>;
  static constexpr int kPages = Shape::kPages;
  struct Batch {
    int tiles = 0, kv_head = 0;
    int number = 0;  // of the page that this lane stands for
  };

  __device__ Batch next() {
    while (tile_ < tile_low_) {
      if (!share_.more()) return {};
      const AttentionItem<kHeadDim, kGroups> item(launch_, share_.take());
      if (item.empty()) continue;
      pages_ = launch_.args.pages + item.work.pages, kv_head_ = item.work.kv_head;
      first_ = item.low / kPageTokens, last_ = (item.high - 1) / kPageTokens;
      tile_ = item.tile_high - 1, tile_low_ = item.tile_low;
    }
    Batch batch;
    batch.tiles = min(32 / kPages, tile_ - tile_low_ + 1), batch.kv_head = kv_head_;
    // In place of a tile's pages that no row sees, the nearest: what is masked must be numbers.
    const int page = (tile_ - lane_ / kPages) * kPages + lane_ % kPages;
    batch.number = pages_[max(first_, min(page, last_))];
    tile_ -= batch.tiles;
    return batch;
  }

  const AttentionLaunch& launch_;
  AttentionShared<kHeadDim, kGroups>& shared_;
  AttentionShare<kHeadDim, kGroups> share_;
  const int lane_;
  const int* pages_ = nullptr;  // of the item, and what is left of it
  int kv_head_ = 0, first_ = 0, last_ = 0;
  int tile_ = -1, tile_low_ = 0;
};

// One warp: queries as core matrices, and what is to be done with them.
template <int kHeadDim, int kGroups>
__device__ inline void fetch_queries(const AttentionLaunch& launch,
                                     AttentionShared<kHeadDim, kGroups>& shared, int lane) {
  using Shape = AttentionShape<kHeadDim, kGroups>;
  using Item = AttentionItem<kHeadDim, kGroups>;
  const AttentionArgs& args = launch.args;
  AttentionShare<kHeadDim, kGroups> share(launch);
  after_previous();
  Place place;
  uint32_t parity = 1;
  bool more = true;
#pragma unroll 1
  while (more) {
    more = share.more();
    Item item;
    item.work.rows = 0;
    if (more) item = Item(launch, share.take());
    if (more && item.empty()) continue;
    wait(&shared.queries_empty, parity);
    parity ^= 1;
    if (lane == 0) shared.items[place.slot] = item;
    place.advance(kItems);
    // Rows behind the sequence's last stay as they are: what comes of them goes nowhere.
#pragma unroll 1
    for (int row = lane % 8; more && row < min(Shape::kRows, item.packed - item.first); row += 8) {
      const int r = item.first + row, token = launch.group.quotient(r);
      const int head = item.work.kv_head * launch.group.by + r - token * launch.group.by;
      const uint16_t* from =
          args.q + (size_t(item.work.row + token) * args.heads + head) * kHeadDim + lane / 8 * 8;
      const uint32_t to =
          shared_address(shared.queries) + row / 8 * 16 * kHeadDim + lane / 8 * 128 + row % 8 * 16;
#pragma unroll
      for (int c = 0; c < kHeadDim / 32; ++c) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + c * 512),
                     "l"(from + c * 32)
                     : "memory");
      }
    }
    asm volatile("cp.async.wait_all;" ::: "memory");
    fence_proxy_shared();
    __syncwarp();
    if (lane == 0) arrive(&shared.queries_full);
  }
}

// One warp, for single tokens with several spans: of who finishes last, it joins its part of the
// outputs, in the spans' order. The others go on meanwhile.
template <int kHeadDim, int kGroups>
__device__ inline void join_spans(const AttentionLaunch& launch,
                                  AttentionShared<kHeadDim, kGroups>& shared, int joiner,
                                  int lane) {
  constexpr int kQuads = kHeadDim / 4;
  AttentionShare<kHeadDim, kGroups> share(launch);
  after_previous();
  uint32_t parity = 0;
#pragma unroll 1
  while (share.more()) {
    const AttentionItem<kHeadDim, kGroups> item(launch, share.take());
    if (item.empty()) continue;
    wait(&shared.written, parity);
    parity ^= 1;
    if (lane == 0) arrive(&shared.noticed);
    if (item.whole()) continue;
    int last = 0;
    if (lane == 0) {
      unsigned* arrived =
          &launch.arrived[(item.work.counter + item.work.kv_head) * kJoiners + joiner];
      last = add_releasing(arrived) == unsigned(item.span_high - item.span_low - 1);
      if (last) *arrived = 0;
    }
    if (!__shfl_sync(0xffffffffu, last, 0)) continue;
    const size_t step = size_t(launch.kv_heads.by) * item.packed;
#pragma unroll 1
    for (int i = joiner * 32 + lane; i < item.packed * kQuads; i += kJoiners * 32) {
      const int row = i / kQuads, d = i % kQuads * 4;
      size_t at = item.record(launch, item.span_low) + row;
      float most = kMasked, sum = 0;
      float4 out = {0, 0, 0, 0};
#pragma unroll 4
      for (int span = item.span_low; span < item.span_high; ++span, at += step) {
        const float2 its = __ldcg(launch.partial_sums + at);
        const float4 v =
            __ldcg(reinterpret_cast<const float4*>(launch.partial + at * kHeadDim + d));
        const float both = fmaxf(most, its.x);
        const float keep = power_of_2(most - both), add = power_of_2(its.x - both);
        sum = sum * keep + its.y * add;
        out = {out.x * keep + v.x * add, out.y * keep + v.y * add, out.z * keep + v.z * add,
               out.w * keep + v.w * add};
        most = both;
      }
      const float part = 1 / sum;
      *reinterpret_cast<uint2*>(item.output(launch, row) +
                                wide_at(d, 0, launch.args.out_tokens)) = {
          pack_bf16(out.x * part, out.y * part), pack_bf16(out.z * part, out.w * part)};
    }
  }
}

#endif

}  // namespace ridge::cuda
