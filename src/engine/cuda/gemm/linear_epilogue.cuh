// What linear.cuh's kernel does with a tile's sums: adds the parts of other blocks, then scales,
// bias, gate, residual and the next norm.
#pragma once

#include "engine/cuda/gemm/linear_ring.cuh"
#include "engine/cuda/ptx/mma.cuh"
#include "engine/cuda/scalar.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

// Sums that a block leaves for others, four a thread and 8 tokens.
template <int kTokens>
__device__ inline float4* parts_of(const LinearArgs& args, int block, int thread) {
  return reinterpret_cast<float4*>(args.partial) + size_t(block) * (kTokens / 8) * kProducts +
         thread;
}

// Tells the others that a warp's are there: the same warp of each takes them.
__device__ inline void tell(const LinearArgs& args, int thread) {
  __syncwarp();
  if (thread % 32 == 0) {
    asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(args.done + blockIdx.x * kTileBlocks +
                                                             thread / 32),
                 "r"(args.serial)
                 : "memory");
  }
}

// Waits for those of blocks [first, last).
__device__ inline void wait_told(const LinearArgs& args, int first, int last, int thread) {
  for (int block = first + thread % 32; block < last; block += 32) {
    unsigned seen;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];"
                   : "=r"(seen)
                   : "l"(args.done + block * kTileBlocks + thread / 32)
                   : "memory");
    } while (seen != args.serial);
  }
  __syncwarp();
}

// Even runs. A block's part of a tile that an earlier one began: at most one, of its first segment.
template <int kTokens>
__device__ inline void hand_over(const LinearArgs& args, const float (&d)[kTokens / 2],
                                 int thread) {
  float4* to = parts_of<kTokens>(args, blockIdx.x, thread);
#pragma unroll
  for (int j = 0; j < kTokens / 8; ++j) {
    __stcg(to + j * kProducts, float4{d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]});
  }
  tell(args, thread);
}

// Adds what the blocks after this one have of a tile, in their order.
template <int kTokens>
__device__ inline void take_over(const Walk& walk, int tile, float (&d)[kTokens / 2], int thread) {
  const int first = blockIdx.x + 1, end = (tile + 1) * walk.units();
  int last = first;  // the one after them
  while (walk.start_of(last) < end) ++last;
  wait_told(walk.args, first, last, thread);
  // Few tokens: two blocks' loads under way at a time.
#pragma unroll(kTokens <= 64 ? 2 : 1)
  for (int block = first; block < last; ++block) {
    const float4* from = parts_of<kTokens>(walk.args, block, thread);
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j) {
      const float4 part = __ldcg(from + j * kProducts);
      d[4 * j] += part.x, d[4 * j + 1] += part.y;
      d[4 * j + 2] += part.z, d[4 * j + 3] += part.w;
    }
  }
}

// Tiles cut into `ways`: all blocks of a tile leave the slices of its tokens that others finish,
// and the first kSlices finish one each. Its sums come to the front of d.
template <int kTokens>
__device__ inline void leave_slices(const LinearArgs& args, float (&d)[kTokens / 2], int thread) {
  constexpr int kGroups = kTokens / 8, kMine = kGroups / kSlices;
  const int part = blockIdx.x % args.ways;
  float4* to = parts_of<kTokens>(args, blockIdx.x, thread);
#pragma unroll
  for (int j = 0; j < kGroups; ++j) {
    if (j / kMine == part) continue;
    __stcg(to + j * kProducts, float4{d[4 * j], d[4 * j + 1], d[4 * j + 2], d[4 * j + 3]});
  }
  tell(args, thread);
#pragma unroll
  for (int s = 1; s < kSlices; ++s) {
#pragma unroll
    for (int i = 0; i < 4 * kMine; ++i) d[i] = s == part ? d[s * 4 * kMine + i] : d[i];
  }
}

