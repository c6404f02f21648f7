// Prefill attention of portable/attention.cuh: FlashAttention by mma.sync over KV pages in bf16.
//
// A persistent block of 8 warps goes over its tiles of 128 packed rows (token * group + head) of
// one KV head; a warp has 16 rows, its queries in registers.
//   S[16 x keys] = Q[16 x head_dim] K^T      A: queries, B: keys as they lie in the page
//   O[16 x head_dim] += P[16 x keys] V       A: the weights of the softmax, B: values
//
//   shared memory, 2 stages of 64 (head_dim 256: 32) keys: pages as they lie in memory (tiles.cuh).
//   cp.async fills one while the other is read; one __syncthreads() per stage.
#pragma once

#include "base/ptx/async_copy.cuh"
#include "base/ptx/execution.cuh"
#include "base/ptx/mma.cuh"
#include "engine/cuda/attention/prefill_attention.cuh"
#include "engine/cuda/attention/softmax.cuh"
#include "engine/cuda/device/scalar.cuh"

namespace ridge::cuda {

constexpr int kPortablePrefillThreads = kPrefillTileRows / 16 * 32;

template <int kHeadDim>
struct PortablePrefill {
  static constexpr int kKeys = kHeadDim == 256 ? 32 : 64, kPages = kKeys / kPageTokens;
  static constexpr int kPageBytes = page_elements(kHeadDim) * 2;
  static constexpr int kHalfBytes = 8 * kHeadDim * 2;  // from 8 tokens of a page to the next 8
  static constexpr int kStageBytes = kPages * kPageBytes;
  static constexpr int kSharedBytes = 2 * kStageBytes;
  // What ldmatrix relies on (tiles.cuh): rows of 16 bytes, matrices of 128.
  static_assert(key_at(1, 0, kHeadDim) == 8 && key_at(0, 8, kHeadDim) == 64 &&
                key_at(8, 0, kHeadDim) * 2 == kHalfBytes);
  static_assert(value_at(0, 0, kHeadDim) * 2 == kPageBytes / 2 &&
                value_at(0, 1, kHeadDim) * 2 == kPageBytes / 2 + 16 &&
                value_at(0, 8, kHeadDim) * 2 == kPageBytes / 2 + 128 &&
                value_at(8, 0, kHeadDim) * 2 == kPageBytes / 2 + kHalfBytes);
  using Queries = uint32_t[kHeadDim / 16][4];  // A operands
  using Scores = float[kKeys / 8][4];
  using Output = float[kHeadDim / 8][4];

  const PrefillAttentionLaunch& launch;
  const PrefillTile& tile;
  uint8_t* const shared;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int packed = tile.rows * launch.group.by;  // rows of the sequence
  const int first = tile.tile * kPrefillTileRows;  // of the tile

  // The position of a row; rows beyond the sequence are the last one again.
  __device__ __forceinline__ int position(int row) const {
    return tile.past + launch.group.quotient(min(row, packed - 1));
  }

  // Copies keys and values of 64 keys. Pages that no row sees become zeros.
  __device__ __forceinline__ void load(int key_tile, int stage, int end_page) const {
    constexpr int kPieces = kPageBytes / 16;
    const uint32_t to = ptx::shared_address(shared) + stage * kStageBytes;
#pragma unroll(kHeadDim == 256 ? 1 : 4)  // registers
    for (int i = 0; i < kPages * kPieces; i += kPortablePrefillThreads) {
      const int at = i + threadIdx.x, page = key_tile * kPages + at / kPieces;
      const bool valid = page < end_page;
      const size_t number = launch.pages[tile.pages + (valid ? page : 0)];
      const uint16_t* from =
          launch.kv + (number * launch.args.kv_heads + tile.kv_head) * page_elements(kHeadDim);
      ptx::cp_async_16(to + at * 16, from + at % kPieces * 8, valid);
    }
  }

  __device__ __forceinline__ void load_queries(Queries& q) const {
    const AttentionArgs& args = launch.args;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int row = min(first + warp * 16 + lane / 4 + r * 8, packed - 1);
      const int token = launch.group.quotient(row), in_group = row - token * launch.group.by;
      const uint16_t* from =
          args.q +
          (size_t(tile.row + token) * args.heads + tile.kv_head * launch.group.by + in_group) *
              kHeadDim +
          lane % 4 * 2;
#pragma unroll
      for (int k = 0; k < kHeadDim / 16; ++k) {
        q[k][r] = *reinterpret_cast<const uint32_t*>(from + k * 16);
        q[k][r + 2] = *reinterpret_cast<const uint32_t*>(from + k * 16 + 8);
      }
    }
  }

