#include "base/error.h"
#include "lab/cuda/elementwise.h"
#include "lab/cuda/kernels.cuh"

namespace ridge {
namespace {

// Launches as large as the array, two vectors a thread: what copies fastest
// (measure/cuda/memory.cu).
constexpr int kPassThreads = 128, kPassVectors = 2;
constexpr size_t kPassFloats = size_t{4} * kPassThreads * kPassVectors;  // of a block: 1024
constexpr int kSumThreads = 512, kSumVectors = 4;

__device__ float4 chained(float4 v, int times, float half) {
#pragma unroll 4
  for (int k = 0; k < times; ++k) {
    v.x = fmaf(v.x, half, 1.0f);
    v.y = fmaf(v.y, half, 1.0f);
    v.z = fmaf(v.z, half, 1.0f);
    v.w = fmaf(v.w, half, 1.0f);
  }
  return v;
}

__global__ void __launch_bounds__(kPassThreads)
    chain_pass(float4* to, const float4* from, int times, float half) {
  const size_t at = size_t{blockIdx.x} * (kPassThreads * kPassVectors) + threadIdx.x;
  const float4 first = from[at], second = from[at + kPassThreads];
  to[at] = chained(first, times, half);
  to[at + kPassThreads] = chained(second, times, half);
}

__global__ void __launch_bounds__(kPassThreads)
    add_pass(float4* to, const float4* a, const float4* b) {
  const size_t at = size_t{blockIdx.x} * (kPassThreads * kPassVectors) + threadIdx.x;
  const float4 x = a[at], y = b[at], z = a[at + kPassThreads], w = b[at + kPassThreads];
  to[at] = float4{x.x + y.x, x.y + y.y, x.z + y.z, x.w + y.w};
  to[at + kPassThreads] = float4{z.x + w.x, z.y + w.y, z.z + w.z, z.w + w.w};
}

__device__ uint32_t bits_of(const float4& v) {
  return __float_as_uint(v.x) + __float_as_uint(v.y) + __float_as_uint(v.z) + __float_as_uint(v.w);
}

__global__ void __launch_bounds__(kSumThreads, 3)
    sum_pass(const float4* __restrict__ from, size_t vectors, int times, float half,
             uint32_t* total) {
  uint32_t sum = 0;
  const size_t step = size_t{gridDim.x} * kSumThreads * kSumVectors;
#pragma unroll 1
  for (size_t at = size_t{blockIdx.x} * kSumThreads * kSumVectors + threadIdx.x; at < vectors;
       at += step) {
    float4 v[kSumVectors];
#pragma unroll
    for (int i = 0; i < kSumVectors; ++i) {
      const size_t place = at + size_t(i) * kSumThreads;
      v[i] = place < vectors ? __ldcs(from + place) : float4{0, 0, 0, 0};
    }
#pragma unroll
    for (int i = 0; i < kSumVectors; ++i) {
      if (at + size_t(i) * kSumThreads < vectors) sum += bits_of(chained(v[i], times, half));
    }
  }
  add_to_total(sum, total);
}

}  // namespace

struct LabFloats::Data {
  Data(LabGpu& gpu, size_t floats) : all(floats), total(gpu) {}
  DeviceArray<float> all;
  GridTotal<uint32_t> total;
};

LabFloats::LabFloats(LabGpu& gpu, size_t count, int arrays)
    : gpu_(gpu),
      count_(count),
      arrays_(arrays),
      data_(std::make_unique<Data>(gpu, count * size_t(arrays))) {
  if (count % kPassFloats != 0) throw Error("{} floats are not whole blocks", count);
  fill();
  data_->total.clear();
  gpu.wait();
}

LabFloats::~LabFloats() = default;

double LabFloats::bytes() const { return 4.0 * double(count_) * arrays_; }

float* LabFloats::array(int index) const { return data_->all.data() + size_t(index) * count_; }

void LabFloats::fill() {
  fill_words(gpu_, reinterpret_cast<uint32_t*>(data_->all.data()), data_->all.size(), kFloatBits,
             kFloatOne);
}

void LabFloats::chain(int to, int from, int times) {
  chain_pass<<<unsigned(count_ / kPassFloats), kPassThreads, 0, gpu_.run().stream>>>(
      reinterpret_cast<float4*>(array(to)), reinterpret_cast<const float4*>(array(from)), times,
      0.5f);
}

void LabFloats::chain_sum(int from, int times) {
  sum_pass<<<gpu_.sms() * 3, kSumThreads, 0, gpu_.run().stream>>>(
      reinterpret_cast<const float4*>(array(from)), count_ / 4, times, 0.5f, data_->total.data());
}

void LabFloats::add(int to, int a, int b) {
  add_pass<<<unsigned(count_ / kPassFloats), kPassThreads, 0, gpu_.run().stream>>>(
      reinterpret_cast<float4*>(array(to)), reinterpret_cast<const float4*>(array(a)),
      reinterpret_cast<const float4*>(array(b)));
}

void LabFloats::clear_sum() { data_->total.clear(); }
uint32_t LabFloats::sum() { return data_->total.read(); }

uint32_t LabFloats::sum_of(int index) {
  clear_sum();
  chain_sum(index, 0);
  return sum();
}

float LabFloats::element(int index, size_t at) {
  gpu_.wait();
  float value = 0;
  check(cudaMemcpy(&value, array(index) + at, sizeof value, cudaMemcpyDeviceToHost), "copying");
  return value;
}

}  // namespace ridge
