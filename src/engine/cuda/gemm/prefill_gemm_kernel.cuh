// The kernel of prefill_gemm.cuh: y[rows x tokens] = W[rows x K] x[K x tokens], tiles of 128 x 256,
// persistent, one block per SM, clusters of two blocks.
//
//   warps 0-3, 4-7   math: two warpgroups, 64 rows each, 16 per warp. wgmma takes the weights as A
//                    from registers, where they are dequantized, and the tokens as B from shared
//                    memory. Then the epilogue (prefill_gemm_epilogue.cuh)
//   warp 8           one thread issues the loads of its block's weights (tensor copies)
//   warp 9           one thread issues the loads of half of the tokens, for both blocks of the
//                    cluster (multicast): their row tiles are adjacent, their tokens the same
//   warps 10, 11     idle; they complete the warpgroup for setmaxnreg
//
// Shared memory: prefill_gemm_layout.cuh. Barriers:
//   weights_full, tokens_full   per slot, producers -> math, by transaction bytes; the tokens'
//   count
//                               the halves of both blocks
//   weights_empty               per slot, math -> producer, one arrival per warp when its wgmma
//                               are issued: the fragments are in registers then
//   tokens_empty                per slot, math of both blocks -> both producers, one arrival per
//                               warp when its wgmma are over
//   named barriers 1, 2         the threads of a warpgroup, in the epilogue
//   named barrier 3             the second warpgroup begins a tile when the first has issued kLead
//                               stages of it: one multiplies while the other is in its epilogue
#pragma once

#include "base/ptx/cluster.cuh"
#include "base/ptx/wgmma.cuh"
#include "engine/cuda/gemm/linear_fragments.cuh"
#include "engine/cuda/gemm/prefill_gemm_epilogue.cuh"

namespace ridge::cuda::prefill {

#ifdef RIDGE_HOPPER

// Calls load(tile, step of K, state of a ring of kSlots) for every stage of this block.
template <int kSlots, typename Load>
__device__ inline void for_each_stage(const LinearArgs& gemm, const Load& load) {
  PipelineState state;
  Schedule tile(gemm);
  while (tile.next()) {
    for (int k = 0; k < gemm.k_steps; ++k) {
      load(tile, k, state);
      state.advance(kSlots);
    }
  }
}

// One thread. The weights of the first stages are loaded while the previous kernel still runs;
// those of experts must wait for the kernel that routed the tokens.
template <WeightFormat kFormat, bool kFp8Tokens>
__device__ inline void produce_weights(const PrefillGemmArgs& args,
                                       Shared<kFormat, kFp8Tokens>& shared) {
  using TheStage = Stage<kFormat, kFp8Tokens>;
  const LinearArgs& gemm = args.gemm;
  if (gemm.tile_count) ptx::griddepcontrol_wait();
  const uint64_t policy = ptx::createpolicy_evict_normal();
  for_each_stage<TheStage::kWeightSlots>(
      gemm, [&](const Schedule& tile, int k, const PipelineState& state) {
        const int matrix = gemm.tile_count ? gemm.tile_matrix[tile.token] : 0;
        uint64_t* const full = &shared.weights_full[state.stage];
        ptx::mbarrier_wait(&shared.weights_empty[state.stage], state.phase ^ 1);
        ptx::mbarrier_arrive_expect_tx(full, TheStage::kWeightBytes);
        ptx::cp_async_bulk_tensor_3d(shared.weights[state.stage], &args.weights,
                                     k * (TheStage::kBlockBytes / 8), tile.row * kBlocks, matrix,
                                     full, policy);
      });
}

// One thread: half of the tokens, for both blocks of the cluster.
template <WeightFormat kFormat, bool kFp8Tokens>
__device__ inline void produce_tokens(const PrefillGemmArgs& args,
                                      Shared<kFormat, kFp8Tokens>& shared) {
  using TheStage = Stage<kFormat, kFp8Tokens>;
  ptx::griddepcontrol_wait();
  for_each_stage<TheStage::kTokenSlots>(args.gemm, [&](const Schedule& tile, int k,
                                                       const PipelineState& state) {
    uint64_t* const full = &shared.tokens_full[state.stage];
    ptx::mbarrier_wait(&shared.tokens_empty[state.stage], state.phase ^ 1);
    ptx::mbarrier_arrive_expect_tx(full, TheStage::kTokenBytes);
    ptx::cp_async_bulk_tensor_3d_multicast(
        shared.tokens[state.stage] + tile.rank * (TheStage::kTokenBytes / kCluster), &args.tokens,
        0, tile.token * (kTokens / 8) + tile.rank * kTokenGroups, k, full, (1 << kCluster) - 1);
  });
}

// One math warp.
template <WeightFormat kFormat, bool kFp8Tokens>
struct Math {
  using TheStage = Stage<kFormat, kFp8Tokens>;
  using Fragments = uint32_t[4][4];
  using Sums = float[kTokens / 2];
  static constexpr int kLead = 2;  // stages

  const PrefillGemmArgs& args;
  Shared<kFormat, kFp8Tokens>& shared;
  const int group, warp, lane;  // warp: of the warpgroup
  PipelineState weights = {}, tokens = {};

  __device__ __forceinline__ void run() {
    ptx::griddepcontrol_wait();
    Schedule tile(args.gemm);
    PrefillEpilogue<kFormat, kFp8Tokens> epilogue{args, shared, group, warp, lane};
#pragma unroll 1
    while (tile.next()) {
      epilogue.load(tile);
      Sums d;
      main_loop(d);
      epilogue.run(tile, d);
    }
    epilogue.finish();
  }

