// What a block of the attention kernel has to do, and the warps around those that compute: one
// copies keys and values into shared memory, one queries.
#pragma once

#include "engine/cuda/attention/attention.cuh"
#include "engine/cuda/attention/softmax.cuh"
#include "engine/cuda/layout/dequantize.cuh"
#include "engine/cuda/ptx/pipeline.cuh"

namespace ridge::cuda {

constexpr int kItems = 3;
constexpr int kGroups = 2;  // warpgroups that compute

struct AttentionLaunch {
  AttentionArgs args;
  const uint16_t* kv;  // pages of bf16, and their numbers
  const int* pages;
  Divisor group;
  const AttentionWork* work;
  const int* begin;  // where each block's work begins
};

template <int kHeadDim>
struct AttentionShape {
  static constexpr int kRows = 64 * kGroups;
  static constexpr int kKeys = kHeadDim == 256 ? 64 : 128;
  static constexpr int kPages = kKeys / kPageTokens;
  static constexpr int kPartBytes = kKeys * kHeadDim * 2;  // a tile's keys, or values
  static constexpr int kQueryBytes = kRows * kHeadDim * 2;
  static constexpr int kSlots = kHeadDim == 256 ? 2 : 3;
  static constexpr int kThreads = 128 * (kGroups + 1);
  // Registers that threads begin with, and what those that copy keep of them and the others get: of
  // 65536 an SM, in eights.
  static constexpr int kKeep = 40;
  static constexpr int kHave = 65536 / kThreads / 8 * 8;
  static constexpr int kGet = kHave + (kHave - kKeep) / kGroups / 8 * 8;
  static constexpr int kSharedBytes = kQueryBytes + kSlots * 2 * kPartBytes + 512;
};

#ifdef RIDGE_HOPPER

__device__ inline float power_of_2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// What a block does next, with the keys that count for any of its rows.
template <int kHeadDim>
struct AttentionItem {
  using Shape = AttentionShape<kHeadDim>;
  AttentionWork work;
  int packed;     // rows of the sequence
  int first;      // of them, here
  int low, high;  // keys
  int tile_low, tile_high;

  AttentionItem() = default;
  __device__ AttentionItem(const AttentionLaunch& launch, const AttentionWork& its) : work(its) {
    const int window = launch.args.window;
    packed = work.rows * launch.group.by, first = work.tile * Shape::kRows;
    high = work.past + min(work.rows, launch.group.quotient(first + Shape::kRows - 1) + 1);
    low = window > 0 ? max(0, work.past + launch.group.quotient(first) + 1 - window) : 0;
    tile_low = low / Shape::kKeys, tile_high = (high + Shape::kKeys - 1) / Shape::kKeys;
  }
  // Where the output of a row of the sequence begins; it goes on by wide_at.
  __device__ uint16_t* output(const AttentionLaunch& launch, int row) const {
    const int token = launch.group.quotient(row), head = row - token * launch.group.by;
    return launch.args.out + wide_at((work.kv_head * launch.group.by + head) * kHeadDim,
                                     work.row + token, launch.args.out_tokens);
  }
};

// This block's work, read one ahead.
class AttentionShare {
 public:
  __device__ explicit AttentionShare(const AttentionLaunch& launch)
      : launch_(launch), at_(launch.begin[blockIdx.x]), end_(launch.begin[blockIdx.x + 1]) {
    read();
  }
  __device__ bool more() const { return at_ < end_; }
  __device__ AttentionWork take() {
    const AttentionWork work = next_;
    ++at_;
    read();
    return work;
  }

 private:
  __device__ void read() {
    if (more()) next_ = launch_.work[at_];
  }
  const AttentionLaunch& launch_;
  int at_, end_;
  AttentionWork next_;
};

template <int kHeadDim>
struct AttentionShared {
  using Shape = AttentionShape<kHeadDim>;
  uint8_t queries[Shape::kQueryBytes];
  uint8_t ring[Shape::kSlots][2][Shape::kPartBytes];  // keys, values
  uint64_t full[Shape::kSlots][2], empty[Shape::kSlots][2];
  uint64_t queries_full, queries_empty;
  // The items whose queries come next, are in use, and whose outputs are being written. One without
  // rows is the end.
  AttentionItem<kHeadDim> items[kItems];
};

// One warp. Tiles come last first: the masked ones before the rest. Page numbers are read 32 at
// once, well ahead: under full load the answer takes as long as several tiles.
template <int kHeadDim>
class TileFetcher {
 public:
  __device__ TileFetcher(const AttentionLaunch& launch, AttentionShared<kHeadDim>& shared, int lane)
      : launch_(launch), shared_(shared), share_(launch), lane_(lane) {}

