// The kernel of latent_attention.cuh: O[rows x 512] = softmax(Q[rows x 576] K^T) K[:, :512], by
// mma.sync and cp.async, for every card since Ampere.
//
// A block has 1 or 4 row tiles of 16 rows, with four warps each. Warp (tile, part) computes
//   S[16 rows x 8 keys]      of keys 8 part, ... of a stage
//   O[16 rows x 128 columns] from column 128 part on, over all keys of the stage
// The four warps of a row tile exchange the maxima of their scores and the weights through shared
// memory.
//
// Tiles whose pages are split write records, which a second kernel combines (FlashDecoding): one
// block for each row, because a single one would wait for the latency of every record.
//
//   shared memory, 93 KB with one row tile, 152 with four; rows padded against bank conflicts
//   +--------------------------------------------------------------------+
//   | queries[16 row_tiles][584]                                   bf16  |  read by ldmatrix
//   | stages[2][32 keys][584]                                      bf16  |  cp.async: one is filled
//   | weights[16 row_tiles][40]                                    bf16  |    while one is read
//   | maxima[4 parts][16 row_tiles]                                f32   |
//   +--------------------------------------------------------------------+
//
// __syncthreads() three times per stage: the stage has arrived and the one before has been read,
// the maxima are written, the weights are written.
#pragma once

#include "base/ptx/async_copy.cuh"
#include "base/ptx/execution.cuh"
#include "base/ptx/mma.cuh"
#include "engine/cuda/attention/latent_attention.cuh"
#include "engine/cuda/attention/softmax.cuh"
#include "engine/cuda/device/scalar.cuh"

namespace ridge::cuda {

constexpr int kLatentParts = 4;        // warps of a row tile
constexpr int kLatentMaxRowTiles = 4;  // of a block
constexpr int kLatentKeys = 32;        // of a stage
constexpr int kLatentStride = kLatentRow + 8, kLatentWeightStride = kLatentKeys + 8;

constexpr int latent_shared_bytes(int row_tiles) {
  const int rows = 16 * row_tiles;
  return (rows + 2 * kLatentKeys) * kLatentStride * 2 + rows * kLatentWeightStride * 2 +
         kLatentParts * rows * 4;
}
// Floats of a partial result: outputs, then (maximum, sum) of each row.
__host__ __device__ constexpr int latent_record_size(int rows) { return rows * (kLatentRank + 2); }

template <int kRowTiles>
struct LatentBlock {
  static constexpr int kThreads = 32 * kLatentParts * kRowTiles;
  static constexpr int rows = 16 * kRowTiles;  // of the block
  using Output = float[kLatentRank / kLatentParts / 8][4];

  const LatentAttentionLaunch& launch;
  const LatentItem& item;
  uint8_t* const shared;
  const int lane = threadIdx.x % 32, part = threadIdx.x / 32 % kLatentParts;
  const int tile = threadIdx.x / 32 / kLatentParts;  // of 16 rows
  const int row = tile * 16 + lane / 4;              // this lane's first; + 8 the second
  const int packed = item.rows * launch.heads.by;    // rows of the sequence
  uint16_t* const queries = reinterpret_cast<uint16_t*>(shared);
  uint16_t* const stages = queries + rows * kLatentStride;
  uint16_t* const weights = stages + 2 * kLatentKeys * kLatentStride;
  float* const maxima = reinterpret_cast<float*>(weights + rows * kLatentWeightStride);

  struct Query {
    int token, head;  // of the sequence
    bool valid;
  };
  __device__ __forceinline__ Query query(int block_row) const {
    const int r = min(item.first + block_row, packed - 1), token = launch.heads.quotient(r);
    return {token, r - token * launch.heads.by, item.first + block_row < packed};
  }
  // Index among the rows of q_latent and the columns of `out`.
  __device__ __forceinline__ size_t slot(const Query& q) const {
    return size_t(q.head) * launch.args.padded + item.row + q.token;
  }

