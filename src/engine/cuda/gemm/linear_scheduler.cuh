// Which tiles, and which ranges of K, a block of the linear kernel computes.
#pragma once

#include "engine/cuda/gemm/linear_layout.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

// Steps [begin, end) of K of one output tile.
struct Segment {
  int tile, begin, end;
};

// The segments of this block, in order. Without a split: tiles blockIdx, blockIdx + gridDim, ...
// Split-K: one K range of one tile. Stream-K: an equal run of split units over all tiles. Pairs:
// one segment, whose tile is the first of the two.
struct GemmTileScheduler {
  const LinearArgs& args;
  int tiles, at, last;  // at, last: tiles without a split, else split units

  __device__ explicit GemmTileScheduler(const LinearArgs& a, int token_tiles)
      : args(a), tiles(a.row_tiles * token_tiles) {
    if (args.paired) {
      at = 2 * blockIdx.x, last = min(at + 1, tiles);
    } else if (args.split_k) {
      const int tile = blockIdx.x / args.split_k, part = blockIdx.x % args.split_k;
      const int count = (tile_units() + args.split_k - 1) / args.split_k;
      at = tile < tiles ? tile * tile_units() + part * count : 0;
      last = tile < tiles ? min(at + count, (tile + 1) * tile_units()) : 0;
    } else if (args.stream_k) {
      at = first_unit(blockIdx.x), last = first_unit(blockIdx.x + 1);
    } else {
      at = blockIdx.x, last = tiles;
    }
  }
  __device__ bool next(Segment& segment) {
    if (at >= last) return false;
    if (!args.stream_k) {
      segment = {at, 0, args.k_steps};
      at += gridDim.x;
      return true;
    }
    const int tile = at / tile_units(), first = at % tile_units();
    const int count = min(tile_units() - first, last - at);
    segment = {tile, first * kSplitUnit, min(args.k_steps, (first + count) * kSplitUnit)};
    at += count;
    return true;
  }

  __device__ int tile_units() const { return (args.k_steps + kSplitUnit - 1) / kSplitUnit; }
  // Stream-K: every block gets the same number of units and the last blocks may get none. A block
  // with one unit more would keep all others waiting.
  __device__ int block_units() const { return (tiles * tile_units() + gridDim.x - 1) / gridDim.x; }
  __device__ int first_unit(int block) const {
    return min(tiles * tile_units(), block * block_units());
  }
};

// Coordinates of a tile. Groups of kRasterGroup token tiles go together over all row tiles.
struct TileCoord {
  int row, token;  // in tiles
  __device__ TileCoord(int row_tile, int token_tile) : row(row_tile), token(token_tile) {}
  __device__ TileCoord(const LinearArgs& args, int token_tiles, int tile) {
    const int group_tiles = kRasterGroup * args.row_tiles, group = tile / group_tiles;
    const int width = min(kRasterGroup, token_tiles - group * kRasterGroup);
    row = tile % group_tiles / width;
    token = group * kRasterGroup + tile % group_tiles % width;
  }
};

}  // namespace ridge::cuda
#endif
