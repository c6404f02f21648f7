// Epilogue of the prefill GEMM (prefill_gemm_kernel.cuh): scales, bias, activation and gate, then
// bulk stores from shared memory. They run while the warpgroup multiplies its next tile. The
// residual is not read: the bulk store adds to it in L2, one addition per element, so repeated
// launches give the same bits.
#pragma once

#include "base/ptx/execution.cuh"
#include "base/ptx/mma.cuh"
#include "engine/cuda/gemm/prefill_gemm_layout.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda::prefill {

// One warp of a math warpgroup, 16 rows x 256 tokens of sums.
template <WeightFormat kFormat, bool kFp8Tokens>
struct PrefillEpilogue {
  const PrefillGemmArgs& args;
  Shared<kFormat, kFp8Tokens>& shared;
  const int group, warp, lane;                // warp: of the warpgroup
  float scale[2] = {1, 1}, bias[2] = {0, 0};  // of the lane's rows l / 4 and l / 4 + 8
  float token_scale[2] = {1, 1};              // of tokens t and t + 128, t the thread

  // Issues the loads of a tile's scales; they arrive during the main loop.
  __device__ void load(const Schedule& tile) {
    const LinearArgs& gemm = args.gemm;
    const int block = tile.row * kBlocks + group * 4 + warp, row = block * kBlockRows + lane / 4;
    if (kFp8Tokens) {
      const float* from = args.token_scale + tile.token * kTokens + warp * 32 + lane;
      token_scale[0] = from[0], token_scale[1] = from[128];
    }
    if (block >= gemm.tiles.blocks) return;
    if (gemm.tiles.row_scale) {
      const int matrix = gemm.matrix + (gemm.tile_count ? gemm.tile_matrix[tile.token] : 0);
      const float* from = gemm.tiles.row_scale + size_t(matrix) * gemm.tiles.blocks * kBlockRows;
      scale[0] = from[row], scale[1] = from[row + 8];
    }
    if (gemm.bias) {
      const int expert = gemm.bias_stride ? gemm.tile_matrix[tile.token] : 0;
      const float* from = gemm.bias + size_t(expert) * gemm.bias_stride + row;
      bias[0] = from[0], bias[1] = from[8];
    }
  }

  __device__ void run(const Schedule& tile, const float (&d)[kTokens / 2]) {
    if (kFp8Tokens) {
      shared.token_scale[group][warp * 32 + lane] = token_scale[0];
      shared.token_scale[group][warp * 32 + lane + 128] = token_scale[1];
      sync();
    }
    if (args.gemm.epilogue != Epilogue::gate) return store_rows(tile, d);
    switch (args.gemm.activation) {
      case Activation::silu:
        return store_gated<Activation::silu>(tile, d);
      case Activation::gelu_tanh:
        return store_gated<Activation::gelu_tanh>(tile, d);
      case Activation::clamped_swiglu:
        return store_gated<Activation::clamped_swiglu>(tile, d);
    }
  }

  // Before the block exits: shared memory must stay until the stores are done.
  __device__ void finish() const {
    if (warp == 0) ptx::cp_async_bulk_wait_all();
  }

 private:
  __device__ void sync() const {
    group ? ptx::bar_sync<2>(kGroupThreads) : ptx::bar_sync<1>(kGroupThreads);
  }
  // The scales of the lane's two tokens of the j-th eight.
  __device__ float2 scale_of_tokens(int j) const {
    if (!kFp8Tokens) return {1, 1};
    return *reinterpret_cast<const float2*>(&shared.token_scale[group][j * 8 + lane % 4 * 2]);
  }