  __device__ __forceinline__ void load_queries() const {
    constexpr int kQuads = kLatentRank / 4, kPieces = kLatentRope / 8;
    const LatentAttentionArgs& a = launch.args;
    for (int i = threadIdx.x; i < rows * kQuads; i += kThreads) {
      const Query q = query(i / kQuads);
      float4 v = {0, 0, 0, 0};
      if (q.valid)
        v = reinterpret_cast<const float4*>(a.q_latent + slot(q) * kLatentRank)[i % kQuads];
      *reinterpret_cast<uint2*>(queries + i / kQuads * kLatentStride + i % kQuads * 4) = {
          pack_bf16(v.x, v.y), pack_bf16(v.z, v.w)};
    }
    for (int i = threadIdx.x; i < rows * kPieces; i += kThreads) {
      const Query q = query(i / kPieces);
      const size_t from = (size_t(item.row + q.token) * a.heads + q.head) * kLatentRope;
      uint4 v = {0, 0, 0, 0};
      if (q.valid) v = reinterpret_cast<const uint4*>(a.q_rope + from)[i % kPieces];
      *reinterpret_cast<uint4*>(queries + i / kPieces * kLatentStride + kLatentRank +
                                i % kPieces * 8) = v;
    }
  }

  // A key of a stage is copied by kKeyThreads threads. Page numbers are read a stage ahead.
  static constexpr int kKeyThreads = kThreads / kLatentKeys;
  const int key = threadIdx.x / kKeyThreads;  // that this thread copies a part of
  __device__ __forceinline__ int page_of(int stage) const {
    return item.first_page + stage * (kLatentKeys / kPageTokens) + key / kPageTokens;
  }
  __device__ __forceinline__ int page_number(int stage) const {
    return launch.args.pages[item.pages + min(page_of(stage), item.end_page - 1)];
  }
  // Copies the rows of two pages; beyond the last page they become zeros.
  __device__ __forceinline__ void load_stage(int stage, int number) const {
    constexpr int kPieces = kLatentRow / 8;  // of 16 bytes
    const int first = threadIdx.x % kKeyThreads;
    const bool valid = page_of(stage) < item.end_page;
    const uint16_t* from = launch.args.kv +
                           (size_t(number) * kPageTokens + key % kPageTokens) * kLatentRow +
                           first * 8;
    const uint32_t to =
        ptx::shared_address(stages + (stage % 2 * kLatentKeys + key) * kLatentStride + first * 8);
#pragma unroll
    for (int i = 0; i < kPieces; i += kKeyThreads) {
      if (i + first < kPieces) ptx::cp_async_16(to + i * 16, from + i * 8, valid);
    }
  }

  // Scores of this warp's 16 rows and 8 keys, in two chains of MMAs.
  __device__ __forceinline__ void multiply_keys(float (&s)[4], int stage) const {
    const uint32_t a =
        ptx::shared_address(queries + (tile * 16 + lane % 16) * kLatentStride + lane / 16 * 8);
    const uint32_t b = ptx::shared_address(
        stages + (stage % 2 * kLatentKeys + part * 8 + lane % 8) * kLatentStride + lane / 8 * 8);
    float odd[4] = {};
    s[0] = s[1] = s[2] = s[3] = 0;
#pragma unroll 6
    for (int k = 0; k < kLatentRow; k += 32) {
      const uint4 keys = ptx::ldmatrix_x4(b + k * 2);
      const uint4 low = ptx::ldmatrix_x4(a + k * 2), high = ptx::ldmatrix_x4(a + k * 2 + 32);
      ptx::mma_bf16(s, {low.x, low.y, low.z, low.w}, keys.x, keys.y);
      ptx::mma_bf16(odd, {high.x, high.y, high.z, high.w}, keys.z, keys.w);
    }
#pragma unroll
    for (int v = 0; v < 4; ++v) s[v] += odd[v];
  }

