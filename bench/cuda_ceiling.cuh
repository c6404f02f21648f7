// The read ceiling of device memory, measured as `ridge measure` does: on every SM one producer
// thread keeps a ring of 6 x 32 KB full by bulk copies, and 8 warps sum what arrives.
#pragma once

#include <algorithm>
#include <vector>

#include "engine/cuda/device.cuh"
#include "engine/cuda/layout/pack.cuh"
#include "engine/cuda/ptx/pipeline.cuh"

namespace ridge::cuda {

constexpr int kReadSlots = 6, kReadBytes = 32768, kReaders = 8;

__global__ void __launch_bounds__((kReaders + 1) * 32, 1)
    read_ring(const uint8_t* data, size_t chunks, uint32_t* checksum) {
#ifdef RIDGE_HOPPER
  extern __shared__ __align__(128) uint8_t ring[];
  __shared__ uint64_t full[kReadSlots], empty[kReadSlots];
  if (threadIdx.x == 0) {
    for (int s = 0; s < kReadSlots; ++s)
      ptx::mbarrier_init(&full[s], 1), ptx::mbarrier_init(&empty[s], kReaders);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  PipelineState state;
  if (threadIdx.x >= kReaders * 32) {
    if (threadIdx.x > kReaders * 32) return;
    for (size_t i = blockIdx.x; i < chunks; i += gridDim.x, state.advance(kReadSlots)) {
      ptx::mbarrier_wait(&empty[state.stage], state.phase ^ 1);
      ptx::mbarrier_arrive_expect_tx(&full[state.stage], kReadBytes);
      ptx::cp_async_bulk(ring + state.stage * kReadBytes, data + i * kReadBytes, kReadBytes,
                         &full[state.stage]);
    }
    return;
  }
  uint32_t sum = 0;
  for (size_t i = blockIdx.x; i < chunks; i += gridDim.x, state.advance(kReadSlots)) {
    ptx::mbarrier_wait(&full[state.stage], state.phase);
    const uint4* words = reinterpret_cast<const uint4*>(ring + state.stage * kReadBytes);
#pragma unroll
    for (int at = 0; at < kReadBytes / 16 / (kReaders * 32); ++at) {
      const uint4 v = words[threadIdx.x + at * kReaders * 32];
      sum += v.x + v.y + v.z + v.w;
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&empty[state.stage]);
  }
  sum = __reduce_add_sync(0xffffffffu, sum);
  if (threadIdx.x % 32 == 0) atomicAdd(checksum, sum);
#endif
}

// Bytes per second, the median of 9 runs over 8 GiB.
inline double read_ceiling(int sms) {
  constexpr size_t kBytes = size_t{8} << 30;
  DeviceBuffer<uint8_t> data(kBytes);
  DeviceBuffer<uint32_t> sum(1);
  fill_normal(nullptr, reinterpret_cast<uint16_t*>(data.data()), kBytes / 2, 1, 0.02f);
  allow_shared_memory(read_ring, kReadSlots * kReadBytes);
  cudaEvent_t start, stop;
  cudaEventCreate(&start), cudaEventCreate(&stop);
  std::vector<double> rates;
  for (int i = 0; i < 9; ++i) {
    cudaEventRecord(start);
    for (int launch = 0; launch < 3; ++launch) {
      read_ring<<<sms, (kReaders + 1) * 32, kReadSlots * kReadBytes>>>(
          data.data(), kBytes / kReadBytes, sum.data());
    }
    cudaEventRecord(stop);
    check(cudaDeviceSynchronize(), "reading");
    float ms = 0;
    cudaEventElapsedTime(&ms, start, stop);
    rates.push_back(3.0 * double(kBytes) / ms * 1e3);
  }
  cudaEventDestroy(start), cudaEventDestroy(stop);
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

}  // namespace ridge::cuda
