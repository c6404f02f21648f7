#include <cuda_bf16.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "engine/cuda/attention/attention.cuh"
#include "lab/cuda/attention.h"
#include "lab/cuda/kernels.cuh"
#include "measure/cuda/cublaslt.cuh"

namespace ridge {
namespace {

constexpr int kDim = LabAttention::kHeadDim, kRows = LabAttention::kRows;

__device__ uint16_t bf16_bits(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
__device__ float bf16_value(uint32_t bits) { return __uint_as_float(bits << 16); }

// qkv: [token][q, k, v][head][dim] in (-1, 1), from random bits; split: [q, k,
// v][head][token][dim].
__global__ void make_inputs(float* qkv, uint16_t* split, int heads, int tokens) {
  const size_t width = size_t(heads) * kDim, count = size_t(tokens) * 3 * width;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + 977u;
    x ^= x >> 16, x *= 0x7feb352du;
    x ^= x >> 15, x *= 0x846ca68bu;
    x ^= x >> 16;
    const float value = static_cast<float>(x >> 8) / 8388608.0f - 1;  // 2^23: [-1, 1)
    qkv[i] = value;
    const size_t token = i / (3 * width), part = i / width % 3, head = i % width / kDim;
    split[((part * heads + head) * tokens + token) * kDim + i % kDim] = bf16_bits(value);
  }
}

// ---- softmax of materialised scores: a block for each row of each head. A thread holds kVectors x
// 8 scores, so that a row is read once and written once. Keys behind the row's own token, up to the
// end of its block of rows, become zero.
constexpr int kSoftmaxThreads = 256, kSoftmaxWarps = kSoftmaxThreads / 32;

template <bool kMaximum>
__device__ float over_block(float value, float (&shared)[kSoftmaxWarps]) {
  for (int lanes = 16; lanes > 0; lanes /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, value, lanes);
    value = kMaximum ? fmaxf(value, other) : value + other;
  }
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[0];
  for (int w = 1; w < kSoftmaxWarps; ++w) {
    value = kMaximum ? fmaxf(value, shared[w]) : value + shared[w];
  }
  return value;
}

template <int kVectors>
__global__ void __launch_bounds__(kSoftmaxThreads) softmax_rows(uint4* scores, int tokens) {
  __shared__ float maxima[kSoftmaxWarps], sums[kSoftmaxWarps];
  const int row = blockIdx.x, head = blockIdx.y;
  const int end = row / kRows * kRows + kRows;  // columns that the block of rows has
  uint4* const from = scores + (size_t(head) * tokens + row) * (tokens / 8);
  float x[kVectors][8];
  float maximum = -INFINITY;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int vector = i * kSoftmaxThreads + threadIdx.x;
    uint4 v = {0, 0, 0, 0};
    if (vector * 8 < end) v = from[vector];
    const uint32_t words[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float score = bf16_value(j % 2 ? words[j / 2] >> 16 : words[j / 2] & 0xffff);
      x[i][j] = vector * 8 + j <= row ? score : -INFINITY;
      maximum = fmaxf(maximum, x[i][j]);
    }
  }
  maximum = over_block<true>(maximum, maxima);
  constexpr float kLog2E = 1.44269504f;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      x[i][j] = exp2f((x[i][j] - maximum) * kLog2E);  // 0 for keys that are not seen
      sum += x[i][j];
    }
  }
  const float scale = 1 / over_block<false>(sum, sums);
#pragma unroll
  for (int i = 0; i < kVectors; ++i) {
    const int vector = i * kSoftmaxThreads + threadIdx.x;
    if (vector * 8 >= end) continue;
    uint32_t words[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      words[j] =
          uint32_t{bf16_bits(x[i][2 * j + 1] * scale)} << 16 | bf16_bits(x[i][2 * j] * scale);
    }
    from[vector] = uint4{words[0], words[1], words[2], words[3]};
  }
}

// out: [head][token][dim]; tiled: wide_at(head dim + d, token, tokens). The largest difference, as
// the bits of a float that is not negative.
__global__ void compare_outputs(const uint16_t* out, const uint16_t* tiled, int heads, int tokens,
                                uint32_t* largest) {
  float most = 0;
  const size_t count = size_t(heads) * tokens * kDim;
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    const int d = int(i % kDim), token = int(i / kDim % tokens), head = int(i / kDim / tokens);
    const float a = bf16_value(out[i]);
    const float b = bf16_value(tiled[cuda::wide_at(head * kDim + d, token, tokens)]);
    const float apart = fabsf(a - b);
    most = isnan(apart) ? INFINITY : fmaxf(most, apart);
  }
  const uint32_t bits = __reduce_max_sync(0xffffffffu, __float_as_uint(most));
  if (threadIdx.x % 32 == 0) atomicMax(largest, bits);
}

// ---- batched GEMMs of cuBLASLt, one batch entry for each head

constexpr size_t kBlasWorkspace = size_t{64} << 20;

