// The kernel of linear.cuh.
#pragma once

#include "engine/cuda/linear.cuh"
#include "engine/cuda/mma.cuh"
#include "engine/cuda/wgmma.cuh"

namespace ridge::cuda {

constexpr int kTileRows = 128;
constexpr int kTileBlocks = kTileRows / kBlockRows;  // one for each multiplying warp
constexpr int kStageColumns = 64;
constexpr int kUnit = 4;  // K is split at multiples of so many stages
constexpr int kProducts = kTileBlocks * 32;
constexpr int kLinearThreads = kProducts + 128;  // registers move between whole warpgroups
constexpr int kTokenGroup = 8;  // tiles of tokens that go together over all rows, for L2's sake

// Results on their way out, for each warp: tokens, and their 16 rows with room between the banks.
constexpr int kStaged = 32, kStagedRow = kBlockRows + 4;
constexpr int kStagingBytes = kTileBlocks * kStaged * kStagedRow * 4;

template <WeightFormat kFormat, int kTokens>
struct Stage {
  static constexpr int kChunks = kStageColumns / format_info(kFormat).columns;
  static constexpr int kBlockBytes = kChunks * format_info(kFormat).chunk_bytes;
  static constexpr int kWeightBytes = kTileBlocks * kBlockBytes;
  static constexpr int kTokenBytes = kTokens * kStageColumns * 2;
  static constexpr int kBytes = kWeightBytes + kTokenBytes;
  // Few tokens: half of an SM, so that the next operator's weights arrive beside this one's.
  static constexpr bool kHalf = kTokens <= 64;
  // Of a producing and of a multiplying thread: 80 or 168 on average.
  static constexpr int kFew = kHalf ? 32 : 40, kMany = kHalf ? 104 : 232;
  static constexpr int kSlots = (kHalf ? 95 : 205) * 1024 / kBytes;
};

#ifdef RIDGE_HOPPER

// What a block does, piece by piece: stages [begin, end) of a tile.
struct Segment {
  int tile, begin, end;
};
struct Walk {
  const LinearArgs& args;
  int tiles, blocks, at, last;

