// Weights into tiles, on the device, once at load; and back, for checks.
#pragma once

#include <cuda_runtime.h>

#include "engine/cuda/layout/tiles.cuh"

namespace ridge::cuda {

// `rows` x `columns` of bf16, row after row, into blocks of a matrix whose blocks have `chunks`.
// With `second`, blocks take 8 rows of `first`, then the same 8 of `second` (`rows` of each).
// Rows and columns that fill no block or chunk are padded with zeros. `row_scale` (fp8, int8):
// [blocks
// * 16], written. `to`, `row_scale`: of the first block.
void pack(cudaStream_t stream, WeightFormat format, const uint16_t* first, const uint16_t* second,
          int rows, int columns, uint8_t* to, float* row_scale, int chunks);
// Blocks of 16 rows as floats, [blocks * 16][chunks * columns].
void unpack(cudaStream_t stream, WeightFormat format, const uint8_t* from, const float* row_scale,
            int blocks, int chunks, float* to);
// Normal numbers of this standard deviation around `mean`, the same for equal seeds.
void fill_normal(cudaStream_t stream, uint16_t* to, size_t count, uint64_t seed, float deviation);
void fill_normal(cudaStream_t stream, float* to, size_t count, uint64_t seed, float deviation,
                 float mean);
// Pages of the KV cache (tiles.cuh), one after the other, with normal numbers of deviation 1.
void fill_pages(cudaStream_t stream, KvFormat format, int head_dim, uint8_t* to, size_t pages,
                uint64_t seed);

}  // namespace ridge::cuda
