// What the current device has for a kernel's launch.
#pragma once

namespace ridge::cuda {

struct DeviceLimits {
  int shared_bytes;  // of a block, at most
  double l2_bytes;
  double bytes_per_clock;  // of device memory, in clocks of the SMs
};
// Of the current device, queried once. RIDGE_CUDA_SHARED_KB in the environment lowers shared_bytes,
// for tests of what cards with less of it run.
const DeviceLimits& device_limits();

}  // namespace ridge::cuda