  __device__ explicit Walk(const LinearArgs& a, int token_tiles)
      : args(a), tiles(a.row_tiles * token_tiles) {
    blocks = min(static_cast<int>(gridDim.x), tiles * units());  // that have something to do
    if (args.split) {
      at = start_of(blockIdx.x), last = start_of(blockIdx.x + 1);
    } else {
      at = blockIdx.x, last = tiles;
    }
  }
  __device__ int units() const { return (args.stages_of_k + kUnit - 1) / kUnit; }
  __device__ int start_of(int block) const {
    return static_cast<int>(static_cast<long long>(tiles) * units() * min(block, blocks) / blocks);
  }
  __device__ bool next(Segment& segment) {
    if (at >= last) return false;
    if (!args.split) {
      segment = {at, 0, args.stages_of_k};
      at += gridDim.x;
      return true;
    }
    const int tile = at / units(), first = at % units(), count = min(units() - first, last - at);
    segment = {tile, first * kUnit, min(args.stages_of_k, (first + count) * kUnit)};
    at += count;
    return true;
  }
};

// Where a tile lies.
struct TileAt {
  int row, token;  // in tiles
  __device__ TileAt(const LinearArgs& args, int token_tiles, int tile) {
    const int together = kTokenGroup * args.row_tiles, group = tile / together;
    const int width = min(kTokenGroup, token_tiles - group * kTokenGroup);
    row = tile % together / width;
    token = group * kTokenGroup + tile % together % width;
  }
};

template <WeightFormat kFormat, int kTokens>
struct LinearRing {
  using Part = Stage<kFormat, kTokens>;
  uint64_t* full;
  uint64_t* empty;
  uint8_t* slots;
  __device__ uint8_t* weights(int slot) const { return slots + slot * Part::kBytes; }
  __device__ uint8_t* tokens(int slot) const { return weights(slot) + Part::kWeightBytes; }
};

// One thread: two copies a stage. (A copy of a block each, eight a stage, was slower: the copy
// engine takes about 100 clocks for each, whatever its size.)
template <WeightFormat kFormat, int kTokens>
__device__ inline void produce(const LinearArgs& args, const LinearRing<kFormat, kTokens>& ring) {
  using Part = Stage<kFormat, kTokens>;
  const auto fetch_weights = [&](int slot, const TileAt& at, int k, int matrix) {
    arrive_expecting(&ring.full[slot], Part::kBytes);
    fetch_box(ring.weights(slot), &args.weights, k * (Part::kBlockBytes / 8), at.row * kTileBlocks,
              matrix, &ring.full[slot]);
  };
  // The weights of the first stages do not depend on the kernel before this one.
  const bool known = args.tile_count == nullptr;
  int ahead = 0;
  if (known) {
    const int token_tiles = args.padded / kTokens;
    Walk walk(args, token_tiles);
    Segment segment;
    while (ahead < Part::kSlots && walk.next(segment)) {
      const TileAt at(args, token_tiles, segment.tile);
      for (int k = segment.begin; k < segment.end && ahead < Part::kSlots; ++k, ++ahead) {
        fetch_weights(ahead, at, k, 0);
      }
    }
  }
  after_previous();
  const int token_tiles = known ? args.padded / kTokens : *args.tile_count;
  Walk walk(args, token_tiles);
  Segment segment;
  Place place;
  while (walk.next(segment)) {
    const TileAt at(args, token_tiles, segment.tile);
    const int matrix = known ? 0 : args.tile_matrix[at.token];
    for (int k = segment.begin; k < segment.end; ++k) {
      if (ahead > 0) {
        --ahead;
      } else {
        wait(&ring.empty[place.slot], place.parity ^ 1);
        fetch_weights(place.slot, at, k, matrix);
      }
      const size_t from = (size_t(k) * (args.padded / 8) + at.token * (kTokens / 8)) * 512;
      fetch(ring.tokens(place.slot), args.x + from, Part::kTokenBytes, &ring.full[place.slot]);
      place.advance(Part::kSlots);
    }
  }
}

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

// A block's part of a tile that an earlier one began: at most one, of its first segment.
template <int kTokens>
__device__ inline float4* part_of(const LinearArgs& args, int block, int thread) {
  return reinterpret_cast<float4*>(args.partial) + size_t(block) * (kTokens / 8) * kProducts +
         thread;
}

template <int kTokens>
__device__ inline void hand_over(const LinearArgs& args, const float (&d)[kTokens / 2],
                                 int thread) {
  float4* to = part_of<kTokens>(args, blockIdx.x, thread);
#pragma unroll
  for (int j = 0; j < kTokens / 8; ++j) {
    __stcg(to + j * kProducts, float4{d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]});
  }
  meet<1>(kProducts);
  if (thread == 0) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(args.done + blockIdx.x),
                 "r"(args.serial)
                 : "memory");
  }
}

// Adds what the blocks after this one have of a tile, in their order.
template <int kTokens>
__device__ inline void take_over(const Walk& walk, int tile, float (&d)[kTokens / 2], int thread) {
  const LinearArgs& args = walk.args;
  const int first = blockIdx.x + 1, end = (tile + 1) * walk.units();
  int last = first;  // the one after them
  while (walk.start_of(last) < end) ++last;
  if (first + thread < last) {
    unsigned seen;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                   : "=r"(seen)
                   : "l"(args.done + first + thread)
                   : "memory");
    } while (seen != args.serial);
  }
  meet<1>(kProducts);
  // Few tokens: two blocks' loads under way at a time.
#pragma unroll(kTokens <= 64 ? 2 : 1)
  for (int block = first; block < last; ++block) {
    const float4* from = part_of<kTokens>(args, block, thread);
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      const float4 part = __ldcg(from + j * kProducts);
      d[4 * j] += part.x, d[4 * j + 1] += part.y;
      d[4 * j + 2] += part.z, d[4 * j + 3] += part.w;
    }
  }
}

__device__ inline float gated(Gate gate, float value) {
  return gate == Gate::silu
             ? value / (1 + __expf(-value))
             : 0.5f * value *
                   (1 + tanhf(0.7978845608f * (value + 0.044715f * value * value * value)));
}

// What follows the product, for one warp's 16 rows.
struct Finish {
  const LinearArgs& args;
  int g, t, block, first;  // first: token of the tile
  float scale[2] = {1, 1}, bias[2] = {0, 0};

