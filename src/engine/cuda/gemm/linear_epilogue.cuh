// Epilogue of the linear kernel (linear_kernel.cuh), per output tile: scales, bias, gate, residual
// and the folded norm that follows.
#pragma once

#include "base/ptx/mma.cuh"
#include "engine/cuda/device/scalar.cuh"
#include "engine/cuda/elementwise/fp8_tokens.cuh"
#include "engine/cuda/gemm/partial_sums.cuh"
#include "engine/cuda/layout/dequantize.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

// Prefetches the residual of a tile to L2 during the main loop: the weights have evicted it.
template <int kTokens>
__device__ inline void prefetch_residual(const LinearArgs& args, const TileCoord& tile,
                                         int thread) {
  if (args.epilogue != Epilogue::add) return;
  for (int line = thread; line < kTokens * 4; line += kMathThreads) {
    const int token = tile.token * kTokens + line / 4, row = tile.row * kTileRows + line % 4 * 32;
    if (token >= args.tokens || row >= args.row_count) continue;
    ptx::prefetch_l2(args.rows + size_t(token) * args.stride + row);
  }
}

// The epilogue of one warp: 16 rows x kCount tokens of a tile, from token `offset` of the tile on.
// load() issues the loads of its operands, run() computes and stores.
template <WeightFormat kFormat, int kTokens, bool kFp8Tokens, int kCount = kTokens>
struct TileEpilogue {
  static constexpr int kStep =
      kCount < kStagingTokens ? kCount : kStagingTokens;  // tokens per pass
  // A lane has four rows of every eighth token of the residual. Where registers are scarce it is
  // read while results are stored.
  static constexpr bool kHoldsResidual = kCount <= 64;
  static constexpr int kHeld = (kHoldsResidual ? kCount : kStep) / 8;
  const LinearArgs& args;
  LinearShared<kFormat, kTokens, kFp8Tokens>& shared;
  int warp, lane, row_tile, block, first, offset;  // first: token of the step the tile begins at
  float scale[2] = {1, 1}, bias[2] = {0, 0};       // of the lane's rows l / 4 and l / 4 + 8
  float4 norm = {}, residual[kHeld];

  __device__ TileEpilogue(const LinearArgs& a, LinearShared<kFormat, kTokens, kFp8Tokens>& s,
                          int warp_index, int lane_index, int first_token = 0)
      : args(a), shared(s), warp(warp_index), lane(lane_index), offset(first_token) {}

  __device__ void load(const TileCoord& tile) {
    row_tile = tile.row, block = tile.row * args.tile_blocks + warp, first = tile.token * kTokens;
    if (!in_matrix()) return;
    const int row = block * kBlockRows + lane / 4;
    if (args.tiles.row_scale) {
      const int matrix = args.matrix + (args.tile_count ? args.tile_matrix[tile.token] : 0);
      const float* from = args.tiles.row_scale + size_t(matrix) * args.tiles.blocks * kBlockRows;
      scale[0] = from[row], scale[1] = from[row + 8];
    }
    if (args.bias) {
      const int expert = args.bias_stride ? args.tile_matrix[tile.token] : 0;
      const float* from = args.bias + size_t(expert) * args.bias_stride + row;
      bias[0] = from[0], bias[1] = from[8];
    }
    if (!kChained<kTokens>) return;
    if (args.next_norm) norm = *reinterpret_cast<const float4*>(args.next_norm + first_of_4_rows());
    if (kHoldsResidual) load_residual(offset);
  }

  // 32 tokens at a time by the same code, here and in run(): it runs once per tile, and fetching
  // cold instructions costs more than shifting the sums.
  __device__ void run_gate(float* d) const {
    if (kFp8Tokens && args.fp8_out) return store_gated_fp8(d);
#pragma unroll 1
    for (int from = 0; from < kCount && in_matrix(); from += kStep) {
      store_gated(d, offset + from);
      rotate(d);
    }
  }
  __device__ void run(float* d) {
    if (args.epilogue == Epilogue::gate) return run_gate(d);
#pragma unroll 1
    for (int from = 0; from < kCount && in_matrix(); from += kStep) {
      store_rows(d, offset + from);
      rotate(d);
      if (!kHoldsResidual) continue;
#pragma unroll
      for (int i = 0; i + kStep / 8 < kHeld; ++i) residual[i] = residual[i + kStep / 8];
    }
    if (kChained<kTokens> && args.next_norm) {
      ptx::bar_sync<1>(kMathThreads);
      store_squares();
      if (kFp8Tokens && args.fp8_out) store_normed_fp8(d);
      ptx::bar_sync<1>(kMathThreads);
    }
  }