  __device__ __forceinline__ void main_loop(Sums& d) {
#pragma unroll
    for (float& each : d) each = 0;
    int previous = -1;  // the stage whose wgmma may still be in flight
    if (group) ptx::bar_sync<3>(2 * kGroupThreads);
    // The fragments of a stage are loaded while the wgmma of the previous one run.
    Fragments even, odd;
    int k = 0;
#pragma unroll 1
    for (; k + 1 < args.gemm.k_steps; k += 2) {
      multiply_stage(even, previous, d);
      multiply_stage(odd, previous, d);
      if (!group && k == kLead - 2) ptx::bar_arrive<3>(2 * kGroupThreads);
    }
    if (k < args.gemm.k_steps) multiply_stage(even, previous, d);
    ptx::wgmma_wait<0>();
    // Keeps the compiler from reading the sums before the wait.
#pragma unroll
    for (float& each : d) asm volatile("" : "+f"(each)::"memory");
    if (!group && args.gemm.k_steps < kLead) ptx::bar_arrive<3>(2 * kGroupThreads);
    release(previous);
  }

  __device__ __forceinline__ void multiply_stage(Fragments& a, int& previous, Sums& d) {
    ptx::mbarrier_wait(&shared.weights_full[weights.stage], weights.phase);
    const uint64_t x = ptx::wgmma_descriptor(shared.tokens[tokens.stage], 128, 1024);
    const uint8_t* const block =
        shared.weights[weights.stage] + (group * 4 + warp) * TheStage::kBlockBytes;
    if constexpr (kFp8Tokens) {
      load_fp8_fragments(a, block, lane);
    } else {
      load_fragments<kFormat>(a, block, lane);
    }
    // Dequantized before the fence: the compiler would serialize the wgmma otherwise (C7520).
#pragma unroll
    for (int i = 0; i < 16; ++i) asm volatile("" : "+r"(a[i / 4][i % 4]));
    ptx::mbarrier_wait(&shared.tokens_full[tokens.stage], tokens.phase);
    ptx::wgmma_fence();
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      const uint64_t columns = ptx::wgmma_descriptor_at(x, c * 256);
      if constexpr (kFp8Tokens) {
        ptx::wgmma_e4m3_rs<kTokens>(d, a[c], columns, true);
      } else {
        ptx::wgmma_bf16_rs<kTokens>(d, a[c], columns, true);
      }
    }
    ptx::wgmma_commit();
    // Not before the wgmma are issued: until then the loads of the fragments may be in flight.
    if (lane == 0) ptx::mbarrier_arrive(&shared.weights_empty[weights.stage]);
    ptx::wgmma_wait<1>();
    if (previous >= 0) release(previous);
    weights.advance(TheStage::kWeightSlots);
    previous = tokens.stage;
    tokens.advance(TheStage::kTokenSlots);
  }

  __device__ void release(int stage) const {
    uint64_t* const empty = &shared.tokens_empty[stage];
    if (lane == 0) ptx::mbarrier_arrive(empty);
    if (kCluster > 1 && lane == 1) ptx::mbarrier_arrive_at(empty, ptx::cluster_rank() ^ 1);
  }
};

#endif

template <WeightFormat kFormat, bool kFp8Tokens>
__global__ void __launch_bounds__(kThreads, 1)
    prefill_gemm_kernel(const __grid_constant__ PrefillGemmArgs args) {
#ifdef RIDGE_HOPPER
  using TheStage = Stage<kFormat, kFp8Tokens>;
  extern __shared__ __align__(1024) uint8_t memory[];
  // The swizzle of bulk stores follows address bits, so staging memory must be aligned.
  auto& shared = *reinterpret_cast<Shared<kFormat, kFp8Tokens>*>(
      memory + (-ptx::shared_address(memory) & 1023));
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x < TheStage::kWeightSlots) {
    ptx::mbarrier_init(&shared.weights_full[threadIdx.x], 1);
    ptx::mbarrier_init(&shared.weights_empty[threadIdx.x], kBlocks);
  }
  if (threadIdx.x < TheStage::kTokenSlots) {
    ptx::mbarrier_init(&shared.tokens_full[threadIdx.x], 1);
    ptx::mbarrier_init(&shared.tokens_empty[threadIdx.x], kCluster * kBlocks);
  }
  ptx::fence_mbarrier_init();
  ptx::cluster_sync();
  ptx::griddepcontrol_launch_dependents();
  if (warp >= kBlocks) {
    ptx::setmaxnreg_dec<kProducerRegisters>();
    if (threadIdx.x == kBlocks * 32) produce_weights<kFormat, kFp8Tokens>(args, shared);
    if (threadIdx.x == kBlocks * 32 + 32) produce_tokens<kFormat, kFp8Tokens>(args, shared);
    __syncwarp();
  } else {
    ptx::setmaxnreg_inc<kMathRegisters>();
    Math<kFormat, kFp8Tokens>{args, shared, warp / 4, warp % 4, lane}.run();
  }
  // The other block may still send tokens to this one, and arrive at its barriers.
  ptx::cluster_sync();
#endif
}

template <WeightFormat kFormat, bool kFp8Tokens>
void launch(cudaStream_t stream, int sms, const PrefillGemmArgs& args) {
  constexpr int kShared = sizeof(Shared<kFormat, kFp8Tokens>) + 1024;
  static_assert(kShared <= 227 * 1024);
  const auto kernel = prefill_gemm_kernel<kFormat, kFp8Tokens>;
  [[maybe_unused]] static const bool ready = allow_shared_memory(kernel, kShared);
  launch_dependent<kCluster>(kernel, dim3(sms / kCluster * kCluster), kThreads, kShared, stream,
                             args);
}

}  // namespace ridge::cuda::prefill
