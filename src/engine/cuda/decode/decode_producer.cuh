// The decode kernel's fetching warp: everything this SM will read of weights and of the cached
// past, in the order of use, as fast as the ring empties.
#pragma once

#include "engine/cuda/decode/decode_shared.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

template <WeightFormat kFormat, int kRows>
struct Fetcher {
  const DecodeArgs& args;
  Shared& shared;
  PipelineState place, oldest;  // the oldest copy that may still fly
  int flying = 0;
  unsigned asked = 0;  // when memory was last asked for a stage
  uint64_t once = ptx::createpolicy_evict_first();

  static constexpr int kStage = stage_bytes(kFormat);
  static constexpr int kChunk = format_info(kFormat).chunk_bytes;

  // Waits for the slot to be free and for no more than in_flight copies to be under way: more would
  // only queue at the memory, and everybody's small reads and writes behind them. While the ring is
  // full, calls `idle`.
  template <typename Idle>
  __device__ void open(int bytes, const Idle& idle) {
    if (flying == args.copies_in_flight) {
      ptx::mbarrier_wait(&shared.fixed.full[oldest.stage], oldest.phase);
      oldest.advance(args.stages);
    } else {
      ++flying;
    }
    while (!ptx::mbarrier_test_wait(&shared.fixed.empty[place.stage], place.phase ^ 1)) idle();
    ptx::mbarrier_arrive_expect_tx(&shared.fixed.full[place.stage], bytes);
  }

  static __device__ unsigned clock32() { return static_cast<unsigned>(clock()); }

  __device__ uint8_t* slot() { return shared.ring + place.stage * kStage; }

  // The order of Multiplier::matrix.
  __device__ void matrix(const Op& op) {
    const Tiles& tiles = tiles_of(args, op.kind);
    const int layer = op.kind == Kind::head ? 0 : op.layer;
    const uint8_t* data = tiles.data + layer * tiles.stride;
    const int piece = piece_chunks<kFormat, kRows>(args, tiles.chunks);
    const int grid = gridDim.x, group = piece < tiles.chunks ? kGroup : 1;
    // Of this SM's stages in this operator: the next, and the next that nobody has asked L2 for.
    const int of_block = (tiles.chunks + kChunksPerStage - 1) / kChunksPerStage;
    int next = 0, unasked = 0;
    const auto idle = [&] {
      if (clock32() - asked < kStageClocks) return;
      asked = clock32();
      unasked = max(unasked, next);
      const int block = op.first + unasked / of_block * grid;
      if (group > 1 || unasked >= next + kAhead || block >= op.items) return;
      const int c = unasked % of_block * kChunksPerStage;
      ptx::cp_async_bulk_prefetch_l2(data + (size_t(block) * tiles.chunks + c) * kChunk,
                                     min(kChunksPerStage, tiles.chunks - c) * kChunk);
      ++unasked;
    };
    for (int item = op.first; item < op.items; item += grid * group) {
      for (int begin = 0; begin < tiles.chunks; begin += piece) {
        const int end = min(begin + piece, tiles.chunks);
        for (int block = item; block < min(op.items, item + grid * group); block += grid) {
          const uint8_t* from = data + size_t(block) * tiles.chunks * kChunk;
#pragma unroll 1
          for (int c = begin; c < end; c += kChunksPerStage) {
            const int bytes = min(kChunksPerStage, end - c) * kChunk;
            open(bytes, idle);
            ptx::cp_async_bulk(slot(), from + size_t(c) * kChunk, bytes,
                               &shared.fixed.full[place.stage], once);
            asked = clock32();
            ++next;
            place.advance(args.stages);
          }
        }
      }
    }
  }

  // The same by the whole warp: the first lane waits for the copies under way, which it alone
  // counts, while the others wait for the slot.
  __device__ void open_together(int bytes, int lane) {
    const bool full = lane == 0 && flying == args.copies_in_flight;
    ptx::mbarrier_wait(full ? &shared.fixed.full[oldest.stage] : &shared.fixed.empty[place.stage],
                       full ? oldest.phase : place.phase ^ 1);
    if (full) {
      oldest.advance(args.stages);
    } else {
      ++flying;
    }
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive_expect_tx(&shared.fixed.full[place.stage], bytes);
  }

  // Pages of the past, the latest first: they do not depend on this step, so they come early like
  // weights do. Each lane knows where one of the next pages lies and asks for it in its turn; so
  // little is left to do for a stage: at 1100 clocks each, this warp was slower than memory.
  __device__ void pages(const Op& op, int lane) {
    const int each = page_bytes(args.kv_format, args.head_dim);
    const int per_stage = min(32, kStage / each), batch = 32 / per_stage * per_stage;
    for (int item = op.first; item < op.items; item += gridDim.x) {
      const Span span = span_of(args, shared.fixed.rows, op, item);
      const int* last = args.pages + shared.fixed.rows[span.row].pages + span.first_page +
                        span.page_count - 1 - lane;
      const size_t of_page = size_t(args.kv_heads) * each;
      const uint8_t* head =
          args.kv + size_t(op.layer) * args.cache_pages * of_page + span.kv_head * each;
      const auto ask = [&](int from) {
        if (from + lane < span.page_count) ptx::cp_async_4(&shared.fixed.page[lane], last - from);
      };
      ask(0);
#pragma unroll 1
      for (int from = 0; from < span.page_count; from += batch) {
        ptx::cp_async_wait_all();
        const uint8_t* page = head + shared.fixed.page[lane] * of_page;
        ask(from + batch);
        const int end = min(batch, span.page_count - from);
#pragma unroll 1
        for (int at = 0; at < end; at += per_stage) {
          const int count = min(per_stage, end - at);
          open_together(count * each, lane);
          if (lane >= at && lane < at + count) {
            ptx::cp_async_bulk(slot() + (lane - at) * each, page, each,
                               &shared.fixed.full[place.stage]);
          }
          place.advance(args.stages);
        }
      }
    }
  }

  __device__ void run(int lane) {
    for_each_op(args, [&](const Op& op) {
      if (op.kind == Kind::embed) return;
      if (op.kind == Kind::attention) {
        if (op.step > 0) {
          // The step before wrote to these pages in its operator of the same place.
          wait_met(shared.fixed, op.index - ops_per_step(args.layers) + 1, lane);
          ptx::fence_proxy_async();
        }
        pages(op, lane);
        return;
      }
      if (lane == 0) matrix(op);
      place = {__shfl_sync(0xffffffffu, place.stage, 0), __shfl_sync(0xffffffffu, place.phase, 0)};
    });
  }
};

}  // namespace ridge::cuda
#endif
