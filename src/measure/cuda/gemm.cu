// Matrix products through cuBLASLt, opened at run time: what the vendor's library reaches.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "measure/cuda/cublaslt.cuh"
#include "measure/cuda/run.cuh"
#include "measure/cuda/tensor.cuh"

namespace ridge {
namespace {

struct Type {
  TensorType type;
  cudaDataType_t in, out, scale;
  cublasComputeType_t compute;
  double bytes_out;
};
constexpr Type kTypes[] = {
    {TensorType::bf16, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 2},
    {TensorType::fp16, CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F, 2},
    {TensorType::tf32, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4},
    {TensorType::fp8, CUDA_R_8F_E4M3, CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F, 2},
    {TensorType::int8, CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I, 4},
};
constexpr int kSize = 8192;
constexpr int kBurst = 5;      // products: 7 ms of bf16
constexpr double kRest = 0.1;  // s between bursts, so that power and heat are the same for each
constexpr size_t kWorkspace = size_t{64} << 20;

// Like random_words() of tensor.cu, made on the device: normally distributed.
__global__ void fill(uint32_t* words, size_t count, TensorType type, int bits, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    uint32_t x = (static_cast<uint32_t>(i) + seed) * 2654435761u + 99u;
    const auto uniform = [&x] {
      x ^= x << 13, x ^= x >> 17, x ^= x << 5;
      return (static_cast<float>(x >> 8) + 0.5f) / 16777216.0f;
    };
    uniform();
    uint32_t word = 0;
    for (int at = 0; at < 32; at += bits) {  // Box and Muller
      const float value = sqrtf(-2 * logf(uniform())) * cospif(2 * uniform());
      word |= encoded(type, value) << at;
    }
    words[i] = word;
  }
}

void fill_operand(CudaRun& run, const DeviceArray<char>& data, TensorType type, uint32_t seed) {
  fill<<<run.sms() * 4, 256, 0, run.stream>>>(reinterpret_cast<uint32_t*>(data.data()),
                                              data.size() / 4, type,
                                              static_cast<int>(8 * tensor_bytes(type)), seed);
}

// D = A^T B, all square; the transposed form is the only one fp8 and int8 have.
class Product {
 public:
  Product(const CublasLt& library, cublasLtHandle_t handle, const Type& type)
      : library_(library), handle_(handle) {
    check_blas(library.MatmulDescCreate(&operation_, type.compute, type.scale), "describing");
    const cublasOperation_t transposed = CUBLAS_OP_T;
    library.MatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                   sizeof transposed);
    check_blas(library.MatrixLayoutCreate(&in_, type.in, kSize, kSize, kSize), "describing");
    check_blas(library.MatrixLayoutCreate(&out_, type.out, kSize, kSize, kSize), "describing");
    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(library.MatmulPreferenceCreate(&preference), "asking");
    library.MatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                         &kWorkspace, sizeof kWorkspace);
    int count = 0;
    check_blas(library.MatmulAlgoGetHeuristic(handle, operation_, in_, in_, out_, out_, preference,
                                              kAlgorithms, found_, &count),
               "asking for algorithms");
    if (count == 0) throw Error("cuBLASLt has no algorithm");
    count_ = count;
  }
  int count() const { return count_; }
  // `one` and `zero` in the scale's type.
  cublasStatus_t run(int algorithm, const void* one, const void* zero, const void* a, const void* b,
                     void* d, void* workspace, cudaStream_t stream) const {
    return library_.Matmul(handle_, operation_, one, a, in_, b, in_, zero, d, out_, d, out_,
                           &found_[algorithm].algo, workspace, kWorkspace, stream);
  }

 private:
  static constexpr int kAlgorithms = 6;
  const CublasLt& library_;
  cublasLtHandle_t handle_;
  cublasLtMatmulDesc_t operation_ = nullptr;  // small, and gone with the process
  cublasLtMatrixLayout_t in_ = nullptr, out_ = nullptr;
  cublasLtMatmulHeuristicResult_t found_[kAlgorithms] = {};
  int count_ = 0;
};

