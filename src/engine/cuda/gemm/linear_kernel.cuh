// The kernel of linear.cuh: y[rows x tokens] = W[rows x K] x[K x tokens], tiles of at most 128 rows
// x kTokens, persistent, one block per SM.
//
//   warps 0-7    math: two warpgroups, 64 rows each, 16 per warp. Main loop and epilogue. Warps
//   beyond
//                the rows of a smaller tile multiply what the slot holds and store nothing. Before
//                them, where a chain in E4M3 begins with activations in bf16, their quantization
//   warp 8       one thread issues the weight loads (tensor copies)
//   warp 9       one thread issues the token loads (bulk copies), and waits for the grid barrier
//   warp 10      chains: the folded norm's scale of each token
//   warp 11      idle; it completes the warpgroup for setmaxnreg
//
// Shared memory: linear_layout.cuh. Barriers:
//   weights_full, tokens_full      per slot, producer -> math, by transaction bytes
//   weights_empty, tokens_empty    per slot, math -> producer, one arrival per warp: weights when
//                                  the wgmma that take them from registers are issued, tokens when
//                                  the wgmma that read them are over
//   scaled                         warp 10 -> math: the scales are in shared memory
//   named barrier 1                the math warps: before the grid barrier, around `squares`,
//                                  `largest` and `factor`
//   grid barrier (global counter)  one arrival per block and GEMM of a chain, and one for the
//                                  quantization before it. The token producer
//                                  waits for it and sets barriers_passed, which warp 10 and the
//                                  thread that arrives for the block poll
//   partial sums (global)          from a warp to the same warp of another block, partial_sums.cuh
// The weight producer waits for the weights' barriers only: the weights of the next GEMM arrive
// during the grid barrier.
#pragma once

#include "base/ptx/execution.cuh"
#include "base/ptx/wgmma.cuh"
#include "engine/cuda/device/grid_barrier.cuh"
#include "engine/cuda/gemm/linear_epilogue.cuh"
#include "engine/cuda/gemm/linear_fragments.cuh"
#include "engine/cuda/gemm/linear_producer.cuh"

namespace ridge::cuda {

#ifdef RIDGE_HOPPER

// One warp: the scales of the folded norm, from the sums of squares that the previous GEMM left.
template <WeightFormat kFormat, int kTokens, bool kFp8Tokens>
__device__ inline void compute_token_scales(const GemmChain& chain,
                                            LinearShared<kFormat, kTokens, kFp8Tokens>& shared,
                                            int lane) {
  ptx::griddepcontrol_wait();
  for (int op = 0; op < gemm_count<kTokens>(chain); ++op) {
    const LinearArgs& args = chain.ops[op];
    if (!args.squares) continue;
    wait_grid_barriers(shared, op + chain.quantizes);
    // The loads of all lanes are in flight together: latency is long while weights stream in.
    float sum[kTokens / 32] = {};
#pragma unroll(1024 / kTokens)
    for (int i = 0; i < args.square_tiles; ++i) {
#pragma unroll
      for (int v = 0; v < kTokens / 32; ++v) {
        sum[v] += __ldcg(args.squares + i * kTokens + v * 32 + lane);
      }
    }
#pragma unroll
    for (int v = 0; v < kTokens / 32; ++v) {
      shared.scale[v * 32 + lane] = rsqrtf(sum[v] / args.square_columns + args.eps);
    }
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&shared.scaled);
  }
}

// One math warp.
template <WeightFormat kFormat, int kTokens, bool kFp8Tokens>
struct LinearMath {
  using Stage = LinearStage<kFormat, kTokens, kFp8Tokens>;
  using Fragments = uint32_t[4][4];
  using Sums = float[kTokens / 2];
  // Activations in E4M3: sums of a group of columns that are held at a time. More registers would
  // spill.
  static constexpr int kParts = kTokens <= 64 ? 2 : 1;

  const GemmChain& chain;
  LinearShared<kFormat, kTokens, kFp8Tokens>& shared;
  const int warp, lane, thread = warp * 32 + lane;
  PipelineState weights = {}, tokens = {};
  uint32_t scaled_parity = 0;
  bool scaled = false;  // the token scales of this GEMM have been waited for, or it has none

