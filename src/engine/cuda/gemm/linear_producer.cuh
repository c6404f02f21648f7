// The two producer threads of the linear kernel (linear_kernel.cuh): weights and tokens.
#pragma once

#include "engine/cuda/device/grid_barrier.cuh"
#include "engine/cuda/gemm/linear_scheduler.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

// Waits until `count` grid barriers of this launch are over. The token producer counts them.
template <WeightFormat kFormat, int kTokens, bool kFp8Tokens>
__device__ inline void wait_grid_barriers(const LinearShared<kFormat, kTokens, kFp8Tokens>& shared,
                                          int count) {
  while (*reinterpret_cast<const volatile unsigned*>(&shared.barriers_passed) < unsigned(count)) {
  }
}

// Calls load(args, tile, first step of K, state of a ring of kSlots) for every stage of this block,
// in order, and with kBothTiles for those of the second tile of a pair. Calls begin(op) before each
// GEMM: for experts it must wait for the kernel that routed the tokens, since the number of tiles
// is read from device memory.
template <WeightFormat kFormat, int kTokens, bool kFp8Tokens, int kSlots, bool kBothTiles,
          typename Begin, typename Load>
__device__ inline void for_each_stage(const GemmChain& chain, const Begin& begin,
                                      const Load& load) {
  constexpr int kSteps = LinearStage<kFormat, kTokens, kFp8Tokens>::kSteps;
  PipelineState state;
  for (int op = 0; op < gemm_count<kTokens>(chain); ++op) {
    const LinearArgs& args = chain.ops[op];
    begin(op);
    const int token_tiles = args.tile_count ? *args.tile_count : args.padded / kTokens;
    GemmTileScheduler scheduler(args, token_tiles);
    Segment segment;
    while (scheduler.next(segment)) {
      const TileCoord tile(args, token_tiles, segment.tile);
      for (int k = segment.begin; k < segment.end; k += kSteps) {
        load(args, tile, k, state);
        state.advance(kSlots);
        if (kBothTiles && has_pairs(kFormat, kTokens, kFp8Tokens) && args.paired) {
          load(args, TileCoord(tile.row + 1, tile.token), k, state);
          state.advance(kSlots);
        }
      }
    }
  }
}

// One thread: one tensor copy per box (eight copies per box, one for each block of rows, were
// slower). Only the ring stops it: it runs ahead over grid barriers, and for dense GEMMs over the
// end of the previous kernel. (Prefetching to L2 ahead of the ring cost 6 %.)
template <WeightFormat kFormat, int kTokens, bool kFp8Tokens>
__device__ inline void produce_weights(const GemmChain& chain,
                                       LinearShared<kFormat, kTokens, kFp8Tokens>& shared) {
  using Stage = LinearStage<kFormat, kTokens, kFp8Tokens>;
  // Weights that are read once must not evict sums and activations from L2 (7 % of a layer). Steps
  // of several token tiles read them again.
  const uint64_t policy =
      kChained<kTokens> ? ptx::createpolicy_evict_first() : ptx::createpolicy_evict_normal();
  PipelineState oldest;  // the oldest stage in flight
  int in_flight = 0;
  for_each_stage<kFormat, kTokens, kFp8Tokens, Stage::kWeightSlots, true>(
      chain,
      [&](int op) {
        if (chain.ops[op].tile_count) ptx::griddepcontrol_wait();
      },
      [&](const LinearArgs& args, const TileCoord& tile, int k, const PipelineState& state) {
        if (in_flight == Stage::kInFlight) {
          ptx::mbarrier_wait(&shared.weights_full[oldest.stage], oldest.phase);
          oldest.advance(Stage::kWeightSlots);
          --in_flight;
        }
        ptx::mbarrier_wait(&shared.weights_empty[state.stage], state.phase ^ 1);
        ptx::mbarrier_arrive_expect_tx(&shared.weights_full[state.stage],
                                       Stage::kWeightBytes / kTileBlocks * args.tile_blocks);
        const int matrix = args.tile_count ? args.tile_matrix[tile.token] : 0;
#pragma unroll
        for (int box = 0; box < Stage::kSteps / Stage::kBoxSteps; ++box) {
          ptx::cp_async_bulk_tensor_3d(
              shared.weights[state.stage] + box * Stage::kBoxBytes, &args.weights,
              (k + box * Stage::kBoxSteps) * (Stage::kBlockBytes / 8), tile.row * args.tile_blocks,
              matrix, &shared.weights_full[state.stage], policy);
        }
        ++in_flight;
      });
}

// One thread: bulk copies of the tokens. They are results of the previous GEMM of the chain, or of
// the previous kernel, so this thread waits for the grid barrier and reports it to the block.
template <WeightFormat kFormat, int kTokens, bool kFp8Tokens>
__device__ inline void produce_tokens(const GemmChain& chain,
                                      LinearShared<kFormat, kTokens, kFp8Tokens>& shared) {
  using Stage = LinearStage<kFormat, kTokens, kFp8Tokens>;
  for_each_stage<kFormat, kTokens, kFp8Tokens, Stage::kTokenSlots, false>(
      chain,
      [&](int op) {
        if (op == 0) ptx::griddepcontrol_wait();
        const unsigned barriers = static_cast<unsigned>(op + chain.quantizes);
        if (barriers > 0) {
          grid_barrier_wait(chain.grid_barrier, chain.barrier_base + barriers * gridDim.x);
          ptx::fence_acquire_release();
          // Other SMs wrote the tokens with ordinary stores; bulk copies read them. One fence
          // between the proxies is enough, and here no math warp waits for it.
          ptx::fence_proxy_async();
          *const_cast<volatile unsigned*>(&shared.barriers_passed) = barriers;
        }
      },
      [&](const LinearArgs& args, const TileCoord& tile, int k, const PipelineState& state) {
        ptx::mbarrier_wait(&shared.tokens_empty[state.stage], state.phase ^ 1);
        ptx::mbarrier_arrive_expect_tx(&shared.tokens_full[state.stage], Stage::kTokenBytes);
        const uint8_t* const x =
            args.quantized_x ? args.quantized_x : reinterpret_cast<const uint8_t*>(args.x);
#pragma unroll
        for (int i = 0; i < Stage::kSteps; ++i) {
          // Weights beyond K arrive as zeros, so any finite tokens will do there.
          const size_t step = min(k + i, args.k_steps - 1);
          const size_t at = kFp8Tokens
                                ? step * Stage::kStepTokenBytes
                                : (step * (args.padded / 8) + tile.token * (kTokens / 8)) * 1024;
          ptx::cp_async_bulk(shared.tokens[state.stage] + i * Stage::kStepTokenBytes, x + at,
                             Stage::kStepTokenBytes, &shared.tokens_full[state.stage]);
        }
      });
}

}  // namespace ridge::cuda
#endif
