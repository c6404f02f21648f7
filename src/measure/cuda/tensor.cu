// Tensor-core peaks: mma.sync everywhere, wgmma on Hopper; burst and sustained, on random numbers.
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <type_traits>

#include "base/ptx/mma.cuh"
#include "measure/cuda/run.cuh"
#include "measure/cuda/tensor.cuh"

namespace ridge {
namespace {

// ---- mma.sync: m16n8, 8 independent accumulators a warp, operands in registers

constexpr int kMmaThreads = 256, kMmaBlocksPerSm = 2, kMmaChains = 8;

template <TensorType kType>
using MmaAccumulator = std::conditional_t<kType == TensorType::int8, int, float>;

template <TensorType kType>
__device__ void mma(MmaAccumulator<kType> (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  if constexpr (kType == TensorType::bf16) {
    ptx::mma_bf16(d, a, b[0], b[1]);
  } else if constexpr (kType == TensorType::fp16) {
    ptx::mma_f16(d, a, b[0], b[1]);
  } else if constexpr (kType == TensorType::tf32) {
    ptx::mma_tf32(d, a, b[0], b[1]);
  } else {
    ptx::mma_s8(d, a, b[0], b[1]);
  }
}

__device__ uint32_t bits_of(float value) { return __float_as_uint(value); }
__device__ uint32_t bits_of(int value) { return static_cast<uint32_t>(value); }

template <TensorType kType>
__global__ void mma_loop(const uint32_t* operands, int repeats, uint32_t* out) {
  uint32_t a[4], b[2];
  MmaAccumulator<kType> d[kMmaChains][4] = {};
  for (int i = 0; i < 4; ++i) a[i] = operands[(threadIdx.x + 32 * i) % 1024];
  for (int i = 0; i < 2; ++i) b[i] = operands[(threadIdx.x + 32 * i + 512) % 1024];
  // The chains start from different values, or the compiler would merge them.
  for (int c = 0; c < kMmaChains; ++c) {
    d[c][0] = reinterpret_cast<const MmaAccumulator<kType>*>(operands)[c];
  }
  for (int i = 0; i < repeats; ++i) {
#pragma unroll
    for (int c = 0; c < kMmaChains; ++c) mma<kType>(d[c], a, b);
  }
  uint32_t all = 0;
  for (int c = 0; c < kMmaChains; ++c) {
    all ^= bits_of(d[c][0]) ^ bits_of(d[c][1]) ^ bits_of(d[c][2]) ^ bits_of(d[c][3]);
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = all;
}

template <TensorType kType>
void measure_mma(CudaRun& run, const uint32_t* operands) {
  const int blocks = run.sms() * kMmaBlocksPerSm;
  DeviceArray<uint32_t> out(static_cast<size_t>(blocks) * kMmaThreads);
  constexpr int kRepeats = 4000;
  const double k = 32 / tensor_bytes(kType);
  const double ops = 2.0 * 16 * 8 * k * kMmaChains * kRepeats * (kMmaThreads / 32) * blocks;
  // With a path only where nothing better drives the tensor cores.
  run.add(fmt::format("mma.{}", tensor_name(kType)),
          run.hopper() ? "" : fmt::format("peak.{}", tensor_name(kType)), Dimension::rate,
          rates(ops, run.time(5, 1,
                              [&] {
                                mma_loop<kType><<<blocks, kMmaThreads, 0, run.stream>>>(
                                    operands, kRepeats, out.data());
                              })),
          "mma.sync m16n8, 8 accumulators a warp, random operands in registers");
}

// ---- operands

// Normally distributed, as weights and activations are: how many bits flip decides the power.
std::vector<uint32_t> random_words(TensorType type, size_t count) {
  std::mt19937 random(17);
  std::normal_distribution<float> normal;
  const int bits = static_cast<int>(8 * tensor_bytes(type));
  std::vector<uint32_t> words(count, 0);
  for (uint32_t& word : words) {
    for (int at = 0; at < 32; at += bits) word |= encoded(type, normal(random)) << at;
  }
  return words;
}

uint32_t ones_word(TensorType type) {
  constexpr uint32_t kOnes[] = {0x3f800000u, 0x3f803f80u, 0x3c003c00u, 0x38383838u, 0x01010101u};
  return kOnes[static_cast<int>(type)];
}

// ---- wgmma

constexpr int kOperandWords = 12 << 10;  // both tiles of a block: 48 KB

class Wgmma {
 public:
  Wgmma(CudaRun& run, TensorType type)
      : run_(run),
        type_(type),
        operands_(kOperandWords),
        out_(static_cast<size_t>(run.sms()) * wgmma_threads()),
        cycles_(run.sms()) {}

  // Whether ones times ones come to the sum they must: every instruction ran, on what was meant.
  bool is_right() {
    constexpr int kTiles = 16;  // 16 x 128 x 128 bytes: exact in fp32
    fill(std::vector<uint32_t>(kOperandWords, ones_word(type_)));
    out_.fill_bytes(0);
    launch(kTiles);
    check(cudaStreamSynchronize(run_.stream), "multiplying ones");
    const std::vector<double> sums = out_.host();
    return std::all_of(sums.begin(), sums.end(),
                       [&](double sum) { return sum == wgmma_sum_of_ones(type_, kTiles); });
  }

  void fill(const std::vector<uint32_t>& words) { operands_.copy_from(words.data(), words.size()); }

  void launch(int tiles) {
    launch_wgmma(type_, run_.stream, run_.sms(), operands_.data(), kOperandWords, tiles,
                 out_.data(), cycles_.data());
  }

  double ops(int tiles) const { return wgmma_ops(type_) * tiles * run_.sms(); }
  double clocks() const {
    double longest = 0;
    for (const long long each : cycles_.host()) longest = std::max(longest, double(each));
    return longest;
  }

 private:
  CudaRun& run_;
  TensorType type_;
  DeviceArray<uint32_t> operands_;
  DeviceArray<double> out_;
  DeviceArray<long long> cycles_;
};

// About half a millisecond from a cool start: over before the power limit answers.
constexpr int kBurstTiles = 1000;
constexpr double kRest = 0.1;

void add_burst(CudaRun& run, Wgmma& kernel, TensorType type, bool zeros, bool right) {
  const std::vector<double> seconds = run.time(
      run.full() ? 15 : 5, 1, [&] { kernel.launch(kBurstTiles); }, kRest);
  const double per_clock = kernel.ops(kBurstTiles) / run.sms() / kernel.clocks();
  const std::string name = tensor_name(type);
  Reading reading = summarize(
      zeros ? fmt::format("mma.{}.zeros", name) : fmt::format("peak.{}.wgmma", name),
      zeros ? "" : "peak." + name, Dimension::rate, rates(kernel.ops(kBurstTiles), seconds),
      fmt::format("wgmma m64n256 from shared memory on {}, burst of {:.2f} ms: {:.0f} operations a "
                  "clock and SM",
                  zeros ? "zeros" : "random numbers", median(seconds) * 1e3, per_clock));
  if (!right) reading.doubt = "ones times ones came out wrong";
  run.add(std::move(reading));
}

// Back to back for seconds; the second half counts, when clocks have settled under the limit.
void add_sustained(CudaRun& run, Wgmma& kernel, TensorType type, double total) {
  run.progress(fmt::format("{} tensor peak, sustained", tensor_name(type)));
  constexpr int kTiles = 20 * kBurstTiles;
  std::vector<double> seconds;
  double spent = 0;
  while (spent < total) {
    const double one = run.time(1, 5, [&] { kernel.launch(kTiles); })[0];
    spent += 5 * one;
    if (spent > total / 2) seconds.push_back(one);
  }
  run.note_conditions(fmt::format("after {:.0f} s of {} tensor work", spent, tensor_name(type)));
  run.add(fmt::format("mma.{}.sustained", tensor_name(type)), "", Dimension::rate,
          rates(kernel.ops(kTiles), seconds),
          fmt::format("wgmma on random numbers for {:.1f} s, second half", spent));
}

}  // namespace

void measure_tensor(CudaRun& run) {
  for (const TensorType type : kTensorTypes) {
    run.progress(fmt::format("{} tensor peak", tensor_name(type)));
    DeviceArray<uint32_t> operands(1024);
    const std::vector<uint32_t> words = random_words(type, 1024);
    operands.copy_from(words.data(), words.size());
    if (type == TensorType::tf32) measure_mma<TensorType::tf32>(run, operands.data());
    if (type == TensorType::bf16) measure_mma<TensorType::bf16>(run, operands.data());
    if (type == TensorType::fp16) measure_mma<TensorType::fp16>(run, operands.data());
    if (type == TensorType::int8) measure_mma<TensorType::int8>(run, operands.data());
    if (!run.hopper()) continue;
    Wgmma kernel(run, type);
    const bool right = kernel.is_right();
    kernel.fill(random_words(type, kOperandWords));
    add_burst(run, kernel, type, false, right);
    if (type == TensorType::bf16) {
      kernel.fill(std::vector<uint32_t>(kOperandWords, 0));
      add_burst(run, kernel, type, true, true);
      kernel.fill(random_words(type, kOperandWords));
    }
  }
  if (!run.hopper()) {
    run.report.missing.push_back(
        "fp8 tensor peak: only driven through wgmma here, which this GPU does not have");
  }
}

void measure_tensor_sustained(CudaRun& run) {
  if (!run.hopper()) return;
  for (const TensorType type : kTensorTypes) {
    if (!run.full() && type != TensorType::bf16 && type != TensorType::fp8) continue;
    Wgmma kernel(run, type);
    kernel.fill(random_words(type, kOperandWords));
    add_sustained(run, kernel, type, run.full() ? 6.0 : 1.5);
  }
}

}  // namespace ridge
