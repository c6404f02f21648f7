// Thread block clusters: barrier, arrival at another block's mbarrier, and copies into several
// blocks. Only in RIDGE_HOPPER code.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "base/ptx/mbarrier.cuh"

namespace ridge::ptx {

// The index of the calling block in its cluster.
__device__ inline int cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Barrier of all threads of a cluster.
__device__ inline void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.aligned;\n"
      "barrier.cluster.wait.aligned;" ::
          : "memory");
}

// Arrives at the barrier at the same place in block `rank` of the cluster. (With
// .release.cluster this took so long that a GEMM lost a quarter of its rate.)
__device__ inline void mbarrier_arrive_at(uint64_t* barrier, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}

// Copies the box of tensor map `map` whose corner is (x, y, z) to the same place in every block of
// the cluster whose bit in `blocks` is set. The bytes are counted on the barrier at the same place
// in each of these blocks.
__device__ inline void cp_async_bulk_tensor_3d_multicast(void* to, const void* map, int x, int y,
                                                         int z, uint64_t* barrier,
                                                         uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%2, %3, %4}], [%5], %6;" ::"r"(shared_address(to)),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(shared_address(barrier)), "h"(blocks)
      : "memory");
}

}  // namespace ridge::ptx
