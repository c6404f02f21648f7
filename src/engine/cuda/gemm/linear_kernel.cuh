// The kernel of linear.cuh.
#pragma once

#include "engine/cuda/gemm/linear_epilogue.cuh"
#include "engine/cuda/ptx/mma.cuh"
#include "engine/cuda/ptx/wgmma.cuh"

namespace ridge::cuda {

#ifdef RIDGE_HOPPER

// A warp's 16 rows x 64 columns as A.
template <WeightFormat kFormat>
__device__ inline void load_fragments(uint32_t (&a)[4][4], const uint8_t* block, int lane) {
  constexpr FormatInfo kInfo = format_info(kFormat);
  constexpr int kSteps = kInfo.columns / 16;
#pragma unroll
  for (int c = 0; c < 4 / kSteps; ++c) {
    const uint8_t* chunk = block + c * kInfo.chunk_bytes;
    const uint4 words = reinterpret_cast<const uint4*>(chunk)[lane];
    __half2 scale = {};
    if (kInfo.chunk_bytes > 512) {
      scale = *reinterpret_cast<const __half2*>(chunk + 512 + lane / 4 * 4);
    }
    uint32_t unpacked[kSteps][4];
    unpack_chunk<kFormat>(words, scale, unpacked);
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
#pragma unroll
      for (int r = 0; r < 4; ++r) a[c * kSteps + k][r] = unpacked[k][r];
    }
  }
}

// A warp of its own: the scales of the tokens, from the squares that the product before left.
template <WeightFormat kFormat, int kTokens>
__device__ inline void scale_tokens(const Chain& chain, LinearShared<kFormat, kTokens>& shared,
                                    int lane) {
  after_previous();
  for (int op = 0; op < products_of<kTokens>(chain); ++op) {
    const LinearArgs& args = chain.ops[op];
    if (!args.squares) continue;
    wait_met(shared, op);
    // All lanes' loads are under way together: latency is long while weights stream in.
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
    if (lane == 0) arrive(&shared.scaled);
  }
}

template <WeightFormat kFormat, int kTokens>
__device__ inline void multiply(const Chain& chain, LinearShared<kFormat, kTokens>& shared,
                                int warp, int lane) {
  using Part = Stage<kFormat, kTokens>;
  const int thread = warp * 32 + lane;
  after_previous();
  Place weights, tokens;
  uint32_t scaled_parity = 0;
#pragma unroll 1
  for (int op = 0; op < products_of<kTokens>(chain); ++op) {
    const LinearArgs& args = chain.ops[op];
    const int token_tiles = args.tile_count ? *args.tile_count : args.padded / kTokens;
    bool scaled = !kChained<kTokens> || args.squares == nullptr;
    Walk walk(args, token_tiles);
    Segment segment;
#pragma unroll 1
    while (walk.next(segment)) {
      const TileAt at(args, token_tiles, segment.tile);
      if (kChained<kTokens> && (segment.begin == 0 || args.ways))
        expect_residual<kTokens>(args, at, thread);
      float d[kTokens / 2];
#pragma unroll
      for (float& each : d) each = 0;
      int before = -1;  // the tokens' slot whose products may still be under way
      // A step's fragments are loaded while the products of the one before run, from `a` and `b` by
      // turns.
      using Fragments = uint32_t[4][4];
      const auto stage = [&](Fragments& a, Fragments& b) {
        wait(&shared.weights_full[weights.slot], weights.parity);
        const uint8_t* const block = shared.weights[weights.slot];
        const uint64_t x = core_matrices(shared.tokens[tokens.slot], 128, 1024);
#pragma unroll
        for (int i = 0; i < Part::kSteps; ++i) {
          Fragments& mine = i % 2 ? b : a;
          const int at_box = i / Part::kBoxSteps,
                    in_box = warp * Part::kBoxSteps + i % Part::kBoxSteps;
          load_fragments<kFormat>(
              mine, block + at_box * Part::kBoxBytes + in_box * Part::kBlockBytes, lane);
          if (i == Part::kSteps - 1) {
            __syncwarp();
            if (lane == 0) arrive(&shared.weights_empty[weights.slot]);
          }
          if (i == 0) wait(&shared.tokens_full[tokens.slot], tokens.parity);
          wgmma_fence();
#pragma unroll
          for (int c = 0; c < 4; ++c) {
            wgmma<kTokens>(d, mine[c], further(x, i * Part::kStepTokenBytes + c * 256));
          }
          wgmma_commit();
          wgmma_wait<1>();
          if (i == 0 && before >= 0 && lane == 0) arrive(&shared.tokens_empty[before]);
        }
        weights.advance(Part::kWeightSlots);
        before = tokens.slot;
        tokens.advance(Part::kTokenSlots);
      };
      Fragments even, odd;
      int k = segment.begin;
      if constexpr (Part::kSteps == 1) {
        for (; k + 1 < segment.end; k += 2) {
          stage(even, odd);
          stage(odd, even);
        }
        if (k < segment.end) stage(even, odd);
      } else {
        for (; k < segment.end; k += Part::kSteps) stage(even, odd);
      }
      wgmma_wait<0>();
      if (lane == 0) arrive(&shared.tokens_empty[before]);

      const auto finish = [&](auto&& last, const auto& take) {
        if (kChained<kTokens>) last.ask(at);
        take();
        if (!kChained<kTokens>) last.ask(at);
        if (!scaled) {
          wait(&shared.scaled, scaled_parity);
          scaled_parity ^= 1, scaled = true;
        }
        last.tile(d);
      };
      if (kChained<kTokens> && args.ways) {
        leave_slices<kTokens>(args, d, thread);
        const int part = blockIdx.x % args.ways;
        if (part >= kSlices) continue;
        constexpr int kSlice = kTokens / kSlices;
        finish(Finish<kFormat, kTokens, kSlice>(args, shared, warp, lane, part * kSlice),
               [&] { take_slice<kTokens>(args, d, thread); });
      } else if (segment.begin > 0) {
        hand_over<kTokens>(args, d, thread);
      } else {
        finish(Finish<kFormat, kTokens>(args, shared, warp, lane), [&] {
          if (segment.end < args.steps_of_k) take_over<kTokens>(walk, segment.tile, d, thread);
        });
      }
    }
    if (!scaled) {  // this block had no tile to finish
      wait(&shared.scaled, scaled_parity);
      scaled_parity ^= 1;
    }
    if (op + 1 < products_of<kTokens>(chain)) {
      fence_proxy();  // bulk copies read these results next
      meet<1>(kProducts);
      if (thread == 0) {
        wait_met(shared, op);  // a block may have had nothing to do
        grid_arrive(chain.meeting);
      }
    }
  }
}

