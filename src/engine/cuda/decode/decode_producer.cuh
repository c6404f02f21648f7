// Producer warp of the decode kernel: loads everything this SM will read of weights and of the KV
// cache, in the order of use, as fast as stages become free. It depends on no result of the step
// but the choice of experts, so it runs ahead across operators and layers.
//
// Two ways to copy, by the kernel set:
//   hopper    bulk copies: one lane issues a stage, and `full` counts its bytes
//   portable  cp.async: every lane copies each 32nd 16 bytes of a stage, and arrives at `full` when
//             its copies are complete. All lanes walk the same list.
#pragma once

#include "engine/cuda/decode/decode_router.cuh"
#include "engine/cuda/decode/decode_sync.cuh"

#ifdef __CUDA_ARCH__
namespace ridge::cuda {

// While the ring is full, as during attention, the producer prefetches the stages to come into L2,
// so that HBM does not idle: at most stages_prefetched, one per clocks_per_stage.
template <WeightFormat kFormat, int kRows, DecodeVariant kVariant, KernelSet kKernels>
struct ProducerWarp {
  const DecodeArgs& args;
  DecodeShared& shared;
  PipelineState stage, oldest;  // the stage to fill, and the oldest copy that may be in flight
  int in_flight = 0;            // copies
  unsigned last_load = 0;       // clock of the last load or prefetch of a stage
  unsigned chosen = ~0u;        // the tag of control.expert
  uint64_t evict_first = ptx::createpolicy_evict_first();  // weights are read once

  static constexpr bool kExperts = kVariant == DecodeVariant::experts;
  static constexpr bool kBulk = kKernels == KernelSet::hopper;
  static constexpr int kStage = stage_bytes(kFormat);
  // The stage is acquired before the wait for the oldest copy, so that the next copy is issued as
  // soon as that one is complete. Measured for one row; int4 and int8 took 0.2 to 0.4 % more time.
  static constexpr bool kStageFirst =
      kBulk && kRows == 1 && kVariant == DecodeVariant::dense &&
      (kFormat == WeightFormat::bf16 || kFormat == WeightFormat::fp8);
  static constexpr int kChunk = format_info(kFormat).chunk_bytes;

  static __device__ unsigned clock32() { return static_cast<unsigned>(clock()); }

  __device__ uint8_t* destination() { return shared.ring + stage.stage * kStage; }
  __device__ uint64_t* full() { return &shared.control.full[stage.stage]; }

  // cp.async: this lane's part of a copy. Weights are read once, KV pages by several steps.
  template <bool kWeights>
  __device__ void copy_by_lanes(uint8_t* to, const uint8_t* from, int bytes) {
    const int offset = threadIdx.x % 32 * 16;
    const uint32_t at = ptx::shared_address(to) + offset;
    from += offset;
    const auto copy = [&](int i) {
      if constexpr (kWeights) {
        ptx::cp_async_16(at + i * 512, from + i * 512, evict_first);
      } else {
        ptx::cp_async_16(at + i * 512, from + i * 512);
      }
    };
    if (bytes == kStage) {
#pragma unroll
      for (int i = 0; i < kStage / 512; ++i) copy(i);
      return;
    }
    const int count = (bytes - offset + 511) / 512;
#pragma unroll 4
    for (int i = 0; i < count; ++i) copy(i);
  }

  // Fills the acquired stage with weights.
  __device__ void copy_weights(const uint8_t* from, int bytes) {
    if constexpr (kBulk) {
      ptx::cp_async_bulk(destination(), from, bytes, full(), evict_first);
    } else {
      copy_by_lanes<true>(destination(), from, bytes);
      ptx::mbarrier_arrive_after_cp_async(full());
    }
  }
  __device__ void prefetch_weights(const uint8_t* from, int bytes) {
    if constexpr (kBulk) {
      ptx::cp_async_bulk_prefetch_l2(from, bytes);
    } else {
      for (int line = threadIdx.x % 32 * 128; line < bytes; line += 32 * 128) {
        ptx::prefetch_l2(from + line);
      }
    }
  }

  // Waits until fewer than copies_in_flight copies are in flight and the stage is free; bulk
  // copies, one lane: then expects `bytes`. More copies would queue at the memory, and small reads
  // behind them. While the ring is full, calls while_full().
  template <typename WhileFull>
  __device__ void acquire(int bytes, const WhileFull& while_full) {
    const auto wait_for_oldest = [&] {
      if (in_flight == args.copies_in_flight) {
        ptx::mbarrier_wait(&shared.control.full[oldest.stage], oldest.phase);
        oldest.advance(args.stages);
      } else {
        ++in_flight;
      }
    };
    if (!kStageFirst) wait_for_oldest();
    const auto is_free = [&] {
      const bool free =
          ptx::mbarrier_test_wait(&shared.control.empty[stage.stage], stage.phase ^ 1);
      return kBulk ? free : __all_sync(0xffffffffu, free);
    };
    while (!is_free()) while_full();
    if constexpr (kBulk) ptx::mbarrier_arrive_expect_tx(full(), bytes);
    if (kStageFirst) wait_for_oldest();
  }