// A column-major matrix of bf16 for each head, `stride` elements apart.
class HeadLayout {
 public:
  HeadLayout(const CublasLt& blas, int rows, int columns, int64_t leading, int heads,
             int64_t stride)
      : blas_(blas) {
    check_blas(blas.MatrixLayoutCreate(&layout_, CUDA_R_16BF, rows, columns, leading),
               "describing");
    const int32_t count = heads;
    check_blas(blas.MatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count,
                                             sizeof count),
               "describing");
    check_blas(blas.MatrixLayoutSetAttribute(layout_, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET,
                                             &stride, sizeof stride),
               "describing");
  }
  ~HeadLayout() { blas_.MatrixLayoutDestroy(layout_); }
  HeadLayout(const HeadLayout&) = delete;
  HeadLayout& operator=(const HeadLayout&) = delete;
  cublasLtMatrixLayout_t get() const { return layout_; }

 private:
  const CublasLt& blas_;
  cublasLtMatrixLayout_t layout_ = nullptr;
};

// D = alpha op(A) B for all heads, with the library's first choice of algorithm.
class HeadGemm {
 public:
  struct Operand {
    int rows, columns;
    int64_t leading, stride;
  };
  HeadGemm(const CublasLt& blas, cublasLtHandle_t handle, bool transpose_a, int heads,
           const Operand& a, const Operand& b, const Operand& d)
      : blas_(blas),
        handle_(handle),
        a_(blas, a.rows, a.columns, a.leading, heads, a.stride),
        b_(blas, b.rows, b.columns, b.leading, heads, b.stride),
        d_(blas, d.rows, d.columns, d.leading, heads, d.stride) {
    check_blas(blas.MatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing");
    const cublasOperation_t op = transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    blas.MatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &op, sizeof op);
    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(blas.MatmulPreferenceCreate(&preference), "asking");
    blas.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                      &kBlasWorkspace, sizeof kBlasWorkspace);
    int count = 0;
    const cublasStatus_t found =
        blas.MatmulAlgoGetHeuristic(handle, operation_, a_.get(), b_.get(), d_.get(), d_.get(),
                                    preference, 1, &algorithm_, &count);
    blas.MatmulPreferenceDestroy(preference);
    check_blas(found, "asking for algorithms");
    if (count == 0) throw Error("cuBLASLt has no algorithm");
  }
  ~HeadGemm() { blas_.MatmulDescDestroy(operation_); }
  HeadGemm(const HeadGemm&) = delete;
  HeadGemm& operator=(const HeadGemm&) = delete;

  void run(float alpha, const uint16_t* a, const uint16_t* b, uint16_t* d, void* workspace,
           cudaStream_t stream) const {
    const float zero = 0;
    check_blas(
        blas_.Matmul(handle_, operation_, &alpha, a, a_.get(), b, b_.get(), &zero, d, d_.get(), d,
                     d_.get(), &algorithm_.algo, workspace, kBlasWorkspace, stream),
        "multiplying");
  }

 private:
  const CublasLt& blas_;
  cublasLtHandle_t handle_;
  HeadLayout a_, b_, d_;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatmulHeuristicResult_t algorithm_ = {};
};

struct BlasHandle {
  explicit BlasHandle(const CublasLt& library) : blas(library) {
    check_blas(blas.Create(&handle), "starting cuBLASLt");
  }
  ~BlasHandle() { blas.Destroy(handle); }
  BlasHandle(const BlasHandle&) = delete;
  BlasHandle& operator=(const BlasHandle&) = delete;
  const CublasLt& blas;
  cublasLtHandle_t handle = nullptr;
};

cuda::AttentionBounds bounds_of(int tokens) {
  return {tokens, 1, tokens / cuda::kPageTokens, tokens / cuda::kPageTokens};
}

}  // namespace

struct LabAttention::Data {
  Data(LabGpu& gpu, int heads, int tokens)
      : handle(blas),
        qkv(size_t(tokens) * 3 * heads * kDim),
        split(qkv.size()),
        scores(size_t(heads) * tokens * tokens),
        out(size_t(heads) * tokens * kDim),
        workspace(kBlasWorkspace),
        frequency(kDim / 2),
        slots(tokens),
        q(out.size()),
        tiled_out(out.size()),
        kv(size_t(tokens / cuda::kPageTokens) * heads *
           cuda::page_bytes(cuda::KvFormat::bf16, kDim)),
        pages(tokens / cuda::kPageTokens),
        attention(heads, heads, kDim, gpu.sms(), cuda::KvFormat::bf16, {0}, bounds_of(tokens)),
        inputs(cuda::Attention::input_bytes(heads, heads, gpu.sms(), 1, bounds_of(tokens))) {}

  CublasLt blas;
  BlasHandle handle;
  // Materialised.
  DeviceArray<float> qkv;
  DeviceArray<uint16_t> split, scores, out;  // [q, k, v][head][token][dim], [head][row][key], ...
  DeviceArray<char> workspace;
  std::vector<std::unique_ptr<HeadGemm>> score_gemms, mix_gemms;  // by block of rows
  // Tiled.
  DeviceArray<float> frequency;
  DeviceArray<cuda::KvSlot> slots;
  DeviceArray<uint16_t> q, tiled_out;
  DeviceArray<uint8_t> kv;
  DeviceArray<int> pages;
  cuda::Attention attention;
  cuda::StepInputs inputs;
  cuda::AttentionArgs args = {};
};