  // Scores become weights in shared memory; what is there already is rescaled.
  __device__ __forceinline__ void update_softmax(float (&s)[4], int stage, const int (&position)[2],
                                                 float (&max)[2], float (&sum)[2],
                                                 Output& o) const {
    const int first_key = item.first_page * kPageTokens + stage * kLatentKeys + part * 8;
    const float factor = launch.args.scale * kLog2e;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = kMaskedScore;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int at = first_key + lane % 4 * 2 + e;
        float& score = s[r * 2 + e];
        score = at <= position[r] ? score * factor : kMaskedScore;
        most = fmaxf(most, score);
      }
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
      if (lane % 4 == 0) maxima[part * rows + row + r * 8] = most;
    }
    __syncthreads();
    float rescale[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float most = max[r];
#pragma unroll
      for (int p = 0; p < kLatentParts; ++p) most = fmaxf(most, maxima[p * rows + row + r * 8]);
      rescale[r] = exp2f(max[r] - most);
      max[r] = most;
      float p[2];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float score = s[r * 2 + e];
        p[e] = score > kMaskedScore ? exp2f(score - most) : 0.0f;
      }
      sum[r] = sum[r] * rescale[r] + p[0] + p[1];
      *reinterpret_cast<uint32_t*>(weights + (row + r * 8) * kLatentWeightStride + part * 8 +
                                   lane % 4 * 2) = pack_bf16(p[0], p[1]);
    }
#pragma unroll
    for (auto& each : o) {
      each[0] *= rescale[0], each[1] *= rescale[0], each[2] *= rescale[1], each[3] *= rescale[1];
    }
    __syncthreads();
  }

  // O += P V for this warp's 128 columns.
  __device__ __forceinline__ void multiply_values(Output& o, int stage) const {
    const uint32_t a = ptx::shared_address(weights + (tile * 16 + lane % 16) * kLatentWeightStride +
                                           lane / 16 * 8);
    const uint32_t b =
        ptx::shared_address(stages + (stage % 2 * kLatentKeys + lane % 16) * kLatentStride +
                            part * (kLatentRank / kLatentParts) + lane / 16 * 8);
#pragma unroll
    for (int k = 0; k < kLatentKeys; k += 16) {
      const uint4 p = ptx::ldmatrix_x4(a + k * 2);
#pragma unroll
      for (int j = 0; j < kLatentRank / kLatentParts / 8; j += 2) {
        const uint4 v = ptx::ldmatrix_x4_trans(b + (k * kLatentStride + j * 8) * 2);
        ptx::mma_bf16(o[j], {p.x, p.y, p.z, p.w}, v.x, v.y);
        ptx::mma_bf16(o[j + 1], {p.x, p.y, p.z, p.w}, v.z, v.w);
      }
    }
  }

  // The sum of a row over the lanes and warps that share it.
  __device__ __forceinline__ void add_sums(float (&sum)[2]) const {
    __syncthreads();  // the maxima have been read
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 1);
      sum[r] += __shfl_xor_sync(0xffffffffu, sum[r], 2);
      if (lane % 4 == 0) maxima[part * rows + row + r * 8] = sum[r];
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      sum[r] = 0;
#pragma unroll
      for (int p = 0; p < kLatentParts; ++p) sum[r] += maxima[p * rows + row + r * 8];
    }
  }

  // Two neighbouring columns of a row.
  __device__ __forceinline__ void write(int block_row, int column, float low, float high) const {
    const Query q = query(block_row);
    if (!q.valid) return;
    const int slots = launch.args.heads * launch.args.padded;
    *reinterpret_cast<uint32_t*>(launch.args.out + wide_at(column, int(slot(q)), slots)) =
        pack_bf16(low, high);
  }

  // The output, or the record of this split.
  __device__ __forceinline__ void store(const Output& o, const float (&max)[2],
                                        const float (&sum)[2]) const {
    float* record = launch.partials + size_t(item.partial + item.split) * latent_record_size(rows);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float inverse = 1 / sum[r];
#pragma unroll
      for (int j = 0; j < kLatentRank / kLatentParts / 8; ++j) {
        const int column = part * (kLatentRank / kLatentParts) + j * 8 + lane % 4 * 2;
        const float2 pair = {o[j][r * 2], o[j][r * 2 + 1]};
        if (item.splits == 1) {
          write(row + r * 8, column, pair.x * inverse, pair.y * inverse);
        } else {
          *reinterpret_cast<float2*>(record + (row + r * 8) * kLatentRank + column) = pair;
        }
      }
      if (item.splits > 1 && part == 0 && lane % 4 == 0) {
        reinterpret_cast<float2*>(record + rows * kLatentRank)[row + r * 8] = {max[r], sum[r]};
      }
    }
  }

  __device__ __forceinline__ void run() const {
    constexpr int kStagePages = kLatentKeys / kPageTokens;
    const int count = (item.end_page - item.first_page + kStagePages - 1) / kStagePages;
    load_stage(0, page_number(0));
    int number = page_number(1);
    load_queries();
    const int position[2] = {item.past + query(row).token, item.past + query(row + 8).token};
    Output o = {};
    float max[2] = {kMaskedScore, kMaskedScore}, sum[2] = {0, 0};
#pragma unroll 1
    for (int stage = 0; stage < count; ++stage) {
      ptx::cp_async_wait_all();
      __syncthreads();
      if (stage + 1 < count) {
        load_stage(stage + 1, number);
        number = page_number(stage + 2);
      }
      float s[4];
      multiply_keys(s, stage);
      update_softmax(s, stage, position, max, sum, o);
      multiply_values(o, stage);
    }
    add_sums(sum);
    store(o, max, sum);
  }
};