  // The same for the whole warp with bulk copies. Lane 0 alone counts copies and waits for the
  // oldest, while the other lanes wait for the stage.
  __device__ void acquire_warp(int bytes, int lane) {
    const bool limit = lane == 0 && in_flight == args.copies_in_flight;
    ptx::mbarrier_wait(
        limit ? &shared.control.full[oldest.stage] : &shared.control.empty[stage.stage],
        limit ? oldest.phase : stage.phase ^ 1);
    if (limit) {
      oldest.advance(args.stages);
    } else {
      ++in_flight;
    }
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive_expect_tx(full(), bytes);
  }

  // Weights of a GEMM, in the order in which MathGemm::run reads them.
  __device__ void load_weights(const DecodeOp& op) {
    const Tiles& tiles = tiles_of(args, op.kind);
    const int layer = op.kind == OpKind::head ? 0 : op.layer;
    const uint8_t* data = tiles.data + layer * tiles.stride;
    const int slice = resident_chunks<kFormat, kRows>(args, tiles.chunks);
    const int grid = gridDim.x, held = slice < tiles.chunks ? kBlocksHeld : 1;
    // Of this SM's stages in this operator: the next to load, and the next to prefetch.
    const int block_stages = (tiles.chunks + kChunksPerStage - 1) / kChunksPerStage;
    int next = 0, next_prefetch = 0;
    const auto prefetch = [&] {
      if (clock32() - last_load < args.clocks_per_stage) return;
      last_load = clock32();
      next_prefetch = max(next_prefetch, next);
      const int block = op.first + next_prefetch / block_stages * grid;
      if (held > 1 || next_prefetch >= next + args.stages_prefetched || block >= op.items) return;
      const int c = next_prefetch % block_stages * kChunksPerStage;
      prefetch_weights(data + (size_t(block) * tiles.chunks + c) * kChunk,
                       min(kChunksPerStage, tiles.chunks - c) * kChunk);
      ++next_prefetch;
    };
    for (int item = op.first; item < op.items; item += grid * held) {
      for (int begin = 0; begin < tiles.chunks; begin += slice) {
        const int end = min(begin + slice, tiles.chunks);
        for (int block = item; block < min(op.items, item + grid * held); block += grid) {
          const uint8_t* from = data + size_t(block) * tiles.chunks * kChunk;
#pragma unroll 1
          for (int c = begin; c < end; c += kChunksPerStage) {
            const int bytes = min(kChunksPerStage, end - c) * kChunk;
            acquire(bytes, prefetch);
            copy_weights(from + size_t(c) * kChunk, bytes);
            last_load = clock32();
            ++next;
            stage.advance(args.stages);
          }
        }
      }
    }
  }

  // This SM's stages of an operator of the chosen experts, in the order in which the math warps
  // read them. gate_up: its (choice, block) one after the other. down: of its blocks every choice.
  struct ExpertStages {
    const DecodeArgs& args;
    const DecodeControl& control;
    const Tiles& tiles;
    const bool down;
    const int layer;
    int item, items, choice, block, chunk = 0;
    const uint8_t* from;

    __device__ ExpertStages(const DecodeArgs& arguments, const DecodeControl& shared_control,
                            const DecodeOp& op)
        : args(arguments),
          control(shared_control),
          tiles(tiles_of(arguments, op.kind)),
          down(op.kind == OpKind::down),
          layer(op.layer),
          item(op.first),
          items(op.items),
          choice(down ? 0 : item / tiles.blocks),
          block(down ? item : item % tiles.blocks) {
      find_block();
    }
    __device__ void find_block() {
      if (!in_operator()) return;
      const size_t matrix = size_t(layer) * args.experts + control.expert[choice];
      from = tiles.data + matrix * tiles.stride + size_t(block) * tiles.chunks * kChunk;
    }
    __device__ bool in_operator() const { return item < items; }
    __device__ int bytes() const { return min(kChunksPerStage, tiles.chunks - chunk) * kChunk; }
    __device__ void advance() {
      chunk += kChunksPerStage;
      from += kStage;
      if (chunk < tiles.chunks) return;
      chunk = 0;
      if (!down) {
        item += gridDim.x;
        for (block += gridDim.x; block >= tiles.blocks; block -= tiles.blocks) ++choice;
      } else if (++choice == args.top_k) {
        choice = 0;
        item += gridDim.x;
        block = item;
      }
      find_block();
    }
  };