template <int kTokens>
__device__ inline void take_slice(const LinearArgs& args, float (&d)[kTokens / 2], int thread) {
  constexpr int kMine = kTokens / 8 / kSlices;
  const int part = blockIdx.x % args.ways, first = blockIdx.x - part;
  wait_told(args, first, first + args.ways, thread);
  for (int at = 0; at < args.ways; at += kSlices) {  // so many blocks' loads under way at a time
    float4 others[kSlices][kMine];
#pragma unroll
    for (int i = 0; i < kSlices; ++i) {
      const int block = first + min(at + i, args.ways - 1);
      const float4* from = parts_of<kTokens>(args, block, thread) + part * kMine * kProducts;
#pragma unroll
      for (int j = 0; j < kMine; ++j) others[i][j] = __ldcg(from + j * kProducts);
    }
#pragma unroll
    for (int i = 0; i < kSlices; ++i) {
      if (at + i == part || at + i >= args.ways) continue;
#pragma unroll
      for (int j = 0; j < kMine; ++j) {
        d[4 * j] += others[i][j].x, d[4 * j + 1] += others[i][j].y;
        d[4 * j + 2] += others[i][j].z, d[4 * j + 3] += others[i][j].w;
      }
    }
  }
}

// The residual of a tile into L2 while its products run: the weights have driven it out.
template <int kTokens>
__device__ inline void expect_residual(const LinearArgs& args, const TileAt& at, int thread) {
  if (args.epilogue != Epilogue::add) return;
  for (int line = thread; line < kTokens * 4; line += kProducts) {
    const int token = at.token * kTokens + line / 4, row = at.row * kTileRows + line % 4 * 32;
    if (token >= args.tokens || row >= args.row_count) continue;
    asm volatile("prefetch.global.L2 [%0];" ::"l"(args.rows + size_t(token) * args.stride + row));
  }
}

// What follows the product, for one warp's 16 rows of a tile, or of kCount of its tokens.
template <WeightFormat kFormat, int kTokens, int kCount = kTokens>
struct Finish {
  static constexpr int kStep = kCount < kStaged ? kCount : kStaged;  // tokens at a time
  // Of the residual, a lane has four rows of every eighth token; where registers are few it is read
  // as results go out.
  static constexpr bool kHolds = kCount <= 64;
  static constexpr int kHeld = (kHolds ? kCount : kStep) / 8;
  const LinearArgs& args;
  LinearShared<kFormat, kTokens>& shared;
  int warp, lane, row_tile, block, first,
      offset;  // first: token of the tile; of it, the first here
  float scale[2] = {1, 1}, bias[2] = {0, 0};
  float4 norm = {}, residual[kHeld];

  __device__ Finish(const LinearArgs& a, LinearShared<kFormat, kTokens>& s, int warp_index,
                    int lane_index, int first_token = 0)
      : args(a), shared(s), warp(warp_index), lane(lane_index), offset(first_token) {}

  // Asks for what the end of this tile needs.
  __device__ void ask(const TileAt& at) {
    row_tile = at.row, block = at.row * kTileBlocks + warp, first = at.token * kTokens;
    if (!there()) return;
    const int row = block * kBlockRows + lane / 4;
    if (args.tiles.row_scale) {
      const int matrix = args.matrix + (args.tile_count ? args.tile_matrix[at.token] : 0);
      const float* from = args.tiles.row_scale + size_t(matrix) * args.tiles.blocks * kBlockRows;
      scale[0] = from[row], scale[1] = from[row + 8];
    }
    if (args.bias) bias[0] = args.bias[row], bias[1] = args.bias[row + 8];
    if (!kChained<kTokens>) return;
    if (args.next_norm) norm = *reinterpret_cast<const float4*>(args.next_norm + row_of_four());
    if (kHolds) read_residual(offset);
  }
  __device__ int row_of_four() const { return block * kBlockRows + lane % 4 * 4; }
  __device__ bool fours() const {
    return row_of_four() + 4 <= args.row_count && args.stride % 4 == 0;
  }
  __device__ void read_residual(int from) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int token = first + from + i * 8 + lane / 4;
      residual[i] = {0, 0, 0, 0};
      if (args.epilogue == Epilogue::add && fours() && token < args.tokens) {
        // Past L1: another SM may have written it in this launch.
        residual[i] = __ldcg(reinterpret_cast<const float4*>(
            args.rows + size_t(token) * args.stride + row_of_four()));
      }
    }
  }
  __device__ bool there() const { return block < args.tiles.blocks; }
  __device__ float2 token_scale(int j) const {
    if (!kChained<kTokens> || !args.squares) return {1, 1};
    return *reinterpret_cast<const float2*>(&shared.scale[j * 8 + lane % 4 * 2]);
  }

  // Gate and up: a lane has row l / 4 of both.
  __device__ void gates(const float* d) const {
#pragma unroll
    for (int j = 0; j < kCount / 8; ++j) {
      const float2 s = token_scale(offset / 8 + j);
      uint32_t pair = pack_bf16(
          gated(args.gate, d[4 * j] * scale[0] * s.x) * d[4 * j + 2] * scale[1] * s.x,
          gated(args.gate, d[4 * j + 1] * scale[0] * s.y) * d[4 * j + 3] * scale[1] * s.y);
      // A row of 8 tokens becomes a token's 8 rows.
      asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %0;" : "+r"(pair));
      uint16_t* to = args.out + wide_at(block * 8 + lane % 4 * 2, first + offset + j * 8 + lane / 4,
                                        args.padded);
      *reinterpret_cast<uint32_t*>(to) = pair;
    }
  }

  // Through shared memory, so that a token's 16 rows are 64 bytes.
  __device__ void rows(const float* d, int from) {
    float* staging = shared.staging[warp];
    const int row = row_of_four();
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kStep / 8; ++j) {
      const float2 s = token_scale(from / 8 + j);
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        staging[(j * 8 + lane % 4 * 2 + v % 2) * kStagedRow + lane / 4 + v / 2 * 8] =
            d[4 * j + v] * scale[v / 2] * (v % 2 ? s.y : s.x) + bias[v / 2];
      }
    }
    __syncwarp();
    if (!kHolds) read_residual(from);
