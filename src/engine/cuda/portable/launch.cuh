// Launches of the portable kernels.
#pragma once

#include "engine/cuda/device/device.cuh"

namespace ridge::cuda {

// The kernel starts when the previous one of the stream has ended. Programmatic dependent launch
// (launch_dependent) needs griddepcontrol in the kernel, which code of sm_80 does not have: forced
// on Hopper, such a kernel would read what the previous one has not written yet.
template <typename... Parameters, typename... Arguments>
void launch_in_order(void (*kernel)(Parameters...), dim3 grid, int threads, size_t shared_bytes,
                     cudaStream_t stream, const Arguments&... arguments) {
  kernel<<<grid, threads, shared_bytes, stream>>>(Parameters(arguments)...);
  check(cudaGetLastError(), "launching");
}

}  // namespace ridge::cuda