 private:
  __device__ bool in_matrix() const { return warp < args.tile_blocks && block < args.tiles.blocks; }
  __device__ int first_of_4_rows() const { return block * kBlockRows + lane % 4 * 4; }
  __device__ bool has_4_rows() const {
    return first_of_4_rows() + 4 <= args.row_count && args.stride % 4 == 0;
  }
  __device__ void load_residual(int from) {
#pragma unroll
    for (int i = 0; i < kHeld; ++i) {
      const int token = first + from + i * 8 + lane / 4;
      residual[i] = {0, 0, 0, 0};
      if (args.epilogue == Epilogue::add && has_4_rows() && token < args.tokens) {
        // Bypasses L1: another SM may have written it in this launch.
        residual[i] = __ldcg(reinterpret_cast<const float4*>(
            args.rows + size_t(token) * args.stride + first_of_4_rows()));
      }
    }
  }
  // Folded norm: the scales of the lane's two tokens of group j.
  __device__ float2 token_scale(int j) const {
    if (!kChained<kTokens> || !args.squares) return {1, 1};
    return *reinterpret_cast<const float2*>(&shared.scale[j * 8 + lane % 4 * 2]);
  }
  __device__ float softcap(float y) const { return args.softcap * tanhf(y / args.softcap); }

  // The sums of the next kStep tokens to the front. What the front holds now goes to the end where
  // it is still needed.
  __device__ void rotate(float* d) const {
    constexpr int kPass = kStep / 2, kAll = kCount / 2;
    if constexpr (kPass == kAll) return;
    float done[kPass];
#pragma unroll
    for (int i = 0; i < kPass; ++i) done[i] = d[i];
#pragma unroll
    for (int i = 0; i + kPass < kAll; ++i) d[i] = d[i + kPass];
    if constexpr (kFp8Tokens) {
#pragma unroll
      for (int i = 0; i < kPass; ++i) d[kAll - kPass + i] = done[i];
    }
  }

  // Gate and up: a lane has row l / 4 of both. Returns the bf16 results of two adjacent rows,
  // l % 4 * 2 and the next, for token l / 4 of the j-th eight from token `from` of the tile on.
  __device__ uint32_t gated_pair(const float* d, int j, int from) const {
    const float2 s = token_scale(from / 8 + j);
    uint32_t pair =
        pack_bf16(gate_times_up(args.activation, d[4 * j] * scale[0] * s.x + bias[0],
                                d[4 * j + 2] * scale[1] * s.x + bias[1]),
                  gate_times_up(args.activation, d[4 * j + 1] * scale[0] * s.y + bias[0],
                                d[4 * j + 3] * scale[1] * s.y + bias[1]));
    ptx::movmatrix_trans(pair);
    return pair;
  }
  __device__ void store_gated(const float* d, int from) const {
#pragma unroll
    for (int j = 0; j < kStep / 8; ++j) {
      uint16_t* to = args.out + wide_at(block * 8 + lane % 4 * 2, first + from + j * 8 + lane / 4,
                                        args.padded);
      *reinterpret_cast<uint32_t*>(to) = gated_pair(d, j, from);
    }
  }

