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

// Registers of a producing and of a multiplying thread: 168 on average.
constexpr int kFew = 40, kMany = 232;

constexpr int min_of(int a, int b) { return a < b ? a : b; }

// Steps of more tokens come one product a launch: the code for chains is left out.
template <int kTokens>
constexpr bool kChained = kTokens <= Linear::kMostChained;
template <int kTokens>
__host__ __device__ constexpr int products_of(const Chain& chain) {
  return kChained<kTokens> ? chain.count : 1;
}

template <WeightFormat kFormat, int kTokens>
struct Stage {
  static constexpr int kChunks = kStageColumns / format_info(kFormat).columns;
  static constexpr int kBlockBytes = kChunks * format_info(kFormat).chunk_bytes;
  static constexpr int kWeightBytes = kTileBlocks * kBlockBytes;
  static constexpr int kTokenBytes = kTokens * kStageColumns * 2;
  static constexpr int kBytes = kWeightBytes + kTokenBytes;
  static constexpr int kSlots = min_of(16, (226 * 1024 - kStagingBytes - 40 * kTokens) / kBytes);
  // Copies of weights under way: what latency needs. More queue at the memory, and the small reads
  // between operators behind them.
  static constexpr int kInFlight = min_of(kSlots, (72 * 1024 + kWeightBytes - 1) / kWeightBytes);
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

// A block's shared memory.
template <WeightFormat kFormat, int kTokens>
struct LinearShared {
  using Part = Stage<kFormat, kTokens>;
  uint64_t weights_full[Part::kSlots], tokens_full[Part::kSlots], empty[Part::kSlots];
  uint64_t scaled;                   // the tokens' scales are there
  unsigned met;                      // products that all blocks have finished
  alignas(16) float scale[kTokens];  // of the tokens
  float squares[kTileBlocks][kTokens];
  alignas(16) float staging[kTileBlocks][kStaged * kStagedRow];
  alignas(128) uint8_t ring[Part::kSlots][Part::kBytes];

