#include <algorithm>

#include "engine/cuda/step/page_copy.cuh"

namespace ridge::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kMaxCopies = 64;  // of one launch: they travel as its argument

struct CopyList {
  KernelPageCopy copies[kMaxCopies];
};

// One block per copy and layer. `page`: 16-byte words of one page, all KV heads.
__global__ void __launch_bounds__(kThreads)
    copy_kernel(uint4* kv, size_t layer, int page, const __grid_constant__ CopyList list) {
  const KernelPageCopy copy = list.copies[blockIdx.x];
  uint4* of_layer = kv + blockIdx.y * layer;
  const uint4* from = of_layer + size_t(copy.from) * page;
  uint4* to = of_layer + size_t(copy.to) * page;
  for (int i = threadIdx.x; i < page; i += kThreads) to[i] = from[i];
}

}  // namespace

void copy_pages(cudaStream_t stream, const DeviceWeights& weights, const KernelPageCopy* copies,
                int count) {
  const int page = weights.shape.kv_heads * weights.kv_page_bytes() / int(sizeof(uint4));
  const size_t layer = size_t(weights.cache_pages) * page;
  for (int first = 0; first < count; first += kMaxCopies) {
    CopyList list = {};
    const int part = std::min(count - first, kMaxCopies);
    std::copy_n(copies + first, part, list.copies);
    copy_kernel<<<dim3(part, weights.shape.layers), kThreads, 0, stream>>>(
        reinterpret_cast<uint4*>(weights.kv.data()), layer, page, list);
    check(cudaGetLastError(), "copying pages");
  }
}

}  // namespace ridge::cuda