  // A key page has core matrices [token / 8][d / 8] with tokens as rows: ldmatrix gives the B
  // operands of 8 keys and 32 dimensions. The next are loaded before the MMAs of these.
  __device__ __forceinline__ void multiply_keys(Scores& s, const Queries& q, int stage) const {
    constexpr int kGroups = kKeys / 8, kLoads = kHeadDim / 32 * kGroups;
    const uint32_t from = ptx::shared_address(shared) + stage * kStageBytes + lane * 16;
    const auto keys = [&](int i) {  // groups of 8 keys first: their MMAs are independent
      const int group = i % kGroups, d32 = i / kGroups;
      return ptx::ldmatrix_x4(from + group / 2 * kPageBytes + group % 2 * kHalfBytes + d32 * 512);
    };
#pragma unroll
    for (int g = 0; g < kGroups; ++g) s[g][0] = s[g][1] = s[g][2] = s[g][3] = 0;
    uint4 next = keys(0);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint4 b = next;
      if (i + 1 < kLoads) next = keys(i + 1);
      ptx::mma_bf16(s[i % kGroups], q[i / kGroups * 2], b.x, b.y);
      ptx::mma_bf16(s[i % kGroups], q[i / kGroups * 2 + 1], b.z, b.w);
    }
  }

  // A value page has core matrices [token / 8][d / 8] with dimensions as rows: ldmatrix gives the B
  // operands of 16 keys and 16 dimensions.
  __device__ __forceinline__ void multiply_values(Output& o, const Scores& s, int stage) const {
    constexpr int kPerPage = kHeadDim / 16, kLoads = kPages * kPerPage;
    const uint32_t from = ptx::shared_address(shared) + stage * kStageBytes + kPageBytes / 2 +
                          lane / 8 % 2 * kHalfBytes + lane / 16 * 128 + lane % 8 * 16;
    const auto values = [&](int i) {
      return ptx::ldmatrix_x4(from + i / kPerPage * kPageBytes + i % kPerPage * 256);
    };
    uint4 next = values(0);
    uint32_t p[4];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const uint4 b = next;
      if (i + 1 < kLoads) next = values(i + 1);
      if (i % kPerPage == 0) {  // D of two groups of keys is A of one MMA
        const int g = i / kPerPage * 2;
        p[0] = pack_bf16(s[g][0], s[g][1]), p[1] = pack_bf16(s[g][2], s[g][3]);
        p[2] = pack_bf16(s[g + 1][0], s[g + 1][1]), p[3] = pack_bf16(s[g + 1][2], s[g + 1][3]);
      }
      ptx::mma_bf16(o[i % kPerPage * 2], p, b.x, b.y);
      ptx::mma_bf16(o[i % kPerPage * 2 + 1], p, b.z, b.w);
    }
  }

  // Masks the keys that the lane's rows do not attend to; the scores begin at key `begin`.
  __device__ __forceinline__ void apply_mask(Scores& s, int begin, const int (&at)[2]) const {
    const int window = launch.args.window;
#pragma unroll
    for (int g = 0; g < kKeys / 8; ++g) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        const int key = begin + g * 8 + lane % 4 * 2 + v % 2, row = at[v / 2];
        if (key > row || (window > 0 && key <= row - window)) s[g][v] = kMaskedScore;
      }
    }
  }

  // c tanh(s / c) as c - 2 c / (e^(2 s / c) + 1).
  __device__ __forceinline__ void apply_softcap(Scores& s) const {
    const float c = launch.args.softcap, in = 2 * kLog2e * launch.args.scale / c;
#pragma unroll
    for (int g = 0; g < kKeys / 8; ++g) {
#pragma unroll
      for (int v = 0; v < 4; ++v) {
        s[g][v] = c - __fdividef(2 * c, fast_exp2(fminf(s[g][v] * in, 80.0f)) + 1);
      }
    }
  }

  // Scores become weights 2^(factor (s - max)), and what is there already is rescaled.
  __device__ __forceinline__ void update_softmax(Scores& s, Output& o, float (&max)[2],
                                                 float (&sum)[2], float factor) const {
    float rescale[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = max[r];
#pragma unroll
      for (int g = 0; g < kKeys / 8; ++g) most = fmaxf(most, fmaxf(s[g][r * 2], s[g][r * 2 + 1]));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      rescale[r] = fast_exp2((max[r] - most) * factor);
      max[r] = most;
      const float base = most == kMaskedScore ? 0.0f : most * factor;  // all masked: weights are 0
      sum[r] *= rescale[r];
#pragma unroll
      for (int g = 0; g < kKeys / 8; ++g) {
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s[g][r * 2 + e];
          x = fast_exp2(__fmaf_rn(x, factor, -base));
          sum[r] += x;
        }
      }
    }
