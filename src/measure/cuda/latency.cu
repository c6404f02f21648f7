// The time of one load that waits for the load before it: shared memory, L1, L2, device memory.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <random>

#include "base/units.h"
#include "measure/cuda/run.cuh"

namespace ridge {
namespace {

constexpr size_t kLine = 128;
constexpr int kUnroll = 32;  // the loop's own instructions stay off the chain

enum class Through { l1, l2 };

// One thread, from *at on. The last pointer is written there, so every load is needed and the next
// launch goes on where this one stopped.
template <Through kThrough>
__global__ void chase(const char** at, int rounds, long long* cycles) {
  const char* p = *at;
  const long long begin = clock64();
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      if constexpr (kThrough == Through::l1) {
        asm volatile("ld.global.ca.u64 %0, [%0];" : "+l"(p)::"memory");
      } else {
        asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(p)::"memory");
      }
    }
  }
  *cycles = clock64() - begin;
  *at = p;
}

__global__ void chase_shared(int rounds, long long* cycles, uint32_t* end) {
  __shared__ uint32_t next[1024];
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) {
    next[i] = static_cast<uint32_t>(__cvta_generic_to_shared(&next[(i + 33) % 1024]));
  }
  __syncthreads();
  uint32_t p = next[0];
  const long long begin = clock64();
  for (int round = 0; round < rounds; ++round) {
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      asm volatile("ld.shared.u32 %0, [%0];" : "+r"(p)::"memory");
    }
  }
  *cycles = clock64() - begin;
  *end = p;
}

// Lines that point to themselves: the latency of each line of L2 by itself, seen from one SM.
__global__ void time_lines(const char* lines, int count, int* cycles) {
  for (int line = 0; line < count; ++line) {
    const char* p = lines + size_t(line) * kLine * 33;               // spread over the slices
    asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(p)::"memory");  // into L2
    const long long begin = clock64();
#pragma unroll
    for (int i = 0; i < kUnroll; ++i) {
      asm volatile("ld.global.cg.u64 %0, [%0];" : "+l"(p)::"memory");
    }
    const long long spent = clock64() - begin;
    cycles[line] = static_cast<int>(spent / kUnroll) + (p == nullptr ? 1 : 0);
  }
}

__global__ void link(char* data, const uint32_t* next, size_t nodes) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < nodes;
       i += size_t{gridDim.x} * blockDim.x) {
    *reinterpret_cast<char**>(data + i * kLine) = data + size_t{next[i]} * kLine;
  }
}

// A ring through all lines in random order (Sattolo's algorithm).
std::vector<uint32_t> random_ring(size_t nodes, uint64_t seed) {
  std::vector<uint32_t> next(nodes);
  std::iota(next.begin(), next.end(), 0u);
  std::mt19937_64 random(seed);
  for (size_t i = nodes - 1; i > 0; --i) std::swap(next[i], next[random() % i]);
  return next;
}

struct Chase {
  std::vector<double> seconds;  // per load
  double cycles = 0;            // per load, by the SM's own counter
};

class Chaser {
 public:
  Chaser(CudaRun& run, size_t bytes) : run_(run), data_(bytes), cycles_(1), at_(1) {}

  Chase over(double bytes, Through through, int samples) {
    const size_t nodes = static_cast<size_t>(bytes) / kLine;
    const std::vector<uint32_t> ring = random_ring(nodes, ++seed_);
    DeviceArray<uint32_t> next(nodes);
    next.copy_from(ring.data(), nodes);
    link<<<run_.sms(), 256, 0, run_.stream>>>(data_.data(), next.data(), nodes);
    check(cudaStreamSynchronize(run_.stream), "linking");
    const char* const start = data_.data();
    at_.copy_from(&start, 1);
    const int rounds = bytes < 4e6 ? 2048 : 1024;  // 32768 loads at least
    const auto launch = [&](int count) {
      if (through == Through::l1) {
        chase<Through::l1><<<1, 1, 0, run_.stream>>>(at_.data(), count, cycles_.data());
      } else {
        chase<Through::l2><<<1, 1, 0, run_.stream>>>(at_.data(), count, cycles_.data());
      }
    };
    // What fits a cache is there after one lap.
    if (bytes <= run_.properties.l2CacheSize) {
      launch(static_cast<int>(nodes / kUnroll) + 1);
      check(cudaStreamSynchronize(run_.stream), "warming up");
    }
    const double nothing = median(run_.time(5, 1, [&] { launch(0); }));
    Chase found;
    for (const double taken : run_.time(samples, 1, [&] { launch(rounds); })) {
      found.seconds.push_back((taken - nothing) / rounds / kUnroll);
    }
    found.cycles = static_cast<double>(cycles_.host()[0]) / rounds / kUnroll;
    return found;
  }

