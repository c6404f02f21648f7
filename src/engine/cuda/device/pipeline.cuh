// Position in a multi-stage pipeline through shared memory (CUTLASS: PipelineState). Each stage has
// two mbarriers: `full`, which the producer's copies complete, and `empty`, at which consumers
// arrive when they have read the stage. In lap n over the stages the phase is n % 2.
//   consumer: mbarrier_wait(&full[stage], phase),      read,  mbarrier_arrive(&empty[stage])
//   producer: mbarrier_wait(&empty[stage], phase ^ 1), mbarrier_arrive_expect_tx(&full[stage]),
//   copy
// The producer's first lap does not block: a fresh mbarrier counts as past phase 1.
#pragma once

#include <cstdint>

#include "base/ptx/async_copy.cuh"
#include "base/ptx/hopper.cuh"
#include "base/ptx/mbarrier.cuh"

namespace ridge::cuda {

struct PipelineState {
  int stage = 0;
  uint32_t phase = 0;
  __device__ void advance(int stages) {
    if (++stage == stages) stage = 0, phase ^= 1;
  }
  // `count` stages further; at most `stages`.
  __device__ PipelineState ahead(int count, int stages) const {
    const int to = stage + count;
    return to < stages ? PipelineState{to, phase} : PipelineState{to - stages, phase ^ 1};
  }
};

}  // namespace ridge::cuda
