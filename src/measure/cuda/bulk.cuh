// Kernels that move memory with Hopper's bulk-copy engine (the TMA without a tensor map).
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace ridge {

// Whether this build has these kernels for the current device.
bool bulk_available();

// One block per SM keeps `stages` copies of `chunk` bytes from device to shared memory in flight
// and adds all words to *checksum. `bytes` is a multiple of 32 KB; at most 8 stages, and stages x
// chunk is at most 192 KB.
void launch_bulk_read(cudaStream_t stream, int sms, const void* data, size_t bytes, int stages,
                      int chunk, uint32_t* checksum);

}  // namespace ridge
