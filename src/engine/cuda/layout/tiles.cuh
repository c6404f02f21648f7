// Layouts of weights, activations and KV pages in device memory. Elements lie in the order in which
// the lanes of a warp hold the operands of mma.m16n8k16, so every load is 16 bytes per lane and 512
// contiguous bytes per warp, without bank conflicts and without shuffles.
//
// mma.m16n8k16 computes D[16 x 8] += A[16 x 16] B[16 x 8]. Lane 4 g + t holds
//   A: (row g, k 2t, 2t+1), (row g+8, same k), (row g, k 2t+8, 2t+9), (row g+8, same k)
//   B: (k 2t, 2t+1; column g), (k 2t+8, 2t+9; column g)
//   D: (row g; columns 2t, 2t+1), (row g+8; same columns)
//
// Weights are A, tokens are columns of B. A matrix is cut into blocks of 16 rows. A block is a
// sequence of chunks along K. A chunk is one load of a warp: 16 bytes per lane, then the group
// scales where the format has them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/weight_format.h"

namespace ridge::cuda {

constexpr int kBlockRows = 16;

struct FormatInfo {
  int columns;      // of a chunk
  int chunk_bytes;  // 512, plus group scales
};
__host__ __device__ constexpr FormatInfo format_info(WeightFormat format) {
  // int4, nf4: a chunk is 16 rows x one group of 64 columns. Its scales are a half2 for each g:
  // those of rows g and g + 8.
  // mxfp4: a chunk is 16 rows x two groups of 32 columns. Its scales are four bytes for each g: of
  // rows g and g + 8 in the first group, then in the second (mxfp4_scale_byte()).
  return format == WeightFormat::bf16                                  ? FormatInfo{16, 512}
         : format == WeightFormat::fp8 || format == WeightFormat::int8 ? FormatInfo{32, 512}
                                                                       : FormatInfo{64, 512 + 32};
}
// One float per row, in an array of its own.
__host__ __device__ constexpr bool has_row_scale(WeightFormat format) {
  return format == WeightFormat::fp8 || format == WeightFormat::int8;
}
__host__ __device__ constexpr bool has_group_scale(WeightFormat format) {
  return format == WeightFormat::int4 || format == WeightFormat::nf4 ||
         format == WeightFormat::mxfp4;
}

// One matrix per layer, of the same shape in all layers.
struct Tiles {
  const uint8_t* data = nullptr;     // [layer][block][chunk][chunk_bytes]
  const float* row_scale = nullptr;  // [layer][block * 16]; null: 1
  size_t stride = 0;                 // bytes from one layer to the next
  int blocks = 0, chunks = 0;        // blocks per layer, chunks per block
};

// Index of element (k, token) of activations in the order of the MMA's B operand:
// [k / 16][token][4][4] bf16.
__host__ __device__ constexpr size_t activation_at(int k, int token, int tokens) {
  const int r = k % 16;
  return ((size_t(k / 16) * tokens + token) * 4 + r % 8 / 2) * 4 + r / 8 * 2 + r % 2;
}

// The same for wgmma, whose B operand is in shared memory without a swizzle: core matrices of 8
// tokens x 8 columns, 128 contiguous bytes, [k / 64][token / 8][k % 64 / 8][token % 8][k % 8]. So
// 64 columns of any 8 n tokens are one contiguous copy. `tokens` is a multiple of 8.
__host__ __device__ constexpr size_t wide_at(int k, int token, int tokens) {
  return (size_t(k / 64) * (tokens / 8) + token / 8) * 512 + k % 64 / 8 * 64 + token % 8 * 8 +
         k % 8;
}

// Activations in E4M3 for wgmma with weights in fp8, one byte each: core matrices of 8 tokens x 16
// columns. The 16 columns lie in the order in which a lane's words of a weight tile hold them:
// 0, 1, 8, 9, 2, 3, 10, 11, ...
__host__ __device__ constexpr int fp8_column(int k) {
  const int c = k % 16;
  return c % 8 / 2 * 4 + c / 8 * 2 + c % 2;
}
// With a scale per token, elsewhere: [k / 128][token / 8][k % 128 / 16][token % 8][16].
__host__ __device__ constexpr size_t fp8_at(int k, int token, int tokens) {
  return (size_t(k / 128) * (tokens / 8) + token / 8) * 1024 + k % 128 / 16 * 128 + token % 8 * 16 +
         fp8_column(k);
}
// With a scale per token and 64 or 128 columns: 64 columns of all tokens as [token / 8][k % 64 /
// 16] [token % 8][16], then their scales as float[token]. So 64 columns are one contiguous copy.
__host__ __device__ constexpr int fp8_group_bytes(int tokens) { return tokens * (64 + 4); }
__host__ __device__ constexpr size_t fp8_group_at(int k, int token, int tokens) {
  return size_t(k / 64) * fp8_group_bytes(tokens) + token / 8 * 512 + k % 64 / 16 * 128 +
         token % 8 * 16 + fp8_column(k);
}
__host__ __device__ constexpr size_t fp8_group_scale_at(int k, int token, int tokens) {
  return size_t(k / 64) * fp8_group_bytes(tokens) + tokens * 64 + token * 4;
}

// A page of the KV cache, for one layer and KV head: K of 16 tokens, then V.
constexpr int kPageTokens = 16;
// Whether an element is one byte, with a scale per token and head.
__host__ __device__ constexpr bool kv_bytes(KvFormat format) {
  return format == KvFormat::fp8 || format == KvFormat::int8;
}
__host__ __device__ constexpr int page_bytes(KvFormat format, int head_dim) {
  return kv_bytes(format) ? 2 * kPageTokens * head_dim + 2 * kPageTokens * 4
                          : 2 * kPageTokens * head_dim * 2;
}

// Pages of 16-bit elements, indices in elements. Both K and V consist of core matrices of 8 x 8,
// 128 contiguous bytes: [token / 8][d / 8][8][8]. K has tokens as rows, V has dimensions as rows,
// since tokens are its k. ldmatrix loads them as A of mma, and wgmma reads them as B.
__host__ __device__ constexpr int page_elements(int head_dim) { return 2 * kPageTokens * head_dim; }
__host__ __device__ constexpr int key_at(int token, int d, int head_dim) {
  return token / 8 * 8 * head_dim + d / 8 * 64 + token % 8 * 8 + d % 8;
}
__host__ __device__ constexpr int value_at(int token, int d, int head_dim) {
  return kPageTokens * head_dim + token / 8 * 8 * head_dim + d / 8 * 64 + d % 8 * 8 + token % 8;
}

// Pages of 8-bit elements, indices in bytes. 512 bytes hold 32 dimensions as the A operands of two
// MMAs, 16 bytes per lane. K has tokens as rows and dimensions as k, V has dimensions as rows and
// tokens as k. The scales follow: float[16] of K, float[16] of V.
__host__ __device__ constexpr int key_byte(int token, int d) {
  return d / 32 * 512 + (token % 8 * 4 + d % 8 / 2) * 16 + d % 32 / 16 * 8 +
         (d % 16 / 8 * 2 + token / 8) * 2 + d % 2;
}
__host__ __device__ constexpr int value_byte(int token, int d, int head_dim) {
  return kPageTokens * head_dim + d / 32 * 512 + (d % 8 * 4 + token % 8 / 2) * 16 +
         d % 32 / 16 * 8 + (token / 8 * 2 + d % 16 / 8) * 2 + token % 2;
}
__host__ __device__ constexpr int key_scale_byte(int token, int head_dim) {
  return 2 * kPageTokens * head_dim + token * 4;
}
__host__ __device__ constexpr int value_scale_byte(int token, int head_dim) {
  return key_scale_byte(kPageTokens + token, head_dim);
}

}  // namespace ridge::cuda