// One type's operands and the fastest of the algorithms that cuBLASLt offers.
class Bench {
 public:
  Bench(CudaRun& run, const CublasLt& library, cublasLtHandle_t handle, const Type& type)
      : run_(run),
        product_(library, handle, type),
        a_(bytes(tensor_bytes(type.type))),
        b_(bytes(tensor_bytes(type.type))),
        d_(bytes(type.bytes_out)),
        workspace_(kWorkspace),
        integer_(type.scale == CUDA_R_32I) {
    fill_operand(run, a_, type.type, 1);
    fill_operand(run, b_, type.type, 2);
    double shortest = 1e9;
    for (int i = 0; i < product_.count(); ++i) {
      try {
        const double seconds = median(run.time(3, 3, [&] { multiply(i); }));
        if (seconds < shortest) shortest = seconds, best_ = i;
      } catch (const Error&) {  // an algorithm that refuses this shape after all
      }
    }
  }

  std::vector<double> time(int samples, int repeats, double rest) {
    return run_.time(
        samples, repeats, [this] { multiply(best_); }, rest);
  }
  int algorithms() const { return product_.count(); }
  static double ops() { return 2.0 * kSize * kSize * kSize; }

 private:
  static size_t bytes(double each) { return static_cast<size_t>(double(kSize) * kSize * each); }

  void multiply(int algorithm) {
    const float one = 1, zero = 0;
    const int32_t one_integer = 1, zero_integer = 0;
    const void* alpha = integer_ ? static_cast<const void*>(&one_integer) : &one;
    const void* beta = integer_ ? static_cast<const void*>(&zero_integer) : &zero;
    check_blas(product_.run(algorithm, alpha, beta, a_.data(), b_.data(), d_.data(),
                            workspace_.data(), run_.stream),
               "multiplying");
  }

  CudaRun& run_;
  Product product_;
  DeviceArray<char> a_, b_, d_, workspace_;
  bool integer_;
  int best_ = 0;
};

void burst(CudaRun& run, Bench& bench, const char* name) {
  const std::vector<double> seconds = bench.time(run.full() ? 15 : 5, kBurst, kRest);
  run.add(fmt::format("gemm.{}", name), "", Dimension::rate, rates(Bench::ops(), seconds),
          fmt::format("cuBLASLt, {0} x {0} x {0}, random numbers, bursts of {1}, best of {2} "
                      "algorithms",
                      kSize, kBurst, bench.algorithms()));
}

void sustained(CudaRun& run, Bench& bench, const char* name) {
  const double total = run.full() ? 6.0 : 1.5;
  std::vector<double> seconds;
  double spent = 0;
  while (spent < total) {
    constexpr int kRepeats = 40;
    const double one = bench.time(1, kRepeats, 0)[0];
    spent += (kRepeats + 1) * one;
    if (spent > total / 2) seconds.push_back(one);
  }
  run.add(fmt::format("gemm.{}.sustained", name), fmt::format("sustained.{}", name),
          Dimension::rate, rates(Bench::ops(), seconds),
          fmt::format("cuBLASLt, {0} x {0} x {0}, random numbers for {1:.1f} s, second half", kSize,
                      spent));
  run.note_conditions(fmt::format("after {:.1f} s of {} products", spent, name));
}

void each_type(CudaRun& run, bool all, void (*measure)(CudaRun&, Bench&, const char*)) {
  const CublasLt library;
  cublasLtHandle_t handle = nullptr;
  check_blas(library.Create(&handle), "starting cuBLASLt");
  for (const Type& type : kTypes) {
    const char* name = tensor_name(type.type);
    if (!all && type.type != TensorType::bf16 && type.type != TensorType::fp8) continue;
    run.progress(fmt::format("{} matrix product", name));
    try {
      Bench bench(run, library, handle, type);
      measure(run, bench, name);
    } catch (const Error& error) {
      run.report.missing.push_back(fmt::format("gemm {}: {}", name, error.what()));
    }
  }
  library.Destroy(handle);
}

}  // namespace

void measure_gemm(CudaRun& run) { each_type(run, true, burst); }
void measure_gemm_sustained(CudaRun& run) { each_type(run, run.full(), sustained); }

}  // namespace ridge
