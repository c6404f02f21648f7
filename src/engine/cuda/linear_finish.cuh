// What linear.cuh's kernel does with a tile's sums: adds the parts of other blocks, then scales,
// bias, gate, residual and the next norm.
#pragma once

#include "engine/cuda/linear_ring.cuh"
#include "engine/cuda/mma.cuh"
#include "engine/cuda/scalar.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

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

}  // namespace ridge::cuda
#endif