  __device__ void run() {
    constexpr int kPageBytes = kHeadDim * kPageTokens * 2;
    Batch now = next();
    ptx::griddepcontrol_wait();
    PipelineState place;
#pragma unroll 1
    while (now.tiles > 0) {
      const Batch ahead = next();
#pragma unroll 1
      for (int t = 0; t < now.tiles; ++t) {
        const int number = __shfl_sync(0xffffffffu, now.number, t * kPages + lane_ % kPages);
        const uint16_t* from = launch_.kv + (size_t(number) * launch_.args.kv_heads + now.kv_head) *
                                                page_elements(kHeadDim);
#pragma unroll
        for (int part = 0; part < 2; ++part) {
          uint64_t* full = &shared_.full[place.stage][part];
          ptx::mbarrier_wait(&shared_.empty[place.stage][part], place.phase ^ 1);
          if (lane_ == 0) ptx::mbarrier_arrive_expect_tx(full, Shape::kPartBytes);
          __syncwarp();
          if (lane_ < kPages) {
            ptx::cp_async_bulk(shared_.ring[place.stage][part] + lane_ * kPageBytes,
                               from + part * kPageTokens * kHeadDim, kPageBytes, full);
          }
        }
        place.advance(Shape::kSlots);
      }
      now = ahead;
    }
  }

 private:
  using Shape = AttentionShape<kHeadDim>;
  static constexpr int kPages = Shape::kPages;
  struct Batch {
    int tiles = 0, kv_head = 0;
    int number = 0;  // of the page that this lane stands for
  };

  __device__ Batch next() {
    while (tile_ < tile_low_) {
      if (!share_.more()) return {};
      const AttentionItem<kHeadDim> item(launch_, share_.take());
      pages_ = launch_.pages + item.work.pages, kv_head_ = item.work.kv_head;
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
  AttentionShared<kHeadDim>& shared_;
  AttentionShare share_;
  const int lane_;
  const int* pages_ = nullptr;  // of the item, and what is left of it
  int kv_head_ = 0, first_ = 0, last_ = 0;
  int tile_ = -1, tile_low_ = 0;
};

// One warp: queries as core matrices, and what is to be done with them.
template <int kHeadDim>
__device__ inline void fetch_queries(const AttentionLaunch& launch,
                                     AttentionShared<kHeadDim>& shared, int lane) {
  using Shape = AttentionShape<kHeadDim>;
  using Item = AttentionItem<kHeadDim>;
  const AttentionArgs& args = launch.args;
  AttentionShare share(launch);
  ptx::griddepcontrol_wait();
  PipelineState place;
  uint32_t parity = 1;
  bool more = true;
#pragma unroll 1
  while (more) {
    more = share.more();
    Item item;
    item.work.rows = 0;
    if (more) item = Item(launch, share.take());
    ptx::mbarrier_wait(&shared.queries_empty, parity);
    parity ^= 1;
    if (lane == 0) shared.items[place.stage] = item;
    place.advance(kItems);
    // Rows behind the sequence's last stay as they are: what comes of them goes nowhere.
#pragma unroll 1
    for (int row = lane % 8; more && row < min(Shape::kRows, item.packed - item.first); row += 8) {
      const int r = item.first + row, token = launch.group.quotient(r);
      const int head = item.work.kv_head * launch.group.by + r - token * launch.group.by;
      const uint16_t* from =
          args.q + (size_t(item.work.row + token) * args.heads + head) * kHeadDim + lane / 8 * 8;
      const uint32_t to = ptx::shared_address(shared.queries) + row / 8 * 16 * kHeadDim +
                          lane / 8 * 128 + row % 8 * 16;
#pragma unroll
      for (int c = 0; c < kHeadDim / 32; ++c) {
        ptx::cp_async_16(to + c * 512, from + c * 32);
      }
    }
    ptx::cp_async_wait_all();
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&shared.queries_full);
  }
}

#endif

}  // namespace ridge::cuda
