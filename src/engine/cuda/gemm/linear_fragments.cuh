// A operands of wgmma from weight tiles in shared memory.
#pragma once

#include "engine/cuda/layout/dequantize.cuh"

namespace ridge::cuda {

// A warp's 16 rows x 64 columns as they lie in a tile.
template <WeightFormat kFormat>
struct PackedStep {
  static constexpr FormatInfo kInfo = format_info(kFormat);
  static constexpr int kChunks = 64 / kInfo.columns;
  uint4 words[kChunks];
  __half2 scale[kChunks];

  __device__ void load(const uint8_t* block, int lane) {
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      const uint8_t* chunk = block + c * kInfo.chunk_bytes;
      words[c] = reinterpret_cast<const uint4*>(chunk)[lane];
      if (kInfo.chunk_bytes > 512) {
        scale[c] = *reinterpret_cast<const __half2*>(chunk + 512 + lane / 4 * 4);
      }
    }
  }

  // As A fragments.
  __device__ void dequantize(uint32_t (&a)[4][4]) const {
    constexpr int kSteps = kInfo.columns / 16;
#pragma unroll
    for (int c = 0; c < kChunks; ++c) {
      uint32_t unpacked[kSteps][4];
      dequantize_chunk<kFormat>(words[c], scale[c], unpacked);
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {
#pragma unroll
        for (int r = 0; r < 4; ++r) a[c * kSteps + k][r] = unpacked[k][r];
      }
    }
  }
};

template <WeightFormat kFormat>
__device__ inline void load_fragments(uint32_t (&a)[4][4], const uint8_t* block, int lane) {
  PackedStep<kFormat> packed;
  packed.load(block, lane);
  packed.dequantize(a);
}

// Raw E4M3 of a warp's 16 rows x 32 kChunks columns as A of wgmma with k of 32. A word of a tile
// has two columns of row g, then the same of row g + 8; an operand has four of one row. So the
// columns of each 16 lie in the order of fp8_column(), and the activations do too.
template <int kChunks>
__device__ inline void load_fp8_fragments(uint32_t (&a)[kChunks][4], const uint8_t* block,
                                          int lane) {
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const uint4 w = reinterpret_cast<const uint4*>(block + c * 512)[lane];
    a[c][0] = __byte_perm(w.x, w.y, 0x5410), a[c][1] = __byte_perm(w.x, w.y, 0x7632);
    a[c][2] = __byte_perm(w.z, w.w, 0x5410), a[c][3] = __byte_perm(w.z, w.w, 0x7632);
  }
}

}  // namespace ridge::cuda