#pragma unroll
    for (int i = 0; i < kStep / 8; ++i) {
      const int in_tile = from + i * 8 + lane / 4, token = first + in_tile;
      const float* mine = staging + (i * 8 + lane / 4) * kStagedRow + lane % 4 * 4;
      float* to = args.rows + size_t(token) * args.stride + row;
      const float4 y = *reinterpret_cast<const float4*>(mine), r = residual[i];
      float4 sum = {r.x + y.x, r.y + y.y, r.z + y.z, r.w + y.w};
      if (kChained<kTokens> && args.next_norm) norm_next(sum, in_tile, row);
      if (token >= args.tokens) continue;
      if (args.softcap > 0) sum = {capped(sum.x), capped(sum.y), capped(sum.z), capped(sum.w)};
      if (fours()) {
        *reinterpret_cast<float4*>(to) = sum;
        continue;
      }
      const float each[4] = {sum.x, sum.y, sum.z, sum.w};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (row + r >= args.row_count) continue;
        to[r] = args.epilogue == Epilogue::add ? __ldcg(to + r) + each[r] : each[r];
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
    *reinterpret_cast<uint2*>(args.out + wide_at(row, first + in_tile, args.padded)) = {
        pack_bf16(r.x * norm.x, r.y * norm.y), pack_bf16(r.z * norm.z, r.w * norm.w)};
  }

  __device__ void tile(float* d) {
    if (there() && args.epilogue == Epilogue::gate) return gates(d);
      // 32 tokens at a time by the same code: it runs once a tile, and cold code costs more than
      // moving the sums along.
#pragma unroll 1
    for (int from = 0; from < kCount && there(); from += kStep) {
      rows(d, offset + from);
#pragma unroll
      for (int i = 0; i + kStep / 2 < kCount / 2; ++i) d[i] = d[i + kStep / 2];
      if (!kHolds) continue;
#pragma unroll
      for (int i = 0; i + kStep / 8 < kHeld; ++i) residual[i] = residual[i + kStep / 8];
    }
    if (!kChained<kTokens> || !args.next_norm) return;
    meet<1>(kProducts);
    for (int t = offset + warp * 32 + lane; t < offset + kCount; t += kProducts) {
      float sum = 0;
      for (int w = 0; w < kTileBlocks; ++w) {
        if (row_tile * kTileBlocks + w < args.tiles.blocks) sum += shared.squares[w][t];
      }
      args.next_squares[row_tile * kTokens + t] = sum;
    }
    meet<1>(kProducts);
  }
};

}  // namespace ridge::cuda
#endif