  char* data() const { return data_.data(); }

 private:
  CudaRun& run_;
  DeviceArray<char> data_;
  DeviceArray<long long> cycles_;
  DeviceArray<const char*> at_;
  uint64_t seed_ = 0;
};

void add_chase(CudaRun& run, const char* id, const char* path, const Chase& found,
               const std::string& how) {
  run.add(id, path, Dimension::time, found.seconds,
          fmt::format("{}: {:.0f} clocks", how, found.cycles));
}

void shared_latency(CudaRun& run) {
  DeviceArray<long long> cycles(1);
  DeviceArray<uint32_t> end(1);
  constexpr int kRounds = 2048;
  const auto launch = [&](int rounds) {
    chase_shared<<<1, 32, 0, run.stream>>>(rounds, cycles.data(), end.data());
  };
  const double nothing = median(run.time(5, 1, [&] { launch(0); }));
  Chase found;
  for (const double seconds : run.time(7, 1, [&] { launch(kRounds); })) {
    found.seconds.push_back((seconds - nothing) / kRounds / kUnroll);
  }
  found.cycles = static_cast<double>(cycles.host()[0]) / kRounds / kUnroll;
  add_chase(run, "shared.latency", "", found, "chain of loads from shared memory");
}

// Both halves of the L2 as one SM sees them.
void near_and_far(CudaRun& run, const Chaser& chaser) {
  constexpr int kLines = 2048;
  for (int i = 0; i < kLines; ++i) {
    char* const at = chaser.data() + size_t(i) * kLine * 33;
    check(cudaMemcpy(at, &at, sizeof at, cudaMemcpyHostToDevice), "linking");
  }
  check(cudaDeviceSynchronize(), "linking");
  DeviceArray<int> cycles(kLines);
  time_lines<<<1, 1, 0, run.stream>>>(chaser.data(), kLines, cycles.data());
  check(cudaStreamSynchronize(run.stream), "timing lines");
  std::vector<int> sorted = cycles.host();
  std::sort(sorted.begin(), sorted.end());
  const auto seconds = [&](double share) {
    return sorted[static_cast<size_t>(share * (kLines - 1))] / run.clock;
  };
  run.add("L2.latency.near", "", Dimension::time, {seconds(0.1)},
          fmt::format("10th percentile of {} lines, each by itself: {:.0f} clocks", kLines,
                      seconds(0.1) * run.clock));
  run.add("L2.latency.far", "", Dimension::time, {seconds(0.9)},
          fmt::format("90th percentile of {} lines, each by itself: {:.0f} clocks", kLines,
                      seconds(0.9) * run.clock));
}

}  // namespace

void measure_latency(CudaRun& run) {
  run.progress("latency of shared memory");
  shared_latency(run);
  size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total), "asking for free memory");
  const double limit =
      std::min(run.full() ? 8.0 * (1u << 30) : 1.0 * (1u << 30), 0.3 * double(available));
  Chaser chaser(run, static_cast<size_t>(limit));
  const int samples = run.full() ? 9 : 5;
  run.progress("latency of L1");
  add_chase(run, "L1.latency", "levels.L1.latency", chaser.over(32 << 10, Through::l1, samples),
            "random ring over 32 KiB through L1");
  run.progress("latency of L2");
  add_chase(run, "L2.latency", "levels.L2.latency", chaser.over(2 << 20, Through::l2, samples),
            "random ring over 2 MiB past L1");
  run.progress("latency of HBM");
  // Far above the L2, below the reach of the TLB.
  const double far = std::min(limit, 1.0 * (1u << 30));
  add_chase(run, "HBM.latency", "levels.HBM.latency", chaser.over(far, Through::l2, samples),
            fmt::format("random ring over {}", pretty_binary(far)));
  if (limit > 2 * far) {
    add_chase(run, "HBM.latency.tlb", "", chaser.over(limit, Through::l2, samples),
              fmt::format("random ring over {}, to find where the TLB ends", pretty_binary(limit)));
  }
  Curve curve{"latency", "random chase", Dimension::time, {}, {}};
  const double step = run.full() ? 1.4142135623730951 : 2;
  for (double bytes = 16 << 10; bytes <= limit * 1.0001; bytes *= step) {
    run.progress(fmt::format("latency over {}", pretty_binary(bytes)));
    curve.x.push_back(bytes);
    curve.y.push_back(median(chaser.over(bytes, Through::l1, 2).seconds));
  }
  run.report.curves.push_back(std::move(curve));
  if (run.clock > 0) near_and_far(run, chaser);
}

}  // namespace ridge
