#include "base/error.h"
#include "lab/cuda/kernels.cuh"
#include "lab/cuda/ring.h"
#include "measure/cuda/bulk.cuh"

namespace ridge {
namespace {

constexpr size_t kRingUnit = 32 << 10;  // bytes

__global__ void sum_set(const uint32_t* words, size_t count, uint32_t* total) {
  uint32_t sum = 0;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    sum += words[i];
  }
  add_to_total(sum, total);
}

}  // namespace

struct LabRing::Data {
  Data(LabGpu& gpu, size_t words) : set(words), total(gpu) {}
  DeviceArray<uint32_t> set;
  GridTotal<uint32_t> total;
  uint32_t expected = 0;
};

LabRing::LabRing(LabGpu& gpu, double bytes)
    : gpu_(gpu), data_(std::make_unique<Data>(gpu, size_t(bytes) / kRingUnit * (kRingUnit / 4))) {
  if (!gpu.run().hopper() || !bulk_available()) throw Error("this GPU has no bulk copies");
  fill_words(gpu, data_->set.data(), data_->set.size(), ~0u, 0);
  data_->total.clear();
  sum_set<<<gpu.sms() * 8, 256, 0, gpu.run().stream>>>(data_->set.data(), data_->set.size(),
                                                       data_->total.data());
  data_->expected = data_->total.read();
}

LabRing::~LabRing() = default;

double LabRing::bytes() const { return 4.0 * double(data_->set.size()); }

void LabRing::read(int stages, int chunk) {
  launch_bulk_read(gpu_.run().stream, gpu_.sms(), data_->set.data(), data_->set.size() * 4, stages,
                   chunk, data_->total.data());
}

bool LabRing::is_right(int stages, int chunk) {
  data_->total.clear();
  read(stages, chunk);
  return data_->total.read() == data_->expected;
}

}  // namespace ridge
