// The kernel of linear.cuh.
#pragma once

#include "engine/cuda/linear_finish.cuh"
#include "engine/cuda/mma.cuh"
#include "engine/cuda/wgmma.cuh"

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
    for (int t = lane; t < kTokens; t += 32) {
      float sum = 0;
#pragma unroll 8
      for (int i = 0; i < args.square_tiles; ++i) {
        sum += __ldcg(args.squares + size_t(t) * args.square_tiles + i);
      }
      shared.scale[t] = rsqrtf(sum / args.square_columns + args.eps);
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
  Place place;
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
      float d[kTokens / 2];
#pragma unroll
      for (float& each : d) each = 0;
      int before = -1;  // the slot whose products may still be under way
      // A stage's fragments are loaded while the products of the one before run.
      const auto stage = [&](uint32_t(&a)[4][4]) {
        wait(&shared.weights_full[place.slot], place.parity);
        load_fragments<kFormat>(a, shared.weights(place.slot) + warp * Part::kBlockBytes, lane);
        wait(&shared.tokens_full[place.slot], place.parity);
        const uint64_t b = core_matrices(shared.tokens(place.slot), 128, 1024);
        wgmma_fence();
#pragma unroll
        for (int i = 0; i < 4; ++i) wgmma<kTokens>(d, a[i], further(b, i * 256));
        wgmma_commit();
        wgmma_wait<1>();
        if (before >= 0 && lane == 0) arrive(&shared.empty[before]);
        before = place.slot;
        place.advance(Part::kSlots);
      };
      uint32_t even[4][4], odd[4][4];
      int k = segment.begin;
      for (; k + 1 < segment.end; k += 2) {
        stage(even);
        stage(odd);
      }
      if (k < segment.end) stage(even);
      wgmma_wait<0>();
      if (lane == 0) arrive(&shared.empty[before]);

      if (segment.begin > 0) {
        hand_over<kTokens>(args, d, thread);
        continue;
      }
      if (segment.end < args.stages_of_k) take_over<kTokens>(walk, segment.tile, d, thread);
      if (!scaled) {
        wait(&shared.scaled, scaled_parity);
        scaled_parity ^= 1, scaled = true;
      }
      Finish<kFormat, kTokens>(args, shared, TileAt(args, token_tiles, segment.tile), warp, lane)
          .tile(d);
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
  if (threadIdx.x < Part::kSlots) {
    init(&shared.weights_full[threadIdx.x], 1);
    init(&shared.tokens_full[threadIdx.x], 1);
    init(&shared.empty[threadIdx.x], kTileBlocks);
  }
  if (threadIdx.x == 0) {
    shared.met = 0;
    init(&shared.scaled, 1);
  }
  fence_proxy();
  __syncthreads();
  let_next_begin();
  if (warp >= kTileBlocks) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kFew));
    if (threadIdx.x == kProducts) produce_weights<kFormat, kTokens>(chain, shared);
    if (threadIdx.x == kProducts + 32) produce_tokens<kFormat, kTokens>(chain, shared);
    if (kChained<kTokens> && warp == kTileBlocks + 2)
      scale_tokens<kFormat, kTokens>(chain, shared, lane);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kMany));
    multiply<kFormat, kTokens>(chain, shared, warp, lane);
  }
#endif
}

// The size of LinearShared, which only the device's code defines.
template <WeightFormat kFormat, int kTokens>
constexpr int shared_bytes() {
  using Part = Stage<kFormat, kTokens>;
  return Part::kSlots * (Part::kBytes + 24) + 24 + kTokens * 4 * (1 + kTileBlocks) + kStagingBytes +
         256;  // alignment
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