  __device__ __forceinline__ void run() {
    ptx::griddepcontrol_wait();
    if constexpr (kFp8Tokens) {
      if (chain.quantizes) quantize_tokens();
    }
#pragma unroll 1
    for (int op = 0; op < gemm_count<kTokens>(chain); ++op) {
      const LinearArgs& args = chain.ops[op];
      const int token_tiles = args.tile_count ? *args.tile_count : args.padded / kTokens;
      scaled = !kChained<kTokens> || args.squares == nullptr;
      GemmTileScheduler scheduler(args, token_tiles);
      Segment segment;
#pragma unroll 1
      while (scheduler.next(segment)) {
        const TileCoord tile(args, token_tiles, segment.tile);
        if constexpr (has_pairs(kFormat, kTokens, kFp8Tokens)) {
          if (args.paired) {
            multiply_pair(args, tile);
            continue;
          }
        }
        if (kChained<kTokens> && (segment.begin == 0 || args.split_k)) {
          prefetch_residual<kTokens>(args, tile, thread);
        }
        Sums d;
        main_loop(args, segment, d);
        finish(scheduler, segment, tile, d);
      }
      if (!scaled) wait_scales();  // this block had no tile to finish
      if (op + 1 < gemm_count<kTokens>(chain)) arrive_grid_barrier(op + chain.quantizes);
    }
  }

  // The first GEMM's x from bf16 to E4M3, one warp for 8 tokens x 64 columns: a lane has 16 columns
  // of a token.
  __device__ __forceinline__ void quantize_tokens() {
    const LinearArgs& args = chain.ops[0];
    constexpr int kEights = kTokens / 8;
    for (int item = blockIdx.x * kTileBlocks + warp; item < args.k_steps * kEights;
         item += gridDim.x * kTileBlocks) {
      const int column = item / kEights * kStepColumns + lane / 8 * 16;
      const int token = item % kEights * 8 + lane % 8;
      const auto load = [&](int k) {
        return __ldcg(reinterpret_cast<const uint4*>(args.x + wide_at(k, token, kTokens)));
      };
      const uint4 low = load(column), high = load(column + 8);
      uint32_t largest = max_u16x2(magnitudes(low), magnitudes(high));
      largest = max_u16x2(largest, __shfl_xor_sync(0xffffffffu, largest, 8));
      largest = max_u16x2(largest, __shfl_xor_sync(0xffffffffu, largest, 16));
      const Quantization quantized =
          quantization<KvFormat::fp8>(bf16_value(uint16_t(max(largest & 0xffffu, largest >> 16))));
      *reinterpret_cast<uint4*>(args.quantized_x + fp8_group_at(column, token, kTokens)) =
          quantize_16(low, high, quantized.factor);
      if (lane < 8) {
        *reinterpret_cast<float*>(args.quantized_x + fp8_group_scale_at(column, token, kTokens)) =
            quantized.scale;
      }
    }
    arrive_grid_barrier(0);
  }

  // d = W x over the segment's K.
  __device__ __forceinline__ void main_loop(const LinearArgs& args, const Segment& segment,
                                            Sums& d) {
#pragma unroll
    for (float& each : d) each = 0;
    if constexpr (kFp8Tokens) {
      Sums parts[kParts] = {};
      if (args.fp8_group == kStepColumns) {
        for (int k = segment.begin; k < segment.end; k += Stage::kSteps) {
          multiply_fp8_stage<1>(parts, d);
        }
      } else {
        for (int k = segment.begin; k < segment.end; k += Stage::kSteps) {
          multiply_fp8_stage<2>(parts, d);
        }
      }
      return;
    }
    int previous = -1;  // token slot whose wgmma may still be in flight
    // The fragments of a step are loaded while the wgmma of the previous one run, into `even` and
    // `odd` alternately.
    Fragments even, odd;
    int k = segment.begin;
    if constexpr (Stage::kSteps == 1) {
      for (; k + 1 < segment.end; k += 2) {
        multiply_stage(even, odd, previous, d);
        multiply_stage(odd, even, previous, d);
      }
      if (k < segment.end) multiply_stage(even, odd, previous, d);
    } else {
      for (; k < segment.end; k += Stage::kSteps) multiply_stage(even, odd, previous, d);
    }
    ptx::wgmma_wait<0>();
    fence_operands(d);
    if (lane == 0) ptx::mbarrier_arrive(&shared.tokens_empty[previous]);
  }