  // Weights of the experts that the row chose. The choice is waited for here, where the ring is
  // otherwise ahead of the results.
  __device__ void load_experts(const DecodeOp& op, int lane) {
    if (op.first >= op.items) return;
    const unsigned tag = route_tag(args, op);
    if (tag != chosen) {
      const Choice choice = choose_experts(args, tag, 1, lane);
      if (lane < args.top_k) shared.control.expert[lane] = choice.expert;
      chosen = tag;
      __syncwarp();
    }
    if (kBulk && lane > 0) return;
    ExpertStages next(args, shared.control, op), ahead(args, shared.control, op);
    int position = 0, position_ahead = 0;  // of the two
    const auto prefetch = [&] {
      if (clock32() - last_load < args.clocks_per_stage) return;
      last_load = clock32();
      for (; position_ahead <= position; ++position_ahead) ahead.advance();
      if (position_ahead >= position + args.stages_prefetched || !ahead.in_operator()) return;
      prefetch_weights(ahead.from, ahead.bytes());
      ahead.advance();
      ++position_ahead;
    };
#pragma unroll 1
    for (; next.in_operator(); next.advance(), ++position) {
      const int bytes = next.bytes();
      acquire(bytes, prefetch);
      copy_weights(next.from, bytes);
      last_load = clock32();
      stage.advance(args.stages);
    }
  }

  // The KV pages of a run of splits, the last page first; a stage has pages of one split. Except
  // for this step's tokens they do not depend on the step. Each lane holds the number of one of the
  // next pages and, with bulk copies, issues that page's copy: when lane 0 did all, a stage took
  // 1100 clocks, more than the memory needs for it. The numbers of the next pages arrive meanwhile
  // in shared memory, with cp.async in a register: waiting for them in shared memory would be
  // waiting for all weights in flight.
  __device__ void load_run(const AttentionRun& run, const uint8_t* layer, int lane) {
    const int bytes = page_bytes(args.kv_format, args.head_dim);
    const int per_stage = min(32, kStage / bytes), batch = 32 / per_stage * per_stage;
    const size_t page_stride = size_t(args.kv_heads) * bytes;
    const int first = run.page_begin(run.first_split);
    const int* numbers = args.pages + shared.control.rows[run.row].pages;
    int next_number = 0;
    const auto load_page_numbers = [&](int end) {
      if (end - 1 - lane < first) return;
      const int* from = numbers + end - 1 - lane;
      if constexpr (kBulk) {
        ptx::cp_async_4(&shared.control.page_number[lane], from);
      } else {
        next_number = *from;
      }
    };
    int split = run.end_split - 1, end = run.page_end(split);
    load_page_numbers(end);
#pragma unroll 1
    while (end > first) {
      while (end == run.page_begin(split)) --split;
      const int pages = min(batch, end - run.page_begin(split));
      if constexpr (kBulk) {
        ptx::cp_async_wait_all();
        next_number = shared.control.page_number[lane];
      }
      const uint8_t* page = layer + next_number * page_stride + run.kv_head * bytes;
      end -= pages;
      load_page_numbers(end);
#pragma unroll 1
      for (int at = 0; at < pages; at += per_stage) {
        const int count = min(per_stage, pages - at);
        if constexpr (kBulk) {
          acquire_warp(count * bytes, lane);
          if (lane >= at && lane < at + count) {
            ptx::cp_async_bulk(destination() + (lane - at) * bytes, page, bytes, full());
          }
        } else {
          acquire(0, [] {});
          for (int i = 0; i < count; ++i) {
            const auto from = __shfl_sync(0xffffffffu, reinterpret_cast<uint64_t>(page), at + i);
            copy_by_lanes<false>(destination() + i * bytes, reinterpret_cast<uint8_t*>(from),
                                 bytes);
          }
          ptx::mbarrier_arrive_after_cp_async(full());
        }
        stage.advance(args.stages);
      }
    }
  }

  __device__ void load_pages(const DecodeOp& op, int lane) {
    const size_t layer_bytes =
        size_t(args.cache_pages) * args.kv_heads * page_bytes(args.kv_format, args.head_dim);
    for (int item = op.first; item < op.items; item += gridDim.x) {
      const AttentionRun run = attention_run(args, shared.control.rows, op, item);
      if (run.first_split >= run.end_split) continue;
      load_run(run, args.kv + op.layer * layer_bytes, lane);
    }
  }

  __device__ void run(int lane) {
    for_each_op<kVariant>(args, [&](const DecodeOp& op) {
      if (op.kind == OpKind::embed || op.kind == OpKind::route) return;
      if (op.kind == OpKind::attention) {
        if (op.step > 0) {
          // The same operator of the previous step wrote to these pages (invariant 10).
          wait_ops_completed(shared.control, op.index - ops_per_step(args.layers, kExperts) + 1,
                             lane);
          ptx::fence_proxy_async();
        }
        load_pages(op, lane);
        return;
      }
      if (kExperts && (op.kind == OpKind::gate_up || op.kind == OpKind::down)) {
        load_experts(op, lane);
      } else if (!kBulk || lane == 0) {
        load_weights(op);
      }
      stage = {__shfl_sync(0xffffffffu, stage.stage, 0), __shfl_sync(0xffffffffu, stage.phase, 0)};
    });
  }
};

}  // namespace ridge::cuda
#endif
