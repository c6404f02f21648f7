#include "base/error.h"
#include "lab/cuda/kernels.cuh"
#include "lab/cuda/reads.h"

namespace ridge {
namespace {

__device__ uint32_t sum_of(const uint4& v) { return v.x + v.y + v.z + v.w; }

// Step s of block b reads the vectors [(s gridDim + b) kLoads blockDim, ...) after `start`. The
// next address waits for this step's loads through `zero`, which the compiler cannot know.
template <int kLoads>
__global__ void __launch_bounds__(1024, 2) read_steps(const uint4* __restrict__ data, size_t start,
                                                      int steps, uint32_t zero, uint32_t* total) {
  const uint4* at = data + start + size_t{blockIdx.x} * kLoads * blockDim.x + threadIdx.x;
  const size_t stride = size_t{gridDim.x} * kLoads * blockDim.x;
  uint32_t sum = 0;
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    uint4 v[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) v[i] = __ldcg(at + i * blockDim.x);
    __syncwarp();  // no addition before the last load is issued
#pragma unroll
    for (int i = 0; i < kLoads; ++i) sum += sum_of(v[i]);
    at += stride + (sum & zero);
  }
  add_to_total(sum, total);
}

__global__ void sum_vectors(const uint4* data, size_t count, uint32_t* total) {
  uint32_t sum = 0;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    sum += sum_of(data[i]);
  }
  add_to_total(sum, total);
}

// ---- patterns

constexpr int kPatternThreads = 512, kPatternLoads = 8, kLineWords = 32;

// An odd factor permutes the numbers below a power of two.
__device__ size_t scattered(size_t i, size_t mask) { return i * 0x9e3779b97f4a7c15ull & mask; }

// The word of load i.
template <ReadPattern::Kind kKind>
__device__ size_t word_of(size_t i, size_t stride, size_t words) {
  if constexpr (kKind == ReadPattern::strided) return i * stride;
  if constexpr (kKind == ReadPattern::words) return scattered(i, words - 1);
  if constexpr (kKind == ReadPattern::lines) {
    const size_t line = (i / kLineWords) * 2654435761ull & (words / kLineWords - 1);
    return line * kLineWords + i % kLineWords;
  }
}

template <ReadPattern::Kind kKind>
__global__ void __launch_bounds__(kPatternThreads, 4)
    read_words(const uint32_t* __restrict__ data, size_t words, size_t stride, size_t tiles,
               uint32_t* total) {
  uint32_t sum = 0;
#pragma unroll 1
  for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const size_t first = tile * (kPatternThreads * kPatternLoads) + threadIdx.x;
    uint32_t v[kPatternLoads];
#pragma unroll
    for (int i = 0; i < kPatternLoads; ++i) {
      v[i] = __ldcg(data + word_of<kKind>(first + size_t(i) * kPatternThreads, stride, words));
    }
    __syncwarp();  // as above
#pragma unroll
    for (int i = 0; i < kPatternLoads; ++i) sum += v[i];
  }
  add_to_total(sum, total);
}

template <ReadPattern::Kind kKind>
__global__ void sum_words(const uint32_t* data, size_t words, size_t stride, size_t count,
                          uint32_t* total) {
  uint32_t sum = 0;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    sum += data[word_of<kKind>(i, stride, words)];
  }
  add_to_total(sum, total);
}

}  // namespace

struct LabReads::Data {
  Data(LabGpu& gpu, size_t words) : set(words), total(gpu) {}
  DeviceArray<uint32_t> set;
  GridTotal<uint32_t> total;
};

LabReads::LabReads(LabGpu& gpu, int bits)
    : gpu_(gpu), words_(size_t{1} << bits), data_(std::make_unique<Data>(gpu, words_)) {
  fill_words(gpu, data_->set.data(), words_, ~0u, 0);
  gpu.wait();
}

LabReads::~LabReads() = default;

size_t LabReads::vectors_of(const InFlight& shape, int steps) const {
  return size_t(gpu_.sms()) * size_t(shape.bytes() / 16) * size_t(steps);
}

int LabReads::most_steps(const InFlight& shape) const {
  return int(words_ / 4 / vectors_of(shape, 1));
}

// The first vector of the next launch: never one that the last launches left in the L2.
size_t LabReads::place(const InFlight& shape, int steps) {
  const size_t count = vectors_of(shape, steps);
  if (count > words_ / 4) throw Error("more steps than the set holds");
  if (next_ + count > words_ / 4) next_ = 0;
  const size_t start = next_;
  next_ += count;
  return start;
}

void LabReads::read_in_flight(const InFlight& shape, int steps) {
  const auto kernel = shape.loads == 1   ? read_steps<1>
                      : shape.loads == 2 ? read_steps<2>
                                         : read_steps<4>;
  const int blocks = shape.warps > 32 ? 2 : 1;  // of a SM
  kernel<<<gpu_.sms() * blocks, shape.warps / blocks * 32, 0, gpu_.run().stream>>>(
      reinterpret_cast<const uint4*>(data_->set.data()), place(shape, steps), steps, 0,
      data_->total.data());
}

bool LabReads::in_flight_is_right(const InFlight& shape, int steps) {
  next_ = 0;
  data_->total.clear();
  read_in_flight(shape, steps);
  const uint32_t found = data_->total.read();
  data_->total.clear();
  sum_vectors<<<gpu_.sms() * 8, 256, 0, gpu_.run().stream>>>(
      reinterpret_cast<const uint4*>(data_->set.data()), vectors_of(shape, steps),
      data_->total.data());
  return data_->total.read() == found;
}

double LabReads::useful_bytes(const ReadPattern& pattern) const {
  const double bytes = 4.0 * double(words_);
  if (pattern.kind == ReadPattern::lines) return bytes;
  return bytes / (pattern.kind == ReadPattern::strided ? pattern.stride : kLineWords);
}

void LabReads::read_pattern(const ReadPattern& pattern) {
  const size_t tiles = size_t(useful_bytes(pattern) / 4) / (kPatternThreads * kPatternLoads);
  const auto kernel = pattern.kind == ReadPattern::strided ? read_words<ReadPattern::strided>
                      : pattern.kind == ReadPattern::words ? read_words<ReadPattern::words>
                                                           : read_words<ReadPattern::lines>;
  kernel<<<gpu_.sms() * 4, kPatternThreads, 0, gpu_.run().stream>>>(
      data_->set.data(), words_, size_t(pattern.stride), tiles, data_->total.data());
}

bool LabReads::pattern_is_right(const ReadPattern& pattern) {
  data_->total.clear();
  read_pattern(pattern);
  const uint32_t found = data_->total.read();
  data_->total.clear();
  const auto kernel = pattern.kind == ReadPattern::strided ? sum_words<ReadPattern::strided>
                      : pattern.kind == ReadPattern::words ? sum_words<ReadPattern::words>
                                                           : sum_words<ReadPattern::lines>;
  kernel<<<gpu_.sms() * 8, 256, 0, gpu_.run().stream>>>(
      data_->set.data(), words_, size_t(pattern.stride), size_t(useful_bytes(pattern) / 4),
      data_->total.data());
  return data_->total.read() == found;
}

}  // namespace ridge
