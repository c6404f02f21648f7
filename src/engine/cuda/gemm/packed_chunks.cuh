// The chunks of packed weights (layout/tiles.cuh) that a warp has in shared memory, for kernels
// that dequantize them for mma.m16n8k16.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace ridge::cuda {

// Calls multiply(words of this lane, chunk, its index) for the first `count` of up to kChunks
// adjacent chunks. The loads of kTogether chunks are in flight together.
template <int kChunks, int kTogether, int kChunkBytes, typename Multiply>
__device__ __forceinline__ void for_each_chunk(const uint8_t* first, int count, int lane,
                                               const Multiply& multiply) {
  const auto load = [&](const uint8_t* chunk) {
    return *reinterpret_cast<const uint4*>(chunk + lane * 16);
  };
#pragma unroll
  for (int from = 0; from < kChunks; from += kTogether) {
    const uint8_t* chunk = first + from * kChunkBytes;
    if (count >= from + kTogether) {
      uint4 words[kTogether];
#pragma unroll
      for (int j = 0; j < kTogether; ++j) words[j] = load(chunk + j * kChunkBytes);
#pragma unroll
      for (int j = 0; j < kTogether; ++j) multiply(words[j], chunk + j * kChunkBytes, from + j);
    } else {
#pragma unroll
      for (int j = 0; j < kTogether - 1; ++j) {
        if (from + j >= count) break;
        multiply(load(chunk + j * kChunkBytes), chunk + j * kChunkBytes, from + j);
      }
    }
  }
}

}  // namespace ridge::cuda
