// Multiply-add peaks of the ordinary pipes, and the clock they run at.
#include <fmt/format.h>

#include "measure/cuda/run.cuh"

namespace ridge {
namespace {

constexpr int kChains = 8;
constexpr int kThreads = 512;
constexpr int kBlocksPerSm = 2;  // 32 warps: each scheduler has 8 to choose from
constexpr int kUnroll = 16;

// x = x/2 + 1 ends at 2 wherever it starts; chains start apart, or the compiler would run one.
template <typename T>
__global__ void fma_chains(T half, int repeats, T* out, long long* cycles) {
  T x[kChains];
  for (int c = 0; c < kChains; ++c) x[c] = static_cast<T>(threadIdx.x + c);
  const long long start = clock64();
  for (int i = 0; i < repeats; ++i) {
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
#pragma unroll
      for (int c = 0; c < kChains; ++c) x[c] = fma(x[c], half, T{1});
    }
  }
  const long long stop = clock64();
  T sum = 0;
  for (int c = 0; c < kChains; ++c) sum += x[c];
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
  if (threadIdx.x == 0) cycles[blockIdx.x] = stop - start;
}

template <typename T>
void one_type(CudaRun& run, const char* id, const char* path, const char* name) {
  run.progress(fmt::format("{} multiply-adds", name));
  const int blocks = run.sms() * kBlocksPerSm;
  DeviceArray<T> out(static_cast<size_t>(blocks) * kThreads);
  DeviceArray<long long> cycles(static_cast<size_t>(blocks));
  out.fill_bytes(0);
  const int repeats = sizeof(T) == 8 ? 2000 : 8000;
  const std::vector<double> seconds = run.time(run.full() ? 15 : 7, 1, [&] {
    fma_chains<T><<<blocks, kThreads, 0, run.stream>>>(T{0.5}, repeats, out.data(), cycles.data());
  });
  bool right = true;
  for (const T value : out.host()) right = right && value == T{2 * kChains};
  const double ops = 2.0 * kChains * kUnroll * repeats * kThreads * blocks;
  if (sizeof(T) == 4) {
    double longest = 0;
    for (const long long each : cycles.host()) longest = std::max(longest, double(each));
    // The whole launch is a little longer than its loops; at 10 ms that is far under 1 %.
    run.clock = longest / median(seconds);
    run.add("clock", "clock", Dimension::clock, rates(longest, seconds),
            "cycles of the longest block over the time of the launch, all SMs busy");
  }
  Reading reading = summarize(
      id, path, Dimension::rate, rates(ops, seconds),
      fmt::format("{} chains x {} threads per SM, {:.1f} operations per clock and SM", kChains,
                  kThreads * kBlocksPerSm, ops / median(seconds) / run.sms() / run.clock));
  if (!right) reading.doubt = "wrong result: the chains did not all run";
  run.add(std::move(reading));
}

}  // namespace

void measure_fma(CudaRun& run) {
  one_type<float>(run, "peak.fp32.fma", "peak.fp32", "fp32");
  // No path: the atlas holds the tensor cores' fp64 there, which is twice this.
  one_type<double>(run, "peak.fp64.fma", "", "fp64");
}

}  // namespace ridge
