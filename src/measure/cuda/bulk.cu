#include "measure/cuda/bulk.cuh"
#include "measure/cuda/run.cuh"

namespace ridge {
namespace {

[[maybe_unused]] constexpr int kMaxStages = 6;
constexpr int kReaders = 256;                // threads that sum
constexpr int kReadThreads = kReaders + 32;  // and a warp that fetches
constexpr size_t kRingBytes = size_t{192} << 10;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define RIDGE_BULK 1
#endif

#ifdef RIDGE_BULK
__device__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ void init(uint64_t* barrier, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count));
}

__device__ void arrive(uint64_t* barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}

__device__ void arrive_expecting(uint64_t* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}

__device__ void wait(uint64_t* barrier, int phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(phase)
      : "memory");
}

__device__ void fetch(void* to, const void* from, int bytes, uint64_t* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}
#endif

__global__ void __launch_bounds__(kReadThreads, 1)
    bulk_read(const char* data, size_t chunks, int stages, int chunk, uint32_t* checksum) {
#ifdef RIDGE_BULK
  extern __shared__ __align__(128) char ring[];
  __shared__ uint64_t filled[kMaxStages], emptied[kMaxStages];
  if (threadIdx.x == 0) {
    for (int s = 0; s < stages; ++s) {
      init(&filled[s], 1);
      init(&emptied[s], kReaders / 32);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x >= kReaders) {
    if (threadIdx.x == kReaders) {
      int stage = 0, lap = 0;
      for (size_t i = blockIdx.x; i < chunks; i += gridDim.x) {
        if (lap > 0) wait(&emptied[stage], (lap - 1) & 1);
        arrive_expecting(&filled[stage], chunk);
        fetch(ring + size_t(stage) * chunk, data + i * chunk, chunk, &filled[stage]);
        if (++stage == stages) stage = 0, ++lap;
      }
    }
    return;
  }
  uint32_t sum = 0;
  int stage = 0, lap = 0;
  for (size_t i = blockIdx.x; i < chunks; i += gridDim.x) {
    wait(&filled[stage], lap & 1);
    const uint4* words = reinterpret_cast<const uint4*>(ring + size_t(stage) * chunk);
#pragma unroll 8
    for (int at = threadIdx.x; at < chunk / 16; at += kReaders) {
      const uint4 v = words[at];
      sum += v.x + v.y + v.z + v.w;
    }
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(&emptied[stage]);
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