  __device__ uint8_t* weights(int slot) { return ring[slot]; }
  __device__ uint8_t* tokens(int slot) { return ring[slot] + Part::kWeightBytes; }
};

// Until all blocks have finished so many products of the chain.
template <WeightFormat kFormat, int kTokens>
__device__ inline void wait_met(const LinearShared<kFormat, kTokens>& shared, int products) {
  while (*reinterpret_cast<const volatile unsigned*>(&shared.met) < unsigned(products)) {
  }
}

// Calls function(args, tile, stage of K, slot's place) for every stage of this block, in order; for
// experts only after the kernel before has chosen them. `begin` is called before each product.
template <WeightFormat kFormat, int kTokens, typename Begin, typename Function>
__device__ inline void for_each_stage(const Chain& chain, const Begin& begin,
                                      const Function& function) {
  Place place;
  for (int op = 0; op < products_of<kTokens>(chain); ++op) {
    const LinearArgs& args = chain.ops[op];
    begin(op);
    const int token_tiles = args.tile_count ? *args.tile_count : args.padded / kTokens;
    Walk walk(args, token_tiles);
    Segment segment;
    while (walk.next(segment)) {
      const TileAt at(args, token_tiles, segment.tile);
      for (int k = segment.begin; k < segment.end; ++k) {
        function(args, at, k, place);
        place.advance(Stage<kFormat, kTokens>::kSlots);
      }
    }
  }
}

// One thread: a copy a stage (a copy for each block of rows, eight a stage, was slower). Nothing but
// the ring stops it, also between products and before the kernel before this one has ended. (Asking
// for more ahead of the ring, into L2, cost 6 %.)
template <WeightFormat kFormat, int kTokens>
__device__ inline void produce_weights(const Chain& chain, LinearShared<kFormat, kTokens>& shared) {
  using Part = Stage<kFormat, kTokens>;
  Place behind;  // the oldest copy under way
  int under_way = 0;
  for_each_stage<kFormat, kTokens>(
      chain,
      [&](int op) {
        if (chain.ops[op].tile_count) after_previous();
      },
      [&](const LinearArgs& args, const TileAt& at, int k, const Place& place) {
        if (under_way == Part::kInFlight) {
          wait(&shared.weights_full[behind.slot], behind.parity);
          behind.advance(Part::kSlots);
          --under_way;
        }
        wait(&shared.empty[place.slot], place.parity ^ 1);
        arrive_expecting(&shared.weights_full[place.slot], Part::kWeightBytes);
        fetch_box(shared.weights(place.slot), &args.weights, k * (Part::kBlockBytes / 8),
                  at.row * kTileBlocks, args.tile_count ? args.tile_matrix[at.token] : 0,
                  &shared.weights_full[place.slot]);
        ++under_way;
      });
}

// Another: the tokens, which the product before in the chain, or the kernel before, has to finish.
template <WeightFormat kFormat, int kTokens>
__device__ inline void produce_tokens(const Chain& chain, LinearShared<kFormat, kTokens>& shared) {
  using Part = Stage<kFormat, kTokens>;
  for_each_stage<kFormat, kTokens>(
      chain,
      [&](int op) {
        if (op == 0) {
          after_previous();
        } else {
          grid_wait(chain.meeting, chain.met + static_cast<unsigned>(op) * gridDim.x);
          __threadfence();
          fence_proxy();  // other SMs wrote the tokens; bulk copies read them
          *const_cast<volatile unsigned*>(&shared.met) = op;
        }
      },
      [&](const LinearArgs& args, const TileAt& at, int k, const Place& place) {
        wait(&shared.empty[place.slot], place.parity ^ 1);
        arrive_expecting(&shared.tokens_full[place.slot], Part::kTokenBytes);
        const size_t from = (size_t(k) * (args.padded / 8) + at.token * (kTokens / 8)) * 512;
        fetch(shared.tokens(place.slot), args.x + from, Part::kTokenBytes,
              &shared.tokens_full[place.slot]);
      });
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

// What follows the product, for one warp's 16 rows of a tile.
template <WeightFormat kFormat, int kTokens>
struct Finish {
  const LinearArgs& args;
  LinearShared<kFormat, kTokens>& shared;
  int warp, lane, row_tile, block, first;  // first: token of the tile
  float scale[2] = {1, 1}, bias[2] = {0, 0};

  __device__ Finish(const LinearArgs& a, LinearShared<kFormat, kTokens>& s, const TileAt& at,
                    int warp_index, int lane_index)
      : args(a),
        shared(s),
        warp(warp_index),
        lane(lane_index),
        row_tile(at.row),
        block(at.row * kTileBlocks + warp),
        first(at.token * kTokens) {
    if (!there()) return;
    const int row = block * kBlockRows + lane / 4;
    if (args.tiles.row_scale) {
      const int matrix = args.matrix + (args.tile_count ? args.tile_matrix[at.token] : 0);
      const float* from = args.tiles.row_scale + size_t(matrix) * args.tiles.blocks * kBlockRows;
      scale[0] = from[row], scale[1] = from[row + 8];
    }
    if (args.bias) bias[0] = args.bias[row], bias[1] = args.bias[row + 8];
  }
  __device__ bool there() const { return block < args.tiles.blocks; }
  __device__ float2 token_scale(int j) const {
    if (!kChained<kTokens> || !args.squares) return {1, 1};
    return *reinterpret_cast<const float2*>(&shared.scale[j * 8 + lane % 4 * 2]);
  }

  // Gate and up: a lane has row l / 4 of both.
  __device__ void gates(const float (&d)[kTokens / 2]) const {
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      const float2 s = token_scale(j);
      uint32_t pair = pack_bf16(
          gated(args.gate, d[4 * j] * scale[0] * s.x) * d[4 * j + 2] * scale[1] * s.x,
          gated(args.gate, d[4 * j + 1] * scale[0] * s.y) * d[4 * j + 3] * scale[1] * s.y);
      // A row of 8 tokens becomes a token's 8 rows.
      asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(pair));
      uint16_t* to =
          args.out + wide_at(block * 8 + lane % 4 * 2, first + j * 8 + lane / 4, args.padded);
      *reinterpret_cast<uint32_t*>(to) = pair;
    }
  }