  // Two adjacent row tiles over all of K: the stages of their weights alternate, and each stage of
  // tokens is multiplied with both.
  __device__ __forceinline__ void multiply_pair(const LinearArgs& args, const TileCoord& tile) {
    Sums first, second;
#pragma unroll
    for (int i = 0; i < kTokens / 2; ++i) first[i] = second[i] = 0;
    int previous = -1;
    Fragments even, odd;
    static_assert(Stage::kSteps % 2 == 0);  // each stage ends with `odd`
#pragma unroll 1
    for (int k = 0; k < args.k_steps; k += Stage::kSteps) {
      multiply_stage<StageTokens::first_of_two>(even, odd, previous, first);
      multiply_stage<StageTokens::second_of_two>(even, odd, previous, second);
    }
    ptx::wgmma_wait<0>();
    fence_operands(first);
    fence_operands(second);
    if (lane == 0) ptx::mbarrier_arrive(&shared.tokens_empty[previous]);
    if (!scaled) wait_scales();
      // Both tiles by the same code, which is cold: moving the sums costs less.
#pragma unroll 1
    for (int i = 0; i < 2; ++i) {
      TileEpilogue<kFormat, kTokens, kFp8Tokens> epilogue(args, shared, warp, lane);
      epilogue.load(TileCoord(tile.row + i, tile.token));
      epilogue.run_gate(first);
#pragma unroll
      for (int j = 0; j < kTokens / 2; ++j) first[j] = second[j];
    }
  }

  // Keeps the compiler from reading the sums before the wait for their wgmma.
  static __device__ __forceinline__ void fence_operands(Sums& d) {
#pragma unroll
    for (float& each : d) asm volatile("" : "+f"(each)::"memory");
  }

  // How often a stage of tokens is multiplied: once, or with a stage of weights of each tile of a
  // pair. The first use waits for the tokens, and after the last one they are released.
  enum class StageTokens { once, first_of_two, second_of_two };