template <int kRowTiles>
__global__ void __launch_bounds__(32 * kLatentParts * kRowTiles, kRowTiles == 1 ? 2 : 1)
    latent_attention_kernel(const __grid_constant__ LatentAttentionLaunch launch) {
  extern __shared__ __align__(128) uint8_t latent_shared[];
  ptx::griddepcontrol_launch_dependents();
  const LatentItem item = launch.items[blockIdx.x];
  ptx::griddepcontrol_wait();
  LatentBlock<kRowTiles>{launch, item, latent_shared}.run();
}

// Adds the records of a tile's splits, in order. Block (x, y) of the grid has row y of tile x, a
// thread four of its columns.
constexpr int kLatentCombineThreads = kLatentRank / 4;
constexpr int kLatentMaxSplits = 1024;
__global__ void __launch_bounds__(kLatentCombineThreads)
    latent_combine_kernel(const __grid_constant__ LatentAttentionLaunch launch) {
  __shared__ float2 states[kLatentMaxSplits];  // (maximum, sum) of each split
  ptx::griddepcontrol_launch_dependents();
  const LatentItem item = launch.items[blockIdx.x];
  ptx::griddepcontrol_wait();
  const int rows = gridDim.y, row = blockIdx.y, size = latent_record_size(rows);
  const int r = item.first + row, token = launch.heads.quotient(r);
  if (r >= item.rows * launch.heads.by) return;
  const float* records = launch.partials + size_t(item.partial) * size;
  for (int i = threadIdx.x; i < item.splits; i += kLatentCombineThreads) {
    states[i] =
        reinterpret_cast<const float2*>(records + size_t(i) * size + rows * kLatentRank)[row];
  }
  __syncthreads();
  float max = kMaskedScore, sum = 0;
  for (int i = 0; i < item.splits; ++i) max = fmaxf(max, states[i].x);
  float4 total = {0, 0, 0, 0};
#pragma unroll 8
  for (int i = 0; i < item.splits; ++i) {
    const float weight = exp2f(states[i].x - max);
    const float4 out = reinterpret_cast<const float4*>(records + size_t(i) * size +
                                                       row * kLatentRank)[threadIdx.x];
    sum += weight * states[i].y;
    total = {total.x + weight * out.x, total.y + weight * out.y, total.z + weight * out.z,
             total.w + weight * out.w};
  }
  const int slot = (r - token * launch.heads.by) * launch.args.padded + item.row + token;
  const float inverse = 1 / sum;
  *reinterpret_cast<uint2*>(launch.args.out + wide_at(int(threadIdx.x) * 4, slot,
                                                      launch.args.heads * launch.args.padded)) = {
      pack_bf16(total.x * inverse, total.y * inverse),
      pack_bf16(total.z * inverse, total.w * inverse)};
}

}  // namespace ridge::cuda
