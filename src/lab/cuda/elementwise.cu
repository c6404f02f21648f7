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

// ---- a block's operators: a row is held by the threads of one block, 16 floats each
constexpr int kRowThreads = LabFloats::kRow / 16;

__device__ float silu_of(float x) { return __fdividef(x, 1 + __expf(-x)); }

// 1 / rms of the row; the sums are added in the same order in every kernel.
__device__ float inverse_rms(const float4 (&v)[4]) {
  __shared__ float warps[kRowThreads / 32];
  float sum = 0;
  for (int i = 0; i < 4; ++i) {
    sum = fmaf(v[i].x, v[i].x, sum);
    sum = fmaf(v[i].y, v[i].y, sum);
    sum = fmaf(v[i].z, v[i].z, sum);
    sum = fmaf(v[i].w, v[i].w, sum);
  }
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sum;
  __syncthreads();
  float all = 0;
  for (int w = 0; w < kRowThreads / 32; ++w) all += warps[w];
  return rsqrtf(all / LabFloats::kRow + 1e-5f);
}

__device__ float4 scaled(const float4& v, float by) {
  return {v.x * by, v.y * by, v.z * by, v.w * by};
}
__device__ float4 product(const float4& a, const float4& b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w};
}
__device__ float4 silu_of(const float4& v) {
  return {silu_of(v.x), silu_of(v.y), silu_of(v.z), silu_of(v.w)};
}

__global__ void __launch_bounds__(kRowThreads) norm_pass(float4* to, const float4* from) {
  const size_t at = size_t{blockIdx.x} * (LabFloats::kRow / 4) + threadIdx.x;
  float4 v[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = from[at + i * kRowThreads];
  const float by = inverse_rms(v);
#pragma unroll
  for (int i = 0; i < 4; ++i) to[at + i * kRowThreads] = scaled(v[i], by);
}

__global__ void __launch_bounds__(kPassThreads) multiply_pass(float4* x, const float4* y) {
  const size_t at = size_t{blockIdx.x} * (kPassThreads * kPassVectors) + threadIdx.x;
  const float4 a = x[at], b = y[at], c = x[at + kPassThreads], d = y[at + kPassThreads];
  x[at] = product(a, b);
  x[at + kPassThreads] = product(c, d);
}

__global__ void __launch_bounds__(kPassThreads) silu_alone(float4* x) {
  const size_t at = size_t{blockIdx.x} * (kPassThreads * kPassVectors) + threadIdx.x;
  const float4 a = x[at], b = x[at + kPassThreads];
  x[at] = silu_of(a);
  x[at + kPassThreads] = silu_of(b);
}

__global__ void __launch_bounds__(kRowThreads) fused_block(float4* x, const float4* y) {
  const size_t at = size_t{blockIdx.x} * (LabFloats::kRow / 4) + threadIdx.x;
  float4 v[4], w[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) v[i] = x[at + i * kRowThreads], w[i] = y[at + i * kRowThreads];
  const float by = inverse_rms(v);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float4 h = silu_of(product(scaled(v[i], by), w[i]));
    x[at + i * kRowThreads] = float4{v[i].x + h.x, v[i].y + h.y, v[i].z + h.z, v[i].w + h.w};
  }
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

void LabFloats::norm(int to, int from) {
  norm_pass<<<unsigned(count_ / kRow), kRowThreads, 0, gpu_.run().stream>>>(
      reinterpret_cast<float4*>(array(to)), reinterpret_cast<const float4*>(array(from)));
}

void LabFloats::multiply(int x, int y) {
  multiply_pass<<<unsigned(count_ / kPassFloats), kPassThreads, 0, gpu_.run().stream>>>(
      reinterpret_cast<float4*>(array(x)), reinterpret_cast<const float4*>(array(y)));
}

void LabFloats::silu(int x) {
  silu_alone<<<unsigned(count_ / kPassFloats), kPassThreads, 0, gpu_.run().stream>>>(
      reinterpret_cast<float4*>(array(x)));
}

void LabFloats::norm_multiply_silu_add(int x, int y) {
  fused_block<<<unsigned(count_ / kRow), kRowThreads, 0, gpu_.run().stream>>>(
      reinterpret_cast<float4*>(array(x)), reinterpret_cast<const float4*>(array(y)));
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