  __device__ Finish(const LinearArgs& a, const TileAt& at, int matrix, int tile_tokens, int warp,
                    int lane)
      : args(a),
        g(lane / 4),
        t(lane % 4),
        block(at.row * kTileBlocks + warp),
        first(at.token * tile_tokens) {
    if (!there()) return;
    const int row = block * kBlockRows + g;
    if (args.tiles.row_scale) {
      const float* from = args.tiles.row_scale + size_t(matrix) * args.tiles.blocks * kBlockRows;
      scale[0] = from[row], scale[1] = from[row + 8];
    }
    if (args.bias) bias[0] = args.bias[row], bias[1] = args.bias[row + 8];
  }
  __device__ bool there() const { return block < args.tiles.blocks; }

  // Gate and up of 8 tokens: a lane has rows g of both.
  __device__ void gate(int j, float d0, float d1, float d2, float d3) const {
    uint32_t pair = pack_bf16(gated(args.gate, d0 * scale[0]) * d2 * scale[1],
                              gated(args.gate, d1 * scale[0]) * d3 * scale[1]);
    // A row of 8 tokens becomes a token's 8 rows.
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(pair));
    uint16_t* to = args.out + wide_at(block * 8 + t * 2, first + j * 8 + g, args.padded);
    *reinterpret_cast<uint32_t*>(to) = pair;
  }
  __device__ float value(float d, int half) const {
    const float y = d * scale[half] + bias[half];
    return args.softcap > 0 ? args.softcap * tanhf(y / args.softcap) : y;
  }
};

// A tile: 32 tokens at a time through shared memory, so that 16 rows are 64 bytes.

template <int kTokens>
__device__ inline void finish_tile(const Finish& finish, const float (&d)[kTokens / 2], int lane,
                                   float* staging) {
  const LinearArgs& args = finish.args;
  if (!finish.there()) return;
  if (args.after == After::gate) {
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      finish.gate(j, d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]);
    }
    return;
  }
  const bool add = args.after == After::add;
  const int row = finish.block * kBlockRows + lane % 4 * 4;
  const bool fours = row + 4 <= args.row_count && args.stride % 4 == 0;
#pragma unroll
  for (int from = 0; from < kTokens; from += kStaged) {
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kStaged / 8; ++j) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        staging[(j * 8 + finish.t * 2 + v % 2) * kStagedRow + finish.g + v / 2 * 8] =
            finish.value(d[(from / 8 + j) * 4 + v], v / 2);
      }
    }
    __syncwarp();
    float4 values[kStaged / 8];
#pragma unroll
    for (int i = 0; i < kStaged / 8; ++i) {
      const int token = finish.first + from + i * 8 + lane / 4;
      float* to = args.rows + size_t(token) * args.stride + row;
      values[i] = {0, 0, 0, 0};
      if (add && fours && token < args.tokens) values[i] = *reinterpret_cast<const float4*>(to);
    }
#pragma unroll
    for (int i = 0; i < kStaged / 8; ++i) {
      const int token = finish.first + from + i * 8 + lane / 4;
      const float* mine = staging + (i * 8 + lane / 4) * kStagedRow + lane % 4 * 4;
      float* to = args.rows + size_t(token) * args.stride + row;
      if (token >= args.tokens) continue;
      if (fours) {
        const float4 y = *reinterpret_cast<const float4*>(mine);
        *reinterpret_cast<float4*>(to) = {values[i].x + y.x, values[i].y + y.y, values[i].z + y.z,
                                          values[i].w + y.w};
      } else {
        for (int r = 0; r < min(4, args.row_count - row); ++r) {
          to[r] = add ? to[r] + mine[r] : mine[r];
        }
      }
    }
  }
}

