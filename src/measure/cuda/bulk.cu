#include "base/ptx/async_copy.cuh"
#include "base/ptx/mbarrier.cuh"
#include "measure/cuda/bulk.cuh"
#include "measure/cuda/run.cuh"

namespace ridge {
namespace {

[[maybe_unused]] constexpr int kMaxStages = 8;
constexpr int kConsumers = 256;                // threads that add up the words
constexpr int kReadThreads = kConsumers + 32;  // and the producer warp
constexpr size_t kRingBytes = size_t{192} << 10;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define RIDGE_BULK 1
#endif

__global__ void __launch_bounds__(kReadThreads, 1)
    bulk_read(const char* data, size_t chunks, int stages, int chunk, uint32_t* checksum) {
#ifdef RIDGE_BULK
  extern __shared__ __align__(128) char ring[];
  __shared__ uint64_t full[kMaxStages], empty[kMaxStages];
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      ptx::mbarrier_init(&full[s], 1);
      ptx::mbarrier_init(&empty[s], kConsumers / 32);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) {
      int stage = 0, lap = 0;
      for (size_t i = blockIdx.x; i < chunks; i += gridDim.x) {
        if (lap > 0) ptx::mbarrier_wait(&empty[stage], (lap - 1) & 1);
        ptx::mbarrier_arrive_expect_tx(&full[stage], chunk);
        ptx::cp_async_bulk(ring + size_t(stage) * chunk, data + i * chunk, chunk, &full[stage]);
        if (++stage == stages) stage = 0, ++lap;
      }
    }
    return;
  }
  uint32_t sum = 0;
  int stage = 0, lap = 0;
  for (size_t i = blockIdx.x; i < chunks; i += gridDim.x) {
    ptx::mbarrier_wait(&full[stage], lap & 1);
    const uint4* words = reinterpret_cast<const uint4*>(ring + size_t(stage) * chunk);
#pragma unroll 8
    for (int at = threadIdx.x; at < chunk / 16; at += kConsumers) {
      const uint4 v = words[at];
      sum += v.x + v.y + v.z + v.w;
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(&empty[stage]);
    if (++stage == stages) stage = 0, ++lap;
  }
  sum = __reduce_add_sync(0xffffffffu, sum);
  if (threadIdx.x % 32 == 0) atomicAdd(checksum, sum);
#endif
}

__global__ void is_available(int* answer) {
#ifdef RIDGE_BULK
  *answer = 1;
#else
  *answer = 0;
#endif
}

void allow_ring(const void* kernel) {
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kRingBytes),
        "asking for shared memory");
}

}  // namespace

bool bulk_available() {
  DeviceArray<int> answer(1);
  answer.fill_bytes(0);
  is_available<<<1, 1>>>(answer.data());
  return cudaDeviceSynchronize() == cudaSuccess && answer.host()[0] == 1;
}

void launch_bulk_read(cudaStream_t stream, int sms, const void* data, size_t bytes, int stages,
                      int chunk, uint32_t* checksum) {
  allow_ring(reinterpret_cast<const void*>(bulk_read));
  bulk_read<<<sms, kReadThreads, kRingBytes, stream>>>(static_cast<const char*>(data),
                                                       bytes / chunk, stages, chunk, checksum);
}

}  // namespace ridge