  // rows[token][row] = or += y, in pieces of 16 tokens. A piece is two boxes of 32 rows with the
  // 128-byte swizzle, so the stores of a warp have no bank conflicts.
  __device__ void store_rows(const Schedule& tile, const float (&d)[kTokens / 2]) const {
    uint8_t* const staging = shared.staging[group];
    uint8_t* to[2][2];  // [second row][second token]
#pragma unroll
    for (int v = 0; v < 4; ++v) {
      const int row = warp % 2 * 16 + v / 2 * 8 + lane / 4, token = lane % 4 * 2 + v % 2;
      to[v / 2][v % 2] = staging + warp / 2 * (kPieceBytes / 2) + token * 128 +
                         ((row / 4 ^ token) * 16) + row % 4 * 4;
    }
#pragma unroll
    for (int piece = 0; piece < kTokens / kPieceTokens; ++piece) {
      const int offset = piece % kBuffers * kPieceBytes;
#pragma unroll
      for (int i = 0; i < kPieceTokens / 8; ++i) {
        const int j = piece * (kPieceTokens / 8) + i;
        const float2 s = scale_of_tokens(j);
#pragma unroll
        for (int v = 0; v < 4; ++v) {
          *reinterpret_cast<float*>(to[v / 2][v % 2] + offset + i * 1024) =
              d[4 * j + v] * scale[v / 2] * (v % 2 ? s.y : s.x) + bias[v / 2];
        }
      }
      ptx::fence_proxy_async_shared();
      // The buffer of the next piece must have been read.
      if (warp == 0 && lane == 0) ptx::cp_async_bulk_wait_read<kBuffers - 2>();
      sync();
      if (warp == 0 && lane == 0) {
        const int row = tile.row * kRows + group * 64;
        const int token = tile.token * kTokens + piece * kPieceTokens;
#pragma unroll
        for (int box = 0; box < 2; ++box) {
          const uint8_t* from = staging + offset + box * (kPieceBytes / 2);
          args.gemm.epilogue == Epilogue::add
              ? ptx::cp_async_bulk_tensor_add_2d(&args.rows, row + box * 32, token, from)
              : ptx::cp_async_bulk_tensor_store_2d(&args.rows, row + box * 32, token, from);
        }
        ptx::cp_async_bulk_commit();
      }
    }
  }

  // A lane has row l / 4 of both gate and up. The 64 results of each token are one block of
  // columns of `out`, which has core matrices: 4 of every 8 tokens are this warpgroup's, 512
  // contiguous bytes.
  template <Activation kActivation>
  __device__ void store_gated(const Schedule& tile, const float (&d)[kTokens / 2]) const {
    if (tile.row >= args.gemm.row_tiles) return;
    uint8_t* const staging = shared.staging[group];
    if (warp == 0) ptx::cp_async_bulk_wait_read<0>();
    sync();
    const uint32_t to = ptx::shared_address(staging) + lane / 8 * 512 + warp * 128 + lane % 8 * 16;
#pragma unroll
    for (int j = 0; j < kTokens / 8; j += 4) {
      uint32_t pair[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* y = d + 4 * (j + i);
        const float2 s = scale_of_tokens(j + i);
        pair[i] = pack_bf16(gated<kActivation>(y[0] * s.x, y[2] * s.x),
                            gated<kActivation>(y[1] * s.y, y[3] * s.y));
      }
      ptx::stmatrix_x4_trans(to + j * 512, pair);
    }
    ptx::fence_proxy_async_shared();
    sync();
    if (warp == 0) {
      uint16_t* const out =
          args.gemm.out +
          wide_at(tile.row * 64 + group * 32, tile.token * kTokens + lane * 8, args.gemm.padded);
      ptx::cp_async_bulk_store(out, staging + lane * 512, 512);
      ptx::cp_async_bulk_commit();
    }
  }

  template <Activation kActivation>
  __device__ float gated(float gate, float up) const {
    const float g = gate * scale[0] + bias[0], u = up * scale[1] + bias[1];
    if (kActivation == Activation::silu) return __fdividef(g, 1 + __expf(-g)) * u;
    return gate_times_up(kActivation, g, u);
  }
};

}  // namespace ridge::cuda::prefill
#endif
