// The ceilings of a device. Reads are measured as `ridge measure` does: on every SM one producer
// thread keeps a ring of 6 x 32 KB full by bulk copies, and 8 warps sum what arrives. The portable
// kernels are held against plain loads and mma.sync.
#pragma once

#include <algorithm>
#include <vector>

#include "base/ptx/mma.cuh"
#include "engine/cuda/device/device.cuh"
#include "engine/cuda/device/pipeline.cuh"
#include "engine/cuda/layout/pack.cuh"

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

__global__ void __launch_bounds__(256)
    read_plain(const uint4* data, size_t count, uint32_t* checksum) {
  uint32_t sum = 0;
  const size_t step = size_t(gridDim.x) * blockDim.x;
#pragma unroll 8
  for (size_t i = blockIdx.x * size_t(blockDim.x) + threadIdx.x; i < count; i += step) {
    const uint4 v = __ldcs(data + i);
    sum += v.x + v.y + v.z + v.w;
  }
  sum = __reduce_add_sync(0xffffffffu, sum);
  if (threadIdx.x % 32 == 0) atomicAdd(checksum, sum);
}

// Each warp has 16 independent accumulators, on operands that are no zeros.
constexpr int kMmaLoops = 4096, kMmaChains = 16;
__global__ void __launch_bounds__(256) multiply_mma(const uint4* operands, float* sums) {
  const uint4 w = operands[threadIdx.x], x = operands[256 + threadIdx.x];
  float d[kMmaChains][4] = {};
  for (int i = 0; i < kMmaLoops; ++i) {
#pragma unroll
    for (int c = 0; c < kMmaChains; ++c) ptx::mma_bf16(d[c], {w.x, w.y, w.z, w.w}, x.x, x.y);
  }
  float sum = 0;
  for (int c = 0; c < kMmaChains; ++c) sum += d[c][0] + d[c][1] + d[c][2] + d[c][3];
  sums[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// `work` over the seconds of a launch, the median of 9.
template <typename Launch>
double rate_of(double work, const Launch& launch) {
  cudaEvent_t start, stop;
  cudaEventCreate(&start), cudaEventCreate(&stop);
  std::vector<double> rates;
  for (int i = 0; i < 9; ++i) {
    cudaEventRecord(start);
    for (int repeat = 0; repeat < 3; ++repeat) launch();
    cudaEventRecord(stop);
    check(cudaDeviceSynchronize(), "measuring a ceiling");
    float ms = 0;
    cudaEventElapsedTime(&ms, start, stop);
    rates.push_back(3 * work / ms * 1e3);
  }
  cudaEventDestroy(start), cudaEventDestroy(stop);
  std::sort(rates.begin(), rates.end());
  return rates[rates.size() / 2];
}

// Bytes per second, over 8 GiB: by the ring, or by plain loads.
inline double read_ceiling(int sms, bool plain = false) {
  constexpr size_t kBytes = size_t{8} << 30;
  DeviceBuffer<uint8_t> data(kBytes);
  DeviceBuffer<uint32_t> sum(1);
  fill_normal(nullptr, reinterpret_cast<uint16_t*>(data.data()), kBytes / 2, 1, 0.02f);
  if (plain) {
    return rate_of(double(kBytes), [&] {
      read_plain<<<sms * 8, 256>>>(reinterpret_cast<const uint4*>(data.data()), kBytes / 16,
                                   sum.data());
    });
  }
  allow_shared_memory(read_ring, kReadSlots * kReadBytes);
  return rate_of(double(kBytes), [&] {
    read_ring<<<sms, (kReaders + 1) * 32, kReadSlots * kReadBytes>>>(
        data.data(), kBytes / kReadBytes, sum.data());
  });
}

// FLOP/s of mma.sync in bf16.
inline double mma_ceiling(int sms) {
  DeviceBuffer<uint4> operands(512);
  DeviceBuffer<float> sums(size_t(sms) * 2 * 256);
  fill_normal(nullptr, reinterpret_cast<uint16_t*>(operands.data()), 512 * 8, 1, 0.02f);
  const double flops = 2.0 * 16 * 8 * 16 * kMmaChains * kMmaLoops * 8 * (2.0 * sms);
  return rate_of(flops, [&] { multiply_mma<<<sms * 2, 256>>>(operands.data(), sums.data()); });
}

}  // namespace ridge::cuda
