// The parts of linear.cuh's kernel that say what a block does and bring it there: its walk over
// tiles, its shared memory, the two producing threads.
#pragma once

#include "engine/cuda/gemm/linear.cuh"
#include "engine/cuda/ptx/ring.cuh"

namespace ridge::cuda {

constexpr int kTileRows = 128;
constexpr int kTileBlocks = kTileRows / kBlockRows;  // one for each multiplying warp
constexpr int kStepColumns = 64;
constexpr int kUnit = 4;  // K is split at multiples of so many steps
constexpr int kProducts = kTileBlocks * 32;
constexpr int kLinearThreads = kProducts + 128;  // registers move between whole warpgroups
constexpr int kSlices = 4;                       // of a tile's tokens, finished by so many blocks
constexpr int kTokenGroup = 8;  // tiles of tokens that go together over all rows, for L2's sake

// Results on their way out, for each warp: tokens, and their 16 rows with room between the banks.
constexpr int kStaged = 32, kStagedRow = kBlockRows + 4;
constexpr int kStagingBytes = kTileBlocks * kStaged * kStagedRow * 4;

constexpr int min_of(int a, int b) { return a < b ? a : b; }

// Steps of more tokens come one product a launch: the code for chains is left out.
template <int kTokens>
constexpr bool kChained = kTokens <= Linear::kMaxChainedTokens;
template <int kTokens>
__host__ __device__ constexpr int products_of(const Chain& chain) {
  return kChained<kTokens> ? chain.count : 1;
}

// Registers of a producing and of a multiplying thread: 168 on average.
template <int kTokens>
constexpr int kFew = kChained<kTokens> ? 56 : 40;
template <int kTokens>
constexpr int kMany = kChained<kTokens> ? 224 : 232;

// Steps of K in a stage, and in a box of the weights' tensor map (256 units of 8 bytes at most).
// What a stage costs does not depend on what it holds: waiting for it, asking for it, giving it
// back. So where weights are few bytes and tokens leave room it holds more of K.
__host__ __device__ constexpr int stage_steps(WeightFormat format, int tokens) {
  const int columns = format_info(format).columns;
  return tokens > 64 || columns == 16 ? 1 : tokens > 32 || columns == 32 ? 2 : 4;
}
__host__ __device__ constexpr int box_steps(WeightFormat format, int tokens) {
  return min_of(2, stage_steps(format, tokens));
}

template <WeightFormat kFormat, int kTokens>
struct Stage {
  static constexpr int kSteps = stage_steps(kFormat, kTokens);
  static constexpr int kBoxSteps = box_steps(kFormat, kTokens);
  static_assert(kUnit % kSteps == 0 && kSteps % kBoxSteps == 0);
  // Of a step: a block's weights, the tokens.
  static constexpr int kBlockBytes =
      kStepColumns / format_info(kFormat).columns * format_info(kFormat).chunk_bytes;
  static constexpr int kStepTokenBytes = kTokens * kStepColumns * 2;
  // Of a stage: weights lie as [box][block][step of the box].
  static constexpr int kBoxBytes = kTileBlocks * kBoxSteps * kBlockBytes;
  static constexpr int kWeightBytes = kTileBlocks * kSteps * kBlockBytes;
  static constexpr int kTokenBytes = kSteps * kStepTokenBytes;
  // Tokens come from L2: a ring of what latency needs, 64 KB of weights' time. Weights get the
  // rest, which is what covers the time between two products.
  static constexpr int kRoom = 226 * 1024 - kStagingBytes - 40 * kTokens;
  static constexpr int kTokenSlots =
      min_of((64 * 1024 + kWeightBytes - 1) / kWeightBytes, kRoom * 85 / 100 / kTokenBytes);
  static constexpr int kWeightSlots =
      min_of(48, (kRoom - kTokenSlots * (kTokenBytes + 16)) / (kWeightBytes + 16));
  // Copies of weights under way: what latency needs. More queue at the memory, and the small reads
  // between operators behind them.
  static constexpr int kInFlight =
      min_of(kWeightSlots, (64 * 1024 + kWeightBytes - 1) / kWeightBytes);
};

#ifdef RIDGE_HOPPER

// What a block does, piece by piece: steps [begin, end) of a tile's K.
struct Segment {
  int tile, begin, end;
};
struct Walk {
  const LinearArgs& args;
  int tiles, at, last;

