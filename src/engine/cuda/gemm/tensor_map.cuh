// Tensor maps of weight tiles and of rows of results, for the copy engine.
#pragma once

#include <cuda.h>

#include "engine/cuda/layout/tiles.cuh"

namespace ridge::cuda {

// Weights as [matrix][block][bytes of its row of chunks], in units of 8 bytes. Boxes of
// `box_blocks` blocks x `box_columns` columns.
CUtensorMap weight_map(WeightFormat format, const Tiles& tiles, int matrix, int matrices,
                       int box_blocks, int box_columns);

// Activations at wide_at() or fp8_at() as [stage][8 tokens][1024 bytes]: a stage is 64 columns of
// bf16 or 128 of E4M3. Boxes of `box_groups` times 8 tokens.
CUtensorMap token_map(const void* x, int padded, int stages, int box_groups);

// f32 rows [token][stride]. Boxes of 32 columns x `box_tokens` tokens, which lie in shared memory
// with the 128-byte swizzle: 16-byte piece i of a token is at i ^ (token % 8). The stride must be a
// multiple of 4.
CUtensorMap row_map(float* rows, int columns, int stride, int tokens, int box_tokens);

}  // namespace ridge::cuda