  // Through shared memory, so that a token's 16 rows are 64 bytes.
  __device__ void rows(const float* d, int from) const {
    float* staging = shared.staging[warp];
    const bool add = args.after == After::add;
    const int row = block * kBlockRows + lane % 4 * 4;
    const bool fours = row + 4 <= args.row_count && args.stride % 4 == 0;
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kStaged / 8; ++j) {
      const float2 s = token_scale(from / 8 + j);
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        staging[(j * 8 + lane % 4 * 2 + v % 2) * kStagedRow + lane / 4 + v / 2 * 8] =
            d[4 * j + v] * scale[v / 2] * (v % 2 ? s.y : s.x) + bias[v / 2];
      }
    }
    __syncwarp();
    float4 values[kStaged / 8];
#pragma unroll
    for (int i = 0; i < kStaged / 8; ++i) {
      const int token = first + from + i * 8 + lane / 4;
      values[i] = {0, 0, 0, 0};
      if (add && fours && token < args.tokens) {
        // Past L1: another SM may have written it in this launch.
        values[i] =
            __ldcg(reinterpret_cast<const float4*>(args.rows + size_t(token) * args.stride + row));
      }
    }
#pragma unroll
    for (int i = 0; i < kStaged / 8; ++i) {
      const int in_tile = from + i * 8 + lane / 4, token = first + in_tile;
      const float* mine = staging + (i * 8 + lane / 4) * kStagedRow + lane % 4 * 4;
      float* to = args.rows + size_t(token) * args.stride + row;
      const float4 y = *reinterpret_cast<const float4*>(mine);
      float4 sum = {values[i].x + y.x, values[i].y + y.y, values[i].z + y.z, values[i].w + y.w};
      if (kChained<kTokens> && args.next_norm) norm_next(sum, in_tile, row);
      if (token >= args.tokens) continue;
      if (args.softcap > 0) sum = {capped(sum.x), capped(sum.y), capped(sum.z), capped(sum.w)};
      if (fours) {
        *reinterpret_cast<float4*>(to) = sum;
        continue;
      }
      const float each[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (row + r < args.row_count) to[r] = add ? __ldcg(to + r) + each[r] : each[r];
      }
    }
  }
  __device__ float capped(float y) const { return args.softcap * tanhf(y / args.softcap); }

  // The next product's token, but for its scale; rows are whole fours here.
  __device__ void norm_next(float4 r, int in_tile, int row) const {
    float squares = r.x * r.x + r.y * r.y + r.z * r.z + r.w * r.w;
    squares += __shfl_xor_sync(0xffffffffu, squares, 1);
    squares += __shfl_xor_sync(0xffffffffu, squares, 2);
    if (lane % 4 == 0) shared.squares[warp][in_tile] = squares;
    const float4 w = *reinterpret_cast<const float4*>(args.next_norm + row);
    *reinterpret_cast<uint2*>(args.out + wide_at(row, first + in_tile, args.padded)) = {
        pack_bf16(r.x * w.x, r.y * w.y), pack_bf16(r.z * w.z, r.w * w.w)};
  }

  __device__ void tile(float (&d)[kTokens / 2]) const {
    if (there() && args.after == After::gate) return gates(d);
    // 32 tokens at a time by the same code: it runs once a tile, and cold code costs more than
    // moving the sums along.
    constexpr int kSums = kStaged / 2;
#pragma unroll 1
    for (int from = 0; from < kTokens && there(); from += kStaged) {
      rows(d, from);
#pragma unroll
      for (int i = 0; i + kSums < kTokens / 2; ++i) d[i] = d[i + kSums];
    }
    if (!kChained<kTokens> || !args.next_norm) return;
    meet<1>(kProducts);
    for (int t = warp * 32 + lane; t < kTokens; t += kProducts) {
      float sum = 0;
      for (int w = 0; w < kTileBlocks; ++w) {
        if (row_tile * kTileBlocks + w < args.tiles.blocks) sum += shared.squares[w][t];
      }
      args.next_squares[size_t(first + t) * args.row_tiles + row_tile] = sum;
    }
    meet<1>(kProducts);
  }
};

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
