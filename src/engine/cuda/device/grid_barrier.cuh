// A barrier of all blocks of a cooperative launch: a counter in global memory that only grows. One
// thread of each block arrives; a barrier is complete when the counter has grown by the number of
// blocks. Arriving and waiting are separate, so that a block works between them.
#pragma once

#include "base/ptx/memory_order.cuh"

namespace ridge::cuda {

// Publishes what this block has written.
__device__ inline void grid_barrier_arrive(unsigned* counter) {
  ptx::red_release_increment(counter);
}

// Spins until the counter has reached `target`, modulo 2^32. The load is relaxed: an acquire would
// invalidate L1 in every iteration, and spilled registers would come back from L2. So what other
// blocks wrote must be read past L1 (__ldcg, cp.async.cg, bulk copies).
__device__ inline void grid_barrier_wait(const unsigned* counter, unsigned target) {
  unsigned seen;
  do {
    seen = ptx::ld_relaxed(counter);
  } while (static_cast<int>(seen - target) < 0);
}

}  // namespace ridge::cuda