  __device__ explicit Walk(const LinearArgs& a, int token_tiles)
      : args(a), tiles(a.row_tiles * token_tiles) {
    if (args.ways) {
      const int tile = blockIdx.x / args.ways, part = blockIdx.x % args.ways;
      const int share = (units() + args.ways - 1) / args.ways;
      at = tile < tiles ? tile * units() + part * share : 0;
      last = tile < tiles ? min(at + share, (tile + 1) * units()) : 0;
    } else if (args.split) {
      at = start_of(blockIdx.x), last = start_of(blockIdx.x + 1);
    } else {
      at = blockIdx.x, last = tiles;
    }
  }
  // All blocks have equal shares, though a few may get nothing: one that has more keeps all
  // waiting.
  __device__ int share() const { return (tiles * units() + gridDim.x - 1) / gridDim.x; }
  __device__ int units() const { return (args.steps_of_k + kUnit - 1) / kUnit; }
  __device__ int start_of(int block) const { return min(tiles * units(), block * share()); }
  __device__ bool next(Segment& segment) {
    if (at >= last) return false;
    if (!args.split) {
      segment = {at, 0, args.steps_of_k};
      at += gridDim.x;
      return true;
    }
    const int tile = at / units(), first = at % units(), count = min(units() - first, last - at);
    segment = {tile, first * kUnit, min(args.steps_of_k, (first + count) * kUnit)};
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
  uint64_t weights_full[Part::kWeightSlots], weights_empty[Part::kWeightSlots];
  uint64_t tokens_full[Part::kTokenSlots], tokens_empty[Part::kTokenSlots];
  uint64_t scaled;                   // the tokens' scales are there
  unsigned met;                      // products that all blocks have finished
  alignas(16) float scale[kTokens];  // of the tokens
  float squares[kTileBlocks][kTokens];
  alignas(16) float staging[kTileBlocks][kStaged * kStagedRow];
  alignas(128) uint8_t weights[Part::kWeightSlots][Part::kWeightBytes];
  alignas(128) uint8_t tokens[Part::kTokenSlots][Part::kTokenBytes];
};

// Until all blocks have finished so many products of the chain.
template <WeightFormat kFormat, int kTokens>
__device__ inline void wait_met(const LinearShared<kFormat, kTokens>& shared, int products) {
  while (*reinterpret_cast<const volatile unsigned*>(&shared.met) < unsigned(products)) {
  }
}

// Calls function(args, tile, first step of K, place in a ring of kSlots) for every stage of this
// block, in order; for experts only after the kernel before has chosen them. `begin` is called
// before each product.
template <WeightFormat kFormat, int kTokens, int kSlots, typename Begin, typename Function>
__device__ inline void for_each_stage(const Chain& chain, const Begin& begin,
                                      const Function& function) {
  constexpr int kSteps = Stage<kFormat, kTokens>::kSteps;
  Place place;
  for (int op = 0; op < products_of<kTokens>(chain); ++op) {
    const LinearArgs& args = chain.ops[op];
    begin(op);
    const int token_tiles = args.tile_count ? *args.tile_count : args.padded / kTokens;
    Walk walk(args, token_tiles);
    Segment segment;
    while (walk.next(segment)) {
      const TileAt at(args, token_tiles, segment.tile);
      for (int k = segment.begin; k < segment.end; k += kSteps) {
        function(args, at, k, place);
        place.advance(kSlots);
      }
    }
  }
}

// One thread: a copy a box (a copy for each block of rows, eight a box, was slower). Nothing but
// the ring stops it, also between products and before the kernel before this one has ended. (Asking
// for more ahead of the ring, into L2, cost 6 %.)
template <WeightFormat kFormat, int kTokens>
__device__ inline void produce_weights(const Chain& chain, LinearShared<kFormat, kTokens>& shared) {
  using Part = Stage<kFormat, kTokens>;
  // Weights that are read once must not drive sums and activations out of L2 (7 % of a layer). In
  // steps of more than one tile of tokens they are read again.
  const uint64_t policy = kChained<kTokens> ? evict_first() : evict_normal();
  Place behind;  // the oldest copy under way
  int under_way = 0;
  for_each_stage<kFormat, kTokens, Part::kWeightSlots>(
      chain,
      [&](int op) {
        if (chain.ops[op].tile_count) after_previous();
      },
      [&](const LinearArgs& args, const TileAt& at, int k, const Place& place) {
        if (under_way == Part::kInFlight) {
          wait(&shared.weights_full[behind.slot], behind.parity);
          behind.advance(Part::kWeightSlots);
          --under_way;
        }
        wait(&shared.weights_empty[place.slot], place.parity ^ 1);
        arrive_expecting(&shared.weights_full[place.slot], Part::kWeightBytes);
        const int matrix = args.tile_count ? args.tile_matrix[at.token] : 0;
#pragma unroll
        for (int box = 0; box < Part::kSteps / Part::kBoxSteps; ++box) {
          fetch_box(shared.weights[place.slot] + box * Part::kBoxBytes, &args.weights,
                    (k + box * Part::kBoxSteps) * (Part::kBlockBytes / 8), at.row * kTileBlocks,
                    matrix, &shared.weights_full[place.slot], policy);
        }
        ++under_way;
      });
}

// Another: the tokens, which the product before in the chain, or the kernel before, has to finish.
template <WeightFormat kFormat, int kTokens>
__device__ inline void produce_tokens(const Chain& chain, LinearShared<kFormat, kTokens>& shared) {
  using Part = Stage<kFormat, kTokens>;
  for_each_stage<kFormat, kTokens, Part::kTokenSlots>(
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
        wait(&shared.tokens_empty[place.slot], place.parity ^ 1);
        arrive_expecting(&shared.tokens_full[place.slot], Part::kTokenBytes);
#pragma unroll
        for (int i = 0; i < Part::kSteps; ++i) {
          // Beyond K weights come as zeros: any numbers will do for tokens.
          const size_t step = min(k + i, args.steps_of_k - 1);
          fetch(shared.tokens[place.slot] + i * Part::kStepTokenBytes,
                args.x + (step * (args.padded / 8) + at.token * (kTokens / 8)) * 512,
                Part::kStepTokenBytes, &shared.tokens_full[place.slot]);
        }
      });
}

#endif

}  // namespace ridge::cuda