#pragma unroll
    for (int j = 0; j < kHeadDim / 8; ++j) {
#pragma unroll
      for (int v = 0; v < 4; ++v) o[j][v] *= rescale[v / 2];
    }
  }

  __device__ __forceinline__ void write(const Output& o, const float (&max)[2],
                                        const float (&sum)[2], float factor) const {
    const AttentionArgs& args = launch.args;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float total = sum[r];
      total += __shfl_xor_sync(0xffffffffu, total, 1);
      total += __shfl_xor_sync(0xffffffffu, total, 2);
      const int row = first + warp * 16 + lane / 4 + r * 8;
      if (row >= packed) continue;
      const int token = launch.group.quotient(row), in_group = row - token * launch.group.by;
      if (args.sinks) {
        const float sink = args.sinks[tile.kv_head * launch.group.by + in_group] * kLog2e;
        total += fast_exp2(fminf(sink - max[r] * factor, 120.0f));
      }
      const float inverse = __fdividef(1.0f, total);
      uint16_t* to = args.out +
                     wide_at((tile.kv_head * launch.group.by + in_group) * kHeadDim,
                             tile.row + token, args.out_tokens) +
                     lane % 4 * 2;
#pragma unroll
      for (int j = 0; j < kHeadDim / 8; ++j) {
        *reinterpret_cast<uint32_t*>(to + wide_at(j * 8, 0, args.out_tokens)) =
            pack_bf16(o[j][r * 2] * inverse, o[j][r * 2 + 1] * inverse);
      }
    }
  }

  __device__ __forceinline__ void run() const {
    const AttentionArgs& args = launch.args;
    // Keys that any row of the tile sees, and the lane's and the warp's rows.
    const int high = position(first + kPrefillTileRows - 1) + 1;
    const int low = args.window > 0 ? max(0, position(first) + 1 - args.window) : 0;
    const int end_page = (high + kPageTokens - 1) / kPageTokens;
    const int row = first + warp * 16;
    const int at[2] = {position(row + lane / 4), position(row + lane / 4 + 8)};
    const int oldest = position(row), newest = position(row + 15);
    const float factor = args.softcap > 0 ? kLog2e : kLog2e * args.scale;
    Queries q;
    load_queries(q);
    Output o = {};
    float maxima[2] = {kMaskedScore, kMaskedScore}, sums[2] = {0, 0};
    const int begin = low / kKeys, end = (high + kKeys - 1) / kKeys;
    __syncthreads();  // the stages of the tile before have been read
    load(begin, begin % 2, end_page);
#pragma unroll 1
    for (int key_tile = begin; key_tile < end; ++key_tile) {
      ptx::cp_async_wait_all();
      __syncthreads();
      if (key_tile + 1 < end) load(key_tile + 1, (key_tile + 1) % 2, end_page);
      const int key = key_tile * kKeys;
      if (key > newest) continue;  // of other warps' rows
      Scores s;
      multiply_keys(s, q, key_tile % 2);
      if (args.softcap > 0) apply_softcap(s);
      if (key + kKeys - 1 > oldest || (args.window > 0 && key <= newest - args.window)) {
        apply_mask(s, key, at);
      }
      update_softmax(s, o, maxima, sums, factor);
      multiply_values(o, s, key_tile % 2);
    }
    write(o, maxima, sums, factor);
  }
};

template <int kHeadDim>
__global__ void __launch_bounds__(kPortablePrefillThreads, 1)
    portable_prefill_kernel(const __grid_constant__ PrefillAttentionLaunch launch) {
  extern __shared__ __align__(128) uint8_t portable_prefill_shared[];
#pragma unroll 1
  for (int i = launch.begin[blockIdx.x]; i < launch.begin[blockIdx.x + 1]; ++i) {
    const PrefillTile tile = launch.tiles[i];
    PortablePrefill<kHeadDim>{launch, tile, portable_prefill_shared}.run();
  }
}

}  // namespace ridge::cuda
