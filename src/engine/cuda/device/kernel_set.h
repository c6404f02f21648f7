// Which kernels a model runs on: Hopper's, or those of every NVIDIA card since Ampere (portable/).
#pragma once

#include <cstdint>

namespace ridge::cuda {

enum class KernelSet : uint8_t {
  hopper,    // wgmma, bulk copies, dependent launches: compute capability 9.0 alone
  portable,  // mma.sync, cp.async: 8.0 and later
};

// Of the current device. RIDGE_CUDA_KERNELS=portable in the environment forces the portable ones on
// Hopper, for tests. Throws Error: a device before Ampere, another value.
KernelSet kernels_of_device();

}  // namespace ridge::cuda