  // The same in E4M3: the tile's 64 results of a token have a common scale. The bytes go through
  // shared memory, since the 16 columns of a core matrix come from two warps.
  __device__ void store_gated_fp8(const float* d) const {
    uint32_t pairs[kCount / 8];
#pragma unroll
    for (int j = 0; j < kCount / 8; ++j) {
      pairs[j] = gated_pair(d, j, offset);
      uint32_t largest = pairs[j] & 0x7fff7fffu;
      largest = max_u16x2(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = max_u16x2(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      if (lane % 4 == 0) {
        shared.largest[warp][offset + j * 8 + lane / 4] =
            bf16_value(uint16_t(max(largest & 0xffffu, largest >> 16)));
      }
    }
    ptx::bar_sync<1>(kMathThreads);
    compute_factors<1>();
    ptx::bar_sync<1>(kMathThreads);
    uint8_t* const staging = reinterpret_cast<uint8_t*>(shared.staging);
#pragma unroll
    for (int j = 0; j < kCount / 8; ++j) {
      const float factor = shared.factor[offset + j * 8 + lane / 4];
      *reinterpret_cast<uint16_t*>(
          staging + fp8_group_at(warp * 8 + lane % 4 * 2, j * 8 + lane / 4, kCount)) =
          static_cast<uint16_t>(
              quantize_pair<KvFormat::fp8>(bf16_value(uint16_t(pairs[j])) * factor,
                                           bf16_value(uint16_t(pairs[j] >> 16)) * factor));
    }
    ptx::bar_sync<1>(kMathThreads);
    uint8_t* const to = fp8_out() + fp8_group_at(row_tile * kStepColumns, offset, kTokens);
    for (int i = thread(); i < kCount * kStepColumns / 16; i += kMathThreads) {
      reinterpret_cast<uint4*>(to)[i] = reinterpret_cast<const uint4*>(staging)[i];
    }
  }

  __device__ int thread() const { return warp * 32 + lane; }
  __device__ uint8_t* fp8_out() const { return reinterpret_cast<uint8_t*>(args.out); }

  // From the largest magnitudes of the warps: the scale of each token's results in this tile, which
  // are kSteps times 64 columns, and the factor that converts them to E4M3.
  template <int kSteps>
  __device__ void compute_factors() const {
    for (int t = offset + thread(); t < offset + kCount; t += kMathThreads) {
      float largest = 0;
#pragma unroll
      for (int w = 0; w < kTileBlocks; ++w) largest = fmaxf(largest, shared.largest[w][t]);
      const Quantization quantized = quantization<KvFormat::fp8>(largest);
      shared.factor[t] = quantized.factor;
#pragma unroll
      for (int i = 0; i < kSteps; ++i) {
        const int column = (row_tile * kSteps + i) * kStepColumns;
        *reinterpret_cast<float*>(fp8_out() + fp8_group_scale_at(column, t, kTokens)) =
            quantized.scale;
      }
    }
  }

  // The next GEMM's input in E4M3. d holds it, four rows of every eighth token.
  __device__ void store_normed_fp8(const float* d) const {
    compute_factors<2>();
    ptx::bar_sync<1>(kMathThreads);
#pragma unroll
    for (int i = 0; i < kCount / 8; ++i) {
      const int t = offset + i * 8 + lane / 4;
      store_fp8_quad(fp8_out(), first_of_4_rows(), t, kTokens,
                     {d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]}, shared.factor[t], true);
    }
  }

  // kStep tokens from `from` on, transposed through shared memory: the 16 rows of a token are 64
  // contiguous bytes of a store.
  __device__ void store_rows(float* d, int from) {
    float* staging = shared.staging[warp];
    const int row = first_of_4_rows();
    __syncwarp();
#pragma unroll
    for (int j = 0; j < kStep / 8; ++j) {
      const float2 s = token_scale(from / 8 + j);
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        staging[(j * 8 + lane % 4 * 2 + v % 2) * kStagingStride + lane / 4 + v / 2 * 8] =
            d[4 * j + v] * scale[v / 2] * (v % 2 ? s.y : s.x) + bias[v / 2];
      }
    }
    __syncwarp();
    if (!kHoldsResidual) load_residual(from);
#pragma unroll
    for (int i = 0; i < kStep / 8; ++i) {
      const int in_tile = from + i * 8 + lane / 4, token = first + in_tile;
      const float* staged = staging + (i * 8 + lane / 4) * kStagingStride + lane % 4 * 4;
      float* to = args.rows + size_t(token) * args.stride + row;
      const float4 y = *reinterpret_cast<const float4*>(staged), r = residual[i];
      float4 sum = {r.x + y.x, r.y + y.y, r.z + y.z, r.w + y.w};
      if (kChained<kTokens> && args.next_norm) store_normed(sum, in_tile, row, d + 4 * i);
      if (token >= args.tokens) continue;
      if (args.softcap > 0) sum = {softcap(sum.x), softcap(sum.y), softcap(sum.z), softcap(sum.w)};
      if (has_4_rows()) {
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

  // Folded norm of the next GEMM: its input without the scale, and this warp's sums of squares.
  // Hidden sizes are multiples of 4, so all four rows of a lane exist. For E4M3 the input is kept
  // in `kept` until the largest of the tile is known.
  __device__ void store_normed(float4 r, int in_tile, int row, float* kept) const {
    float squares = r.x * r.x + r.y * r.y + r.z * r.z + r.w * r.w;
    squares += __shfl_xor_sync(0xffffffffu, squares, 1);
    squares += __shfl_xor_sync(0xffffffffu, squares, 2);
    if (lane % 4 == 0) shared.squares[warp][in_tile] = squares;
    if (kFp8Tokens && args.fp8_out) {
      kept[0] = r.x * norm.x, kept[1] = r.y * norm.y;
      kept[2] = r.z * norm.z, kept[3] = r.w * norm.w;
      float largest =
          fmaxf(fmaxf(fabsf(kept[0]), fabsf(kept[1])), fmaxf(fabsf(kept[2]), fabsf(kept[3])));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 1));
      largest = fmaxf(largest, __shfl_xor_sync(0xffffffffu, largest, 2));
      if (lane % 4 == 0) shared.largest[warp][in_tile] = largest;
      return;
    }
    *reinterpret_cast<uint2*>(args.out + wide_at(row, first + in_tile, args.padded)) = {
        pack_bf16(r.x * norm.x, r.y * norm.y), pack_bf16(r.z * norm.z, r.w * norm.w)};
  }

  // Sums of squares of the tile's 128 rows, over the warps.
  __device__ void store_squares() const {
    for (int t = offset + thread(); t < offset + kCount; t += kMathThreads) {
      float sum = 0;
      for (int w = 0; w < kTileBlocks; ++w) {
        if (row_tile * kTileBlocks + w < args.tiles.blocks) sum += shared.squares[w][t];
      }
      args.next_squares[row_tile * kTokens + t] = sum;
    }
  }
};

}  // namespace ridge::cuda
#endif