#endif

template <WeightFormat kFormat, int kTokens>
__global__ void __launch_bounds__(kLinearThreads, 1)
    linear_kernel(const __grid_constant__ Chain chain) {
#ifdef RIDGE_HOPPER
  using Part = Stage<kFormat, kTokens>;
  extern __shared__ __align__(128) uint8_t memory[];
  auto& shared = *reinterpret_cast<LinearShared<kFormat, kTokens>*>(memory);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x < Part::kWeightSlots) {
    init(&shared.weights_full[threadIdx.x], 1);
    init(&shared.weights_empty[threadIdx.x], kTileBlocks);
  }
  if (threadIdx.x < Part::kTokenSlots) {
    init(&shared.tokens_full[threadIdx.x], 1);
    init(&shared.tokens_empty[threadIdx.x], kTileBlocks);
  }
  if (threadIdx.x == 0) {
    shared.met = 0;
    init(&shared.scaled, 1);
  }
  fence_proxy();
  __syncthreads();
  let_next_begin();
  if (warp >= kTileBlocks) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kFew<kTokens>));
    if (threadIdx.x == kProducts) produce_weights<kFormat, kTokens>(chain, shared);
    if (threadIdx.x == kProducts + 32) produce_tokens<kFormat, kTokens>(chain, shared);
    if (kChained<kTokens> && warp == kTileBlocks + 2)
      scale_tokens<kFormat, kTokens>(chain, shared, lane);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kMany<kTokens>));
    multiply<kFormat, kTokens>(chain, shared, warp, lane);
  }
#endif
}

// The size of LinearShared, which only the device's code defines.
template <WeightFormat kFormat, int kTokens>
constexpr int shared_bytes() {
  using Part = Stage<kFormat, kTokens>;
  return Part::kWeightSlots * (Part::kWeightBytes + 16) +
         Part::kTokenSlots * (Part::kTokenBytes + 16) + 24 + kTokens * 4 * (1 + kTileBlocks) +
         kStagingBytes + 256;  // alignment
}

template <WeightFormat kFormat, int kTokens>
void launch_linear(cudaStream_t stream, int grid, const Chain& chain) {
  constexpr int kShared = shared_bytes<kFormat, kTokens>();
  static_assert(kShared <= 227 * 1024);
  static const bool ready = [] {
    check(cudaFuncSetAttribute(linear_kernel<kFormat, kTokens>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
          "asking for shared memory");
    return true;
  }();
  static_cast<void>(ready);
  launch_dependent(linear_kernel<kFormat, kTokens>, dim3(grid), kLinearThreads, kShared, stream,
                   chain);
}

template <WeightFormat kFormat>
void launch_linear_of(cudaStream_t stream, int grid, int tile_tokens, const Chain& chain) {
  switch (tile_tokens) {
    case 32:
      return launch_linear<kFormat, 32>(stream, grid, chain);
    case 64:
      return launch_linear<kFormat, 64>(stream, grid, chain);
    case 128:
      return launch_linear<kFormat, 128>(stream, grid, chain);
    default:
      return launch_linear<kFormat, 256>(stream, grid, chain);
  }
}

}  // namespace ridge::cuda