  template <StageTokens kUse = StageTokens::once>
  __device__ __forceinline__ void multiply_stage(Fragments& even, Fragments& odd, int& previous,
                                                 Sums& d) {
    constexpr bool kFirstUse = kUse != StageTokens::second_of_two;
    ptx::mbarrier_wait(&shared.weights_full[weights.stage], weights.phase);
    const uint8_t* const stage = shared.weights[weights.stage];
    const uint64_t x = ptx::wgmma_descriptor(shared.tokens[tokens.stage], 128, 1024);
    PackedStep<kFormat> packed[Stage::kSteps];  // all loads in flight together
#pragma unroll
    for (int i = 0; i < Stage::kSteps; ++i) {
      const int box = i / Stage::kBoxSteps, in_box = warp * Stage::kBoxSteps + i % Stage::kBoxSteps;
      packed[i].load(stage + box * Stage::kBoxBytes + in_box * Stage::kBlockBytes, lane);
    }
#pragma unroll
    for (int i = 0; i < Stage::kSteps; ++i) {
      Fragments& a = i % 2 ? odd : even;
      packed[i].dequantize(a);
      if (kFirstUse && i == 0) {
        ptx::mbarrier_wait(&shared.tokens_full[tokens.stage], tokens.phase);
      }
      ptx::wgmma_fence();
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        ptx::wgmma_bf16_rs<kTokens>(
            d, a[c], ptx::wgmma_descriptor_at(x, i * Stage::kStepTokenBytes + c * 256), true);
      }
      ptx::wgmma_commit();
      // Until the wgmma are issued the loads of weights may be in flight.
      if (i == Stage::kSteps - 1) {
        __syncwarp();
        if (lane == 0) ptx::mbarrier_arrive(&shared.weights_empty[weights.stage]);
      }
      ptx::wgmma_wait<1>();
      if (kFirstUse && i == 0 && previous >= 0 && lane == 0)
        ptx::mbarrier_arrive(&shared.tokens_empty[previous]);
    }
    weights.advance(Stage::kWeightSlots);
    if constexpr (kUse == StageTokens::first_of_two) return;
    previous = tokens.stage;
    tokens.advance(Stage::kTokenSlots);
  }

  // Activations in E4M3, a stage of K. The columns of a scale have sums of their own, which are
  // added to d with the scales of the tokens. kGroupSteps: steps of K with a common scale.
  template <int kGroupSteps>
  __device__ __forceinline__ void multiply_fp8_stage(Sums (&parts)[kParts], Sums& d) {
    constexpr int kSteps = Stage::kSteps, kGroups = kSteps / kGroupSteps;
    constexpr int kHeld = min_of(kGroups, kParts);
    static_assert(kSteps == Stage::kBoxSteps);
    ptx::mbarrier_wait(&shared.weights_full[weights.stage], weights.phase);
    uint32_t a[kSteps * 2][4];
    load_fp8_fragments(a, shared.weights[weights.stage] + warp * kSteps * Stage::kBlockBytes, lane);
    // In registers before the wgmma are fenced.
#pragma unroll
    for (int i = 0; i < kSteps * 8; ++i) asm volatile("" : "+r"(a[i / 4][i % 4]));
    const uint8_t* const x = shared.tokens[tokens.stage];
    ptx::mbarrier_wait(&shared.tokens_full[tokens.stage], tokens.phase);
    const auto multiply = [&](int group) {
      ptx::wgmma_fence();
#pragma unroll
      for (int c = 0; c < kGroupSteps * 2; ++c) {
        const int step = group * kGroupSteps + c / 2;
        const uint64_t columns =
            ptx::wgmma_descriptor(x + step * Stage::kStepTokenBytes + c % 2 * 256, 128, 512);
        ptx::wgmma_e4m3_rs<kTokens>(parts[group % kHeld], a[step * 2 + c % 2], columns, c > 0);
      }
      ptx::wgmma_commit();
    };
    const auto release_weights = [&] {
      __syncwarp();
      if (lane == 0) ptx::mbarrier_arrive(&shared.weights_empty[weights.stage]);
    };
#pragma unroll
    for (int i = 0; i < kHeld; ++i) multiply(i);
    if constexpr (kHeld == kGroups) release_weights();
#pragma unroll
    for (int i = 0; i < kGroups; ++i) {
      i + kHeld <= kGroups ? ptx::wgmma_wait<kHeld - 1>() : ptx::wgmma_wait<0>();
      fence_operands(parts[i % kHeld]);
      const float* const scale = reinterpret_cast<const float*>(
          x + i * kGroupSteps * Stage::kStepTokenBytes + kTokens * kStepColumns);
      const Sums& part = parts[i % kHeld];
#pragma unroll
      for (int j = 0; j < kTokens / 8; ++j) {
        const float2 s = *reinterpret_cast<const float2*>(scale + j * 8 + lane % 4 * 2);
        d[4 * j] += part[4 * j] * s.x, d[4 * j + 1] += part[4 * j + 1] * s.y;
        d[4 * j + 2] += part[4 * j + 2] * s.x, d[4 * j + 3] += part[4 * j + 3] * s.y;
      }
      if (i + kHeld < kGroups) multiply(i + kHeld);
      if (kHeld < kGroups && i + kHeld + 1 == kGroups) release_weights();
    }
    __syncwarp();
    if (lane == 0) ptx::mbarrier_arrive(&shared.tokens_empty[tokens.stage]);
    weights.advance(Stage::kWeightSlots);
    tokens.advance(Stage::kTokenSlots);
  }

  // Exchanges partial sums where K is split; the block that has the whole sum runs the epilogue.
  __device__ __forceinline__ void finish(const GemmTileScheduler& scheduler, const Segment& segment,
                                         const TileCoord& tile, Sums& d) {
    const LinearArgs& args = scheduler.args;
    if (kChained<kTokens> && args.split_k) {
      publish_slices<kTokens>(args, d, thread);
      const int part = blockIdx.x % args.split_k;
      if (part >= kSlices) return;
      constexpr int kSlice = kTokens / kSlices;
      run_epilogue(TileEpilogue<kFormat, kTokens, kFp8Tokens, kSlice>(args, shared, warp, lane,
                                                                      part * kSlice),
                   tile, d, [&] { reduce_slice<kTokens>(args, d, thread); });
    } else if (segment.begin > 0) {
      publish_partials<kTokens>(args, d, thread);
    } else {
      run_epilogue(TileEpilogue<kFormat, kTokens, kFp8Tokens>(args, shared, warp, lane), tile, d,
                   [&] {
                     if (segment.end < args.k_steps) {
                       reduce_partials<kTokens>(scheduler, segment.tile, d, thread);
                     }
                   });
    }
  }

  // Chains issue the epilogue's loads before the reduction, to overlap their latency; large tiles
  // have no registers for that.
  template <typename TheEpilogue, typename Reduce>
  __device__ __forceinline__ void run_epilogue(TheEpilogue&& epilogue, const TileCoord& tile,
                                               Sums& d, const Reduce& reduce) {
    if (kChained<kTokens>) epilogue.load(tile);
    reduce();
    if (!kChained<kTokens>) epilogue.load(tile);
    if (!scaled) wait_scales();
    epilogue.run(d);
  }

  __device__ __forceinline__ void wait_scales() {
    ptx::mbarrier_wait(&shared.scaled, scaled_parity);
    scaled_parity ^= 1, scaled = true;
  }

  __device__ __forceinline__ void arrive_grid_barrier(int barriers_before) {
    ptx::bar_sync<1>(kMathThreads);
    if (thread == 0) {
      // A block without tiles must not arrive twice before the previous barrier is over.
      wait_grid_barriers(shared, barriers_before);
      grid_barrier_arrive(chain.grid_barrier);
    }
  }
};

