// Packs weights into tiles on the device, once at load, and unpacks them for checks.
#pragma once

#include <cuda_runtime.h>

#include "engine/cuda/layout/tiles.cuh"

namespace ridge::cuda {

// Quantizes `rows` x `columns` of row-major bf16 into 16-row blocks of `chunks` chunks each. With
// `second`, a block has 8 rows of `first`, then the same 8 rows of `second` (`rows` of each).
// Missing rows and columns of the last block and chunk are zeros. `to` and `row_scale` (fp8, int8:
// [blocks * 16], written) point to the first block.
void pack(cudaStream_t stream, WeightFormat format, const uint16_t* first, const uint16_t* second,
          int rows, int columns, uint8_t* to, float* row_scale, int chunks);
// Dequantizes to [blocks * 16][chunks * columns] floats.
void unpack(cudaStream_t stream, WeightFormat format, const uint8_t* from, const float* row_scale,
            int blocks, int chunks, float* to);
// Normally distributed numbers of this standard deviation, equal for equal seeds.
void fill_normal(cudaStream_t stream, uint16_t* to, size_t count, uint64_t seed, float deviation);
void fill_normal(cudaStream_t stream, float* to, size_t count, uint64_t seed, float deviation,
                 float mean);
// Contiguous pages of the KV cache (tiles.cuh), normally distributed with deviation 1.
void fill_pages(cudaStream_t stream, KvFormat format, int head_dim, uint8_t* to, size_t pages,
                uint64_t seed);

}  // namespace ridge::cuda
