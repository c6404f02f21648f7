#include "lab/cuda/gpu_load.h"
#include "lab/cuda/kernels.cuh"

namespace ridge {
namespace {

constexpr int kStreamThreads = 512, kStreamLoads = 4;
constexpr size_t kStreamTile = size_t{kStreamThreads} * kStreamLoads;  // vectors

__global__ void wait_for_host(const volatile int* end, unsigned long long most_ns) {
  unsigned long long start, now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(start));
  do {
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  } while (*end == 0 && now - start < most_ns);
}

__global__ void __launch_bounds__(kStreamThreads)
    stream_tiles(const uint4* __restrict__ data, size_t tiles, uint32_t* total) {
  uint32_t sum = 0;
  for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const uint4* at = data + tile * kStreamTile + threadIdx.x;
    uint4 v[kStreamLoads];
#pragma unroll
    for (int i = 0; i < kStreamLoads; ++i) v[i] = __ldcs(at + i * kStreamThreads);
#pragma unroll
    for (int i = 0; i < kStreamLoads; ++i) sum += v[i].x + v[i].y + v[i].z + v[i].w;
  }
  add_to_total(sum, total);
}

// Host memory that the GPU sees.
class HostFlag {
 public:
  HostFlag() {
    void* host = nullptr;
    check(cudaHostAlloc(&host, sizeof(int), cudaHostAllocMapped), "allocating a flag");
    flag_ = static_cast<volatile int*>(host);
    *flag_ = 0;
  }
  ~HostFlag() { cudaFreeHost(const_cast<int*>(flag_)); }
  HostFlag(const HostFlag&) = delete;
  HostFlag& operator=(const HostFlag&) = delete;
  volatile int* get() const { return flag_; }

 private:
  volatile int* flag_ = nullptr;
};

}  // namespace

struct GpuLoad::Data {
  Data(LabGpu& gpu, size_t vectors) : set(vectors), total(gpu) {}
  DeviceArray<uint4> set;
  GridTotal<uint32_t> total;
  HostFlag end;
};

GpuLoad::GpuLoad(LabGpu& gpu, double bytes)
    : gpu_(gpu),
      data_(std::make_unique<Data>(gpu, size_t(bytes / 16) / kStreamTile * kStreamTile)) {
  fill_words(gpu, reinterpret_cast<uint32_t*>(data_->set.data()), data_->set.size() * 4, ~0u, 0);
  gpu.wait();
}

GpuLoad::~GpuLoad() {
  *data_->end.get() = 1;
  cudaStreamSynchronize(gpu_.run().stream);
}

void GpuLoad::start_waiting(double most_s) {
  *data_->end.get() = 0;
  wait_for_host<<<1, 1, 0, gpu_.run().stream>>>(data_->end.get(),
                                                static_cast<unsigned long long>(most_s * 1e9));
  check(cudaGetLastError(), "launching");
}

void GpuLoad::stop() {
  *data_->end.get() = 1;
  gpu_.wait();
}

void GpuLoad::stream_once() {
  stream_tiles<<<gpu_.sms() * 4, kStreamThreads, 0, gpu_.run().stream>>>(
      data_->set.data(), data_->set.size() / kStreamTile, data_->total.data());
  gpu_.wait();
}

double GpuLoad::bytes() const { return 16.0 * double(data_->set.size()); }

}  // namespace ridge