#endif

template <WeightFormat kFormat, int kTokens, bool kFp8Tokens = false>
__global__ void __launch_bounds__(kLinearThreads, 1)
    linear_kernel(const __grid_constant__ GemmChain chain) {
#ifdef RIDGE_HOPPER
  using Stage = LinearStage<kFormat, kTokens, kFp8Tokens>;
  extern __shared__ __align__(128) uint8_t memory[];
  auto& shared = *reinterpret_cast<LinearShared<kFormat, kTokens, kFp8Tokens>*>(memory);
  static_assert(sizeof(shared) <= linear_shared_bytes<kFormat, kTokens, kFp8Tokens>());
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x < Stage::kWeightSlots) {
    ptx::mbarrier_init(&shared.weights_full[threadIdx.x], 1);
    ptx::mbarrier_init(&shared.weights_empty[threadIdx.x], kTileBlocks);
  }
  if (threadIdx.x < Stage::kTokenSlots) {
    ptx::mbarrier_init(&shared.tokens_full[threadIdx.x], 1);
    ptx::mbarrier_init(&shared.tokens_empty[threadIdx.x], kTileBlocks);
  }
  if (threadIdx.x == 0) {
    shared.barriers_passed = 0;
    ptx::mbarrier_init(&shared.scaled, 1);
  }
  ptx::fence_proxy_async();
  __syncthreads();
  ptx::griddepcontrol_launch_dependents();
  if (warp >= kTileBlocks) {
    ptx::setmaxnreg_dec<kProducerRegisters<kTokens>>();
    if (threadIdx.x == kMathThreads) produce_weights(chain, shared);
    if (threadIdx.x == kMathThreads + 32) produce_tokens(chain, shared);
    if (kChained<kTokens> && warp == kTileBlocks + 2) compute_token_scales(chain, shared, lane);
  } else {
    ptx::setmaxnreg_inc<kMathRegisters<kTokens>>();
    LinearMath<kFormat, kTokens, kFp8Tokens>{chain, shared, warp, lane}.run();
  }
#endif
}

template <WeightFormat kFormat, int kTokens, bool kFp8Tokens>
void launch_linear(cudaStream_t stream, int grid, const GemmChain& chain) {
  constexpr int kShared = linear_shared_bytes<kFormat, kTokens, kFp8Tokens>();
  static_assert(kShared <= 227 * 1024);
  const auto kernel = linear_kernel<kFormat, kTokens, kFp8Tokens>;
  [[maybe_unused]] static const bool ready = allow_shared_memory(kernel, kShared);
  launch_dependent(kernel, dim3(grid), kLinearThreads, kShared, stream, chain);
}

template <WeightFormat kFormat, bool kFp8Tokens>
void launch_linear_format(cudaStream_t stream, int grid, int tile_tokens, const GemmChain& chain) {
  // check_fp8_tokens() of linear.cu refuses larger tiles.
  constexpr int kLargest = kFp8Tokens ? Linear::kMaxChainedTokens : kMaxTileTokens;
  switch (tile_tokens) {
    case 32:
      return launch_linear<kFormat, 32, kFp8Tokens>(stream, grid, chain);
    case 64:
      return launch_linear<kFormat, 64, kFp8Tokens>(stream, grid, chain);
    case 128:
      return launch_linear<kFormat, 128, kFp8Tokens>(stream, grid, chain);
    default:
      return launch_linear<kFormat, kLargest, kFp8Tokens>(stream, grid, chain);
  }
}

}  // namespace ridge::cuda