LabAttention::LabAttention(LabGpu& gpu, int heads, int tokens)
    : gpu_(gpu), heads_(heads), tokens_(tokens) {
  if (tokens % kRows != 0 || tokens > kMostTokens) {
    throw Error("attention of {} tokens: multiples of {} up to {}", tokens, int(kRows),
                int(kMostTokens));
  }
  data_ = std::make_unique<Data>(gpu, heads, tokens);
  Data& d = *data_;
  const cudaStream_t stream = gpu.run().stream;
  make_inputs<<<gpu.sms() * 8, 256, 0, stream>>>(d.qkv.data(), d.split.data(), heads, tokens);
  gpu.wait();
  const int64_t n = tokens, whole = n * kDim;
  for (int row = 0; row < tokens; row += kRows) {
    const int seen = row + kRows;
    // In column-major order: S^T [seen x rows] = K^T Q with K, Q [dim x n].
    d.score_gemms.push_back(std::make_unique<HeadGemm>(
        d.blas, d.handle.handle, true, heads, HeadGemm::Operand{kDim, seen, kDim, whole},
        HeadGemm::Operand{kDim, kRows, kDim, whole}, HeadGemm::Operand{seen, kRows, n, n * n}));
    // O^T [dim x rows] = V P^T with V [dim x seen], P^T [seen x rows].
    d.mix_gemms.push_back(std::make_unique<HeadGemm>(
        d.blas, d.handle.handle, false, heads, HeadGemm::Operand{kDim, seen, kDim, whole},
        HeadGemm::Operand{seen, kRows, n, n * n}, HeadGemm::Operand{kDim, kRows, kDim, whole}));
  }
  // Frequencies of zero: RoPE rotates by nothing, so both forms see the same q and k.
  d.frequency.fill_bytes(0);
  std::vector<cuda::KvSlot> slots;
  std::vector<int> pages;
  for (int t = 0; t < tokens; ++t) {
    if (t % cuda::kPageTokens == 0) pages.push_back(t / cuda::kPageTokens);
    slots.push_back({t, pages.back(), t % cuda::kPageTokens});
  }
  d.slots.copy_from(slots.data(), slots.size());
  d.pages.copy_from(pages.data(), pages.size());
  d.kv.fill_bytes(0);
  d.tiled_out.fill_bytes(0xff);
  cuda::AttentionArgs& a = d.args;
  a.heads = a.kv_heads = heads;
  a.head_dim = kDim;
  a.scale = 1 / std::sqrt(float(kDim));
  a.qkv = d.qkv.data();
  a.frequency = d.frequency.data();
  a.magnitude = 1;
  a.kv_slots = d.slots.data();
  a.q = d.q.data();
  a.kv = d.kv.data();
  a.pages = d.pages.data();
  a.out = d.tiled_out.data();
  a.out_tokens = tokens;
  d.inputs.begin();
  d.attention.plan(d.inputs, {cuda::AttentionSequence{0, tokens, 0, 0}}, pages.data());
  d.inputs.upload(stream);
  if (d.attention.needs_rope()) d.attention.rope_and_append(stream, a);
  gpu.wait();
}

LabAttention::~LabAttention() { cudaStreamSynchronize(gpu_.run().stream); }

void LabAttention::materialised() {
  Data& d = *data_;
  const cudaStream_t stream = gpu_.run().stream;
  const size_t n = size_t(tokens_), part = size_t(heads_) * n * kDim;
  const uint16_t *q = d.split.data(), *k = q + part, *v = k + part;
  const float scale = 1 / std::sqrt(float(kDim));
  for (size_t block = 0; block < d.score_gemms.size(); ++block) {
    const size_t row = block * kRows;
    d.score_gemms[block]->run(scale, k, q + row * kDim, d.scores.data() + row * n,
                              d.workspace.data(), stream);
  }
  const auto softmax = n <= 2048 ? softmax_rows<1> : n <= 4096 ? softmax_rows<2> : softmax_rows<4>;
  softmax<<<dim3(unsigned(tokens_), unsigned(heads_)), kSoftmaxThreads, 0, stream>>>(
      reinterpret_cast<uint4*>(d.scores.data()), tokens_);
  for (size_t block = 0; block < d.mix_gemms.size(); ++block) {
    const size_t row = block * kRows;
    d.mix_gemms[block]->run(1, v, d.scores.data() + row * n, d.out.data() + row * kDim,
                            d.workspace.data(), stream);
  }
}

void LabAttention::tiled() { data_->attention.launch(gpu_.run().stream, data_->args); }

double LabAttention::largest_difference() {
  Data& d = *data_;
  GridTotal<uint32_t> largest(gpu_);
  largest.clear();
  compare_outputs<<<gpu_.sms() * 8, 256, 0, gpu_.run().stream>>>(d.out.data(), d.tiled_out.data(),
                                                                 heads_, tokens_, largest.data());
  const uint32_t bits = largest.read();
  float value;
  static_assert(sizeof value == sizeof bits);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace ridge
