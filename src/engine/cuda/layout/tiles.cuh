// How weights, activations and the KV cache lie on the device: in the order in which the lanes of
// a warp hold the operands of mma.m16n8k16, so that every load is 16 bytes a lane, 512 contiguous
// bytes a warp, without bank conflicts and without shuffles.
//
// The instruction: D[16 x 8] += A[16 x 16] B[16 x 8]. Lane l = 4 g + t holds
//   A: (row g, k 2t, 2t+1), (row g+8, same k), (row g, k 2t+8, 2t+9), (row g+8, same k)
//   B: (k 2t, 2t+1; column g), (k 2t+8, 2t+9; column g)
//   D: (row g; columns 2t, 2t+1), (row g+8; same columns)
//
// Weights are A, tokens are columns of B. A matrix is cut into blocks of 16 rows; a block is a row
// of chunks, each what one warp loads at once: 16 bytes a lane, and scales where groups have them.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/cuda/layout/weight_format.h"

namespace ridge::cuda {

constexpr int kBlockRows = 16;

struct FormatInfo {
  int columns;      // of a chunk
  int chunk_bytes;  // 512 and the scales
};
__host__ __device__ constexpr FormatInfo format_info(WeightFormat format) {
  // int4, nf4: a chunk is 16 rows x one group; a half2 for each g: the scales of rows g and g + 8.
  return format == WeightFormat::bf16                                  ? FormatInfo{16, 512}
         : format == WeightFormat::fp8 || format == WeightFormat::int8 ? FormatInfo{32, 512}
                                                                       : FormatInfo{64, 512 + 32};
}
// A float for each row, beside the tiles.
__host__ __device__ constexpr bool has_row_scale(WeightFormat format) {
  return format == WeightFormat::fp8 || format == WeightFormat::int8;
}
__host__ __device__ constexpr bool has_group_scale(WeightFormat format) {
  return format == WeightFormat::int4 || format == WeightFormat::nf4;
}

// One matrix a layer, equal in all layers.
struct Tiles {
  const uint8_t* data = nullptr;     // [layer][block][chunk][chunk_bytes]
  const float* row_scale = nullptr;  // [layer][block * 16]; null: 1
  size_t stride = 0;                 // bytes of a layer
  int blocks = 0, chunks = 0;        // chunks of a block
};

// Activations as B: [k / 16][token][4][4] bf16, `tokens` of them; this element's index.
__host__ __device__ constexpr size_t activation_at(int k, int token, int tokens) {
  const int r = k % 16;
  return ((size_t(k / 16) * tokens + token) * 4 + r % 8 / 2) * 4 + r / 8 * 2 + r % 2;
}

// Activations of many tokens, as wgmma's B in shared memory without a swizzle: core matrices of 8
// tokens x 8 columns, 128 contiguous bytes; [k / 64][token / 8][k % 64 / 8][token % 8][k % 8], so
// that 64 columns of any 8 n tokens are one contiguous copy. `tokens`: a multiple of 8.
__host__ __device__ constexpr size_t wide_at(int k, int token, int tokens) {
  return (size_t(k / 64) * (tokens / 8) + token / 8) * 512 + k % 64 / 8 * 64 + token % 8 * 8 +
         k % 8;
}

// A page of the KV cache, for one layer and head: K of 16 tokens, then V.
constexpr int kPageTokens = 16;
__host__ __device__ constexpr bool kv_bytes(KvFormat format) {  // a byte an element, and scales
  return format == KvFormat::fp8 || format == KvFormat::int8;
}
__host__ __device__ constexpr int page_bytes(KvFormat format, int head_dim) {
  return kv_bytes(format) ? 2 * kPageTokens * head_dim + 2 * kPageTokens * 4
                          : 2 * kPageTokens * head_dim * 2;
}

// Of 16 bits: both in core matrices of 8 x 8 (128 contiguous bytes, rows of 16): K has tokens as
// rows, V has dimensions as rows (its tokens are k); each [token / 8][d / 8][8][8]. ldmatrix makes
// them mma's A, and wgmma takes them as B as they are. Elements.
__host__ __device__ constexpr int page_elements(int head_dim) { return 2 * kPageTokens * head_dim; }
__host__ __device__ constexpr int key_at(int token, int d, int head_dim) {
  return token / 8 * 8 * head_dim + d / 8 * 64 + token % 8 * 8 + d % 8;
}
__host__ __device__ constexpr int value_at(int token, int d, int head_dim) {
  return kPageTokens * head_dim + token / 8 * 8 * head_dim + d / 8 * 64 + d % 8 * 8 + token % 8;
}

// Of a byte: 512 bytes hold 32 dimensions as the lanes' A of two MMAs, 16 bytes a lane; K has
// tokens as rows and dimensions as k, V dimensions as rows and tokens as k. Then the scales,
// float[16] of K and float[16] of V.
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
