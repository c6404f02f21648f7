#include <algorithm>
#include <cstdlib>

#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/device_limits.h"

namespace ridge::cuda {
namespace {

int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  check(cudaGetDevice(&device), "finding a device");
  check(cudaDeviceGetAttribute(&value, which, device), "asking for the device");
  return value;
}

}  // namespace

const DeviceLimits& device_limits() {
  static const DeviceLimits device = [] {
    int shared_bytes = attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin);
    if (const char* kb = std::getenv("RIDGE_CUDA_SHARED_KB")) {
      shared_bytes = std::min(shared_bytes, std::atoi(kb) * 1024);
    }
    // Two transfers per clock of the memory. 0: the driver does not say.
    const double transfers = 2.0 * attribute(cudaDevAttrMemoryClockRate);
    const double bytes_per_clock = transfers * attribute(cudaDevAttrGlobalMemoryBusWidth) / 8 /
                                   attribute(cudaDevAttrClockRate);
    return DeviceLimits{shared_bytes, double(attribute(cudaDevAttrL2CacheSize)),
                        bytes_per_clock > 0 ? bytes_per_clock : 100};
  }();
  return device;
}

}  // namespace ridge::cuda
