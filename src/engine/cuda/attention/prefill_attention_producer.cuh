// The producer warps of the prefill attention kernel (prefill_attention_kernel.cuh): keys and
// values, and queries.
#pragma once

#include "base/ptx/execution.cuh"
#include "engine/cuda/attention/prefill_attention_layout.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

// One warp. Key tiles come last first: the masked ones before the rest. Page numbers are read 32 at
// a time and a batch ahead: under full load a read takes as long as several tiles.
template <int kHeadDim>
class KvProducer {
 public:
  __device__ KvProducer(const PrefillAttentionLaunch& launch, PrefillShared<kHeadDim>& shared,
                        int lane)
      : launch_(launch), shared_(shared), scheduler_(launch), lane_(lane) {}

  __device__ void run() {
    constexpr int kPageBytes = kHeadDim * kPageTokens * 2;  // keys, or values, of a page
    Batch now = next();
    ptx::griddepcontrol_wait();
    PipelineState state;
#pragma unroll 1
    while (now.tiles > 0) {
      const Batch ahead = next();
#pragma unroll 1
      for (int t = 0; t < now.tiles; ++t) {
        const int number = __shfl_sync(0xffffffffu, now.number, t * kPages + lane_ % kPages);
        const uint16_t* from = launch_.kv + (size_t(number) * launch_.args.kv_heads + now.kv_head) *
                                                page_elements(kHeadDim);
#pragma unroll
        for (int part = 0; part < 2; ++part) {  // keys, values
          uint64_t* full = &shared_.full[state.stage][part];
          ptx::mbarrier_wait(&shared_.empty[state.stage][part], state.phase ^ 1);
          if (lane_ == 0) ptx::mbarrier_arrive_expect_tx(full, Shape::kTileBytes);
          __syncwarp();
          if (lane_ < kPages) {
            ptx::cp_async_bulk(shared_.ring[state.stage][part] + lane_ * kPageBytes,
                               from + part * kPageTokens * kHeadDim, kPageBytes, full);
          }
        }
        state.advance(Shape::kSlots);
      }
      now = ahead;
    }
  }

 private:
  using Shape = PrefillShape<kHeadDim>;
  static constexpr int kPages = Shape::kPages;
  // Key tiles of one item whose page numbers fit a warp.
  struct Batch {
    int tiles = 0, kv_head = 0;
    int number = 0;  // this lane's page
  };

  __device__ Batch next() {
    while (key_tile_ < key_tile_low_) {
      if (!scheduler_.more()) return {};
      const PrefillItem<kHeadDim> item(launch_, scheduler_.next());
      pages_ = launch_.pages + item.tile.pages, kv_head_ = item.tile.kv_head;
      first_ = item.low / kPageTokens, last_ = (item.high - 1) / kPageTokens;
      key_tile_ = item.key_tile_high - 1, key_tile_low_ = item.key_tile_low;
    }
    Batch batch;
    batch.tiles = min(32 / kPages, key_tile_ - key_tile_low_ + 1), batch.kv_head = kv_head_;
    // Pages that no row attends to are replaced by the nearest one: masked values must be finite.
    const int page = (key_tile_ - lane_ / kPages) * kPages + lane_ % kPages;
    batch.number = pages_[max(first_, min(page, last_))];
    key_tile_ -= batch.tiles;
    return batch;
  }

  const PrefillAttentionLaunch& launch_;
  PrefillShared<kHeadDim>& shared_;
  PrefillScheduler scheduler_;
  const int lane_;
  const int* pages_ = nullptr;  // of the current item
  int kv_head_ = 0, first_ = 0, last_ = 0;
  int key_tile_ = -1, key_tile_low_ = 0;  // key tiles left to load
};

// One warp: publishes the items, with their queries as core matrices.
template <int kHeadDim>
__device__ inline void produce_queries(const PrefillAttentionLaunch& launch,
                                       PrefillShared<kHeadDim>& shared, int lane) {
  using Shape = PrefillShape<kHeadDim>;
  using Item = PrefillItem<kHeadDim>;
  const AttentionArgs& args = launch.args;
  PrefillScheduler scheduler(launch);
  ptx::griddepcontrol_wait();
  PipelineState item_state;
  uint32_t phase = 1;
  bool more = true;
#pragma unroll 1
  while (more) {
    more = scheduler.more();
    Item item;
    item.tile.rows = 0;
    if (more) item = Item(launch, scheduler.next());
    ptx::mbarrier_wait(&shared.queries_empty, phase);
    phase ^= 1;
    if (lane == 0) shared.items[item_state.stage] = item;
    item_state.advance(kPrefillItems);
    // Rows behind the last of the sequence keep their old contents: their outputs are not stored.
#pragma unroll 1
    for (int row = lane % 8; more && row < min(Shape::kRows, item.packed - item.first); row += 8) {
      const int r = item.first + row, token = launch.group.quotient(r);
      const int head = item.tile.kv_head * launch.group.by + r - token * launch.group.by;
      const uint16_t* from =
          args.q + (size_t(item.tile.row + token) * args.heads + head) * kHeadDim + lane / 8 * 8;
      const uint32_t to = ptx::shared_address(shared.queries) + row / 8 * 16 * kHeadDim +
                          lane / 8 * 128 + row % 8 * 16;
#pragma unroll
      for (int c = 0; c < kHeadDim / 32; ++c) ptx::cp_async_16(to + c * 512, from + c * 32);
    }
    ptx::cp_async_wait_all();
    ptx::fence_proxy_async_shared();
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&shared.queries_full);
  }
}

}  // namespace ridge::cuda
#endif
