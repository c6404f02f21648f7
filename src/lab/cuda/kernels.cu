#include "lab/cuda/kernels.cuh"

namespace ridge {
namespace {

__global__ void fill_words_kernel(uint32_t* words, size_t count, uint32_t keep, uint32_t set) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + static_cast<uint32_t>(i >> 32) + 12345u;
    x ^= x >> 16, x *= 0x7feb352du;
    x ^= x >> 15, x *= 0x846ca68bu;
    x ^= x >> 16;
    words[i] = (x & keep) | set;
  }
}

}  // namespace

void fill_words(LabGpu& gpu, uint32_t* words, size_t count, uint32_t keep, uint32_t set) {
  fill_words_kernel<<<gpu.sms() * 8, 256, 0, gpu.run().stream>>>(words, count, keep, set);
  check(cudaGetLastError(), "filling device memory");
}

}  // namespace ridge
