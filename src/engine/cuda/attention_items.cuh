// What a block of the attention kernel has to do, and the warp that copies the keys and values of
// it into shared memory.
#pragma once

#include "engine/cuda/attention.cuh"
#include "engine/cuda/ring.cuh"

namespace ridge::cuda {

// Where a token has more keys, its spans of so many are attended to apart and joined.
constexpr int kSpan = 1024;

struct AttentionLaunch {
  AttentionArgs args;
  const AttentionWork* work;
  const int* begin;  // prompts: where each block's work begins
  int items;         // single tokens: spans, each for all KV heads
  // Of sequences with several spans, for each packed row and span: outputs and (maximum, sum).
  float* partial;
  float2* partial_sums;
  unsigned* arrived;  // spans that are done, for each sequence and KV head
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
  static constexpr int kKeep = kBlocks * kGroups == 1 ? 0 : 40;
  static constexpr int kHave = 65536 / (kBlocks * kThreads) / 8 * 8;
  static constexpr int kGet = kHave + (kHave - kKeep) / kGroups / 8 * 8;
  static constexpr int kSharedBytes = kQueryBytes + kSlots * 2 * kPartBytes + 128;
};

#ifdef RIDGE_HOPPER

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

  __device__ AttentionItem(const AttentionArgs& args, const AttentionWork& its) : work(its) {
    const int group = args.heads / args.kv_heads;
    packed = work.rows * group, first = Shape::kPrompts ? work.part * Shape::kRows : 0;
    const int last_token = min(work.rows - 1, (first + Shape::kRows - 1) / group);
    high = work.past + last_token + 1;
    low = args.window > 0 ? max(0, work.past + first / group + 1 - args.window) : 0;
    if constexpr (!Shape::kPrompts) {
      span_low = low / kSpan, span_high = (high + kSpan - 1) / kSpan;
      low = max(low, work.part * kSpan), high = min(high, (work.part + 1) * kSpan);
    }
    tile_low = low / Shape::kKeys, tile_high = (high + Shape::kKeys - 1) / Shape::kKeys;
  }
  // Single tokens: whether the window has left this span.
  __device__ bool empty() const { return low >= high; }
};

// This block's work, read one ahead.
template <int kHeadDim, int kGroups>
class AttentionShare {
 public:
  __device__ explicit AttentionShare(const AttentionLaunch& launch) : launch_(launch) {
    if constexpr (kGroups == 2) {
      at_ = launch.begin[blockIdx.x], end_ = launch.begin[blockIdx.x + 1], step_ = 1;
    } else {
      at_ = blockIdx.x, end_ = launch.items * launch.args.kv_heads, step_ = gridDim.x;
    }
    read();
  }
  __device__ bool more() const { return at_ < end_; }
  __device__ const AttentionWork& next() const { return next_; }
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
      next_ = launch_.work[at_ / launch_.args.kv_heads];
      next_.kv_head = at_ % launch_.args.kv_heads;
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
  int last;
};

// One warp. Tiles come last first: the masked ones before the rest. Page numbers are read a tile
// ahead, work an item ahead, so that copies wait for neither.
template <int kHeadDim, int kGroups>
__device__ inline void fetch_tiles(const AttentionLaunch& launch,
                                   AttentionShared<kHeadDim, kGroups>& shared, int lane) {
  using Shape = AttentionShape<kHeadDim, kGroups>;
  using Item = AttentionItem<kHeadDim, kGroups>;
  constexpr int kPages = Shape::kPages, kPageBytes = kHeadDim * kPageTokens * 2;
  const AttentionArgs& args = launch.args;
  AttentionShare<kHeadDim, kGroups> share(launch);
  if (!share.more()) return;
  Item item(args, share.take());
  const auto skip_empty = [&] {
    while (item.empty() && share.more()) item = Item(args, share.take());
    return !item.empty();
  };
  // In place of a tile's pages that no row sees, the nearest: what is masked must be numbers.
  const auto number_of = [&](int tile) {
    const int page = tile * kPages + lane % kPages;
    return args.pages[item.work.pages +
                      max(item.low / kPageTokens, min(page, (item.high - 1) / kPageTokens))];
  };
  bool there = skip_empty();
  int tile = item.tile_high - 1, number = there ? number_of(tile) : 0;
  Place place;
  after_previous();
#pragma unroll 1
  while (there) {
    const uint16_t* from =
        args.kv + (size_t(number) * args.kv_heads + item.work.kv_head) * page_elements(kHeadDim);
    if (--tile < item.tile_low) {
      there = share.more();
      if (there) {
        item = Item(args, share.take());
        there = skip_empty();
        tile = item.tile_high - 1;
      }
    }
    if (there) number = number_of(tile);
#pragma unroll
    for (int part = 0; part < 2; ++part) {
      uint64_t* full = &shared.full[place.slot][part];
      wait(&shared.empty[place.slot][part], place.parity ^ 1);
      if (lane == 0) arrive_expecting(full, Shape::kPartBytes);
      __syncwarp();
      if (lane < kPages) {
        fetch(shared.ring[place.slot][part] + lane * kPageBytes,
              from + part * kPageTokens * kHeadDim, kPageBytes, full);
      }
    }
    place.advance(Shape::kSlots);
  }
}

#endif

}  // namespace ridge::cuda