template <WeightFormat kFormat, int kTokens>
__device__ inline void multiply(const LinearArgs& args, const LinearRing<kFormat, kTokens>& ring,
                                float* staging, int warp, int lane) {
  using Part = Stage<kFormat, kTokens>;
  const int thread = warp * 32 + lane;
  after_previous();
  const int token_tiles = args.tile_count ? *args.tile_count : args.padded / kTokens;
  Walk walk(args, token_tiles);
  Segment segment;
  Place place;
  while (walk.next(segment)) {
    float d[kTokens / 2];
#pragma unroll
    for (float& each : d) each = 0;
    // Many tokens: a stage's fragments are loaded while the products of the one before run. Few:
    // the other warpgroup's products fill that time, and there are no registers for two.
    constexpr int kUnderWay = Part::kHalf ? 0 : 1;
    int before = -1;  // the slot whose products may still be under way
    const auto stage = [&](uint32_t(&a)[4][4]) {
      wait(&ring.full[place.slot], place.parity);
      load_fragments<kFormat>(a, ring.weights(place.slot) + warp * Part::kBlockBytes, lane);
      const uint64_t b = core_matrices(ring.tokens(place.slot), 128, 1024);
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < 4; ++i) wgmma<kTokens>(d, a[i], further(b, i * 256));
      wgmma_commit();
      if (kUnderWay == 0) before = place.slot;
      wgmma_wait<kUnderWay>();
      if (before >= 0 && lane == 0) arrive(&ring.empty[before]);
      before = place.slot;
      place.advance(Part::kSlots);
    };
    uint32_t even[4][4], odd[4][4];
    int k = segment.begin;
    for (; kUnderWay > 0 && k + 1 < segment.end; k += 2) {
      stage(even);
      stage(odd);
    }
    for (; k < segment.end; ++k) stage(even);
    wgmma_wait<0>();
    if (kUnderWay > 0 && lane == 0) arrive(&ring.empty[before]);

    if (segment.begin > 0) {
      hand_over<kTokens>(args, d, thread);
      continue;
    }
    if (segment.end < args.stages_of_k) take_over<kTokens>(walk, segment.tile, d, thread);
    const TileAt at(args, token_tiles, segment.tile);
    const int matrix = args.matrix + (args.tile_count ? args.tile_matrix[at.token] : 0);
    finish_tile<kTokens>(Finish(args, at, matrix, kTokens, warp, lane), d, lane,
                         staging + warp * kStaged * kStagedRow);
  }
}

#endif

template <WeightFormat kFormat, int kTokens>
__global__ void __launch_bounds__(kLinearThreads, Stage<kFormat, kTokens>::kHalf ? 2 : 1)
    linear_kernel(const __grid_constant__ LinearArgs args) {
#ifdef RIDGE_HOPPER
  using Part = Stage<kFormat, kTokens>;
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ uint64_t full[Part::kSlots], empty[Part::kSlots];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x < Part::kSlots) {
    init(&full[threadIdx.x], 1);
    init(&empty[threadIdx.x], kTileBlocks);
  }
  fence_proxy();
  __syncthreads();
  let_next_begin();
  const LinearRing<kFormat, kTokens> ring{full, empty, memory};
  if (warp >= kTileBlocks) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Part::kFew));
    if (threadIdx.x == kProducts) produce<kFormat, kTokens>(args, ring);
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Part::kMany));
    multiply<kFormat, kTokens>(
        args, ring, reinterpret_cast<float*>(memory + Part::kSlots * Part::kBytes), warp, lane);
  }
#endif
}

template <WeightFormat kFormat, int kTokens>
void launch_linear(cudaStream_t stream, int grid, const LinearArgs& args) {
  using Part = Stage<kFormat, kTokens>;
  constexpr int kShared = Part::kSlots * Part::kBytes + kStagingBytes;
  static const bool ready = [] {
    check(cudaFuncSetAttribute(linear_kernel<kFormat, kTokens>,
                               cudaFuncAttributeMaxDynamicSharedMemorySize, kShared),
          "asking for shared memory");
    return true;
  }();
  static_cast<void>(ready);
  launch_dependent(linear_kernel<kFormat, kTokens>, dim3(grid), kLinearThreads, kShared, stream,
                   args);
}

template <WeightFormat kFormat>
void launch_linear_of(cudaStream_t stream, int grid, int tile_tokens, const LinearArgs& args) {
  switch (tile_tokens) {
    case 32:
      return launch_linear<kFormat, 32>(stream, grid, args);
    case 64:
      return launch_linear<kFormat, 64>(stream, grid, args);
    case 128:
      return launch_linear<kFormat, 128>(stream, grid, args);
    default:
      return launch_linear<kFormat, 256>(stream, grid, args);
  }
}

}  // namespace ridge::cuda
