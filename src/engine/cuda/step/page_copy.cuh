// Copies of KV pages within the cache: a forked sequence gets its own copy of a partial page.
#pragma once

#include <cuda_runtime.h>

#include "engine/cuda/layout/device_weights.cuh"
#include "engine/cuda/step/step_slice.h"

namespace ridge::cuda {

// Whole pages are copied: what lies behind the written tokens of the target is not read. The copies
// run side by side, so no page may be both a source and a target.
void copy_pages(cudaStream_t stream, const DeviceWeights& weights, const KernelPageCopy* copies,
                int count);

}  // namespace ridge::cuda
