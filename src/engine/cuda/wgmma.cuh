// Hopper's warpgroup MMA on bf16: D[64 x N] += A[64 x 16] B[16 x N], f32 sums. B lies in shared
// memory as core matrices of 8 x 8 without a swizzle (wide_at, the cache's pages); A in registers
// (each of the four warps has 16 rows, as mma.m16n8k16 has them) or in shared memory like B.
// D of warp w: row 16 w + g (+ 8), columns 8 j + 2 t (+ 1) at d[4 j + {0, 1}] (and {2, 3}).
#pragma once

#include "engine/cuda/ring.cuh"

#ifdef RIDGE_HOPPER
namespace ridge::cuda {

// `along_k`, `across`: bytes from one core matrix to the next in k, and in rows of B (or A).
__device__ inline uint64_t core_matrices(const void* at, int along_k, int across) {
  return uint64_t(shared_address(at) >> 4 & 0x3fff) | uint64_t(along_k >> 4) << 16 |
         uint64_t(across >> 4) << 32;
}
// The same, further on by so many bytes.
__device__ inline uint64_t further(uint64_t descriptor, int bytes) {
  return descriptor + uint64_t(bytes >> 4);
}

// Before the first of a group, and after registers that it uses were written.
__device__ inline void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ inline void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
// Until at most kLeft groups are under way.
template <int kLeft>
__device__ inline void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kLeft) : "memory");
}

}  // namespace ridge::cuda
#endif
