// Bandwidth of shared memory, L1 and L2, and the staircase of reads over the working set.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/units.h"
#include "measure/cuda/run.cuh"

namespace ridge {
namespace {

constexpr int kThreads = 1024;

// One block per SM reads its own 64 KB repeatedly, 16 bytes per thread. Where a pass starts
// depends on what was read two passes before (always the same place, but no assembler knows): equal
// loads in two passes would be one load to it. A first version that moved the start only every
// fourth pass showed 2.5 to 3.4 times the possible rate, and the band caught it.
constexpr int kOwnBytes = 64 << 10;
constexpr int kOwnVectors = kOwnBytes / 16;

template <bool kShared>
__global__ void __launch_bounds__(kThreads, 1)
    read_own(const uint4* data, int passes, uint32_t* out) {
  extern __shared__ uint4 local[];
  const uint4* mine = data + size_t{blockIdx.x} * kOwnVectors;
  if constexpr (kShared) {
    for (int i = threadIdx.x; i < kOwnVectors; i += kThreads) local[i] = mine[i];
    __syncthreads();
  }
  uint4 sum = {0, 0, 0, 0};
  uint32_t offset = 0, next_offset = 0;
  for (int pass = 0; pass < passes; ++pass) {
    offset = next_offset;
    next_offset = (sum.x | sum.y | sum.z | sum.w) & 0x4000u;  // never set: all words are 1
#pragma unroll
    for (int i = 0; i < kOwnVectors / kThreads; ++i) {
      const uint32_t at = threadIdx.x + i * kThreads + offset;
      uint4 v;
      if constexpr (kShared) {
        v = local[at];
      } else {
        asm volatile("ld.global.ca.v4.u32 {%0, %1, %2, %3}, [%4];"
                     : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                     : "l"(mine + at));
      }
      sum.x |= v.x, sum.y |= v.y, sum.z |= v.z, sum.w |= v.w;
    }
  }
  out[blockIdx.x * kThreads + threadIdx.x] = sum.x + sum.y + sum.z + sum.w;
}

// Chunks of 64 KB; in each pass a block takes another one, so that a chunk is read by all SMs in
// turn and by one at a time: a buffer that all read at once would be served once for many.
constexpr int kChunkVectors = (64 << 10) / 16;

__global__ void __launch_bounds__(kThreads, 2)
    read_rotating(const uint4* data, unsigned chunks, int passes, uint32_t* checksum) {
  uint32_t sum = 0;
  unsigned chunk = blockIdx.x % chunks;
  for (int pass = 0; pass < passes; ++pass) {
    const uint4* at = data + size_t{chunk} * kChunkVectors + threadIdx.x;
    uint4 v[kChunkVectors / kThreads];
#pragma unroll
    for (int i = 0; i < kChunkVectors / kThreads; ++i) {
      asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(v[i].x), "=r"(v[i].y), "=r"(v[i].z), "=r"(v[i].w)
                   : "l"(at + i * kThreads));
    }
#pragma unroll
    for (int i = 0; i < kChunkVectors / kThreads; ++i) sum += v[i].x + v[i].y + v[i].z + v[i].w;
    chunk += gridDim.x;  // the next round of chunks, and another SM for each
    chunk = chunk >= chunks ? (chunk + 1) % chunks : chunk;
  }
  sum = __reduce_add_sync(0xffffffffu, sum);
  if (threadIdx.x % 32 == 0) atomicAdd(checksum, sum);
}

__global__ void fill_ones(uint32_t* data, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    data[i] = 1;
  }
}

// Random words whose sum is known: each pair adds up to 2.
__global__ void fill_pairs(uint32_t* data, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i / 2) * 2654435761u + 1u;
    x ^= x << 13, x ^= x >> 17, x ^= x << 5;
    data[i] = i % 2 ? 2 - x : x;
  }
}

template <bool kShared>
void own_bandwidth(CudaRun& run, const uint4* data, const char* id, const char* path,
                   const char* how) {
  run.progress(std::string(id));
  const auto kernel = read_own<kShared>;
  const void* function = reinterpret_cast<const void*>(kernel);
  if (kShared) {
    check(cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize, kOwnBytes),
          "asking for shared memory");
  } else {
    check(cudaFuncSetAttribute(function, cudaFuncAttributePreferredSharedMemoryCarveout, 0),
          "asking for L1");
  }
  DeviceArray<uint32_t> out(static_cast<size_t>(run.sms()) * kThreads);
  out.fill_bytes(0);
  constexpr int kPasses = 4000;
  const std::vector<double> seconds = run.time(run.full() ? 15 : 7, 1, [&] {
    kernel<<<run.sms(), kThreads, kShared ? kOwnBytes : 0, run.stream>>>(data, kPasses, out.data());
  });
  bool right = true;
  for (const uint32_t value : out.host()) right = right && value == 4;  // four words of one
  const double bytes = double{kOwnBytes} * kPasses * run.sms();
  Reading reading =
      summarize(id, path, Dimension::bandwidth, rates(bytes, seconds),
                fmt::format("{}: {:.1f} bytes per clock and SM", how,
                            run.clock > 0 ? bytes / median(seconds) / run.sms() / run.clock : 0));
  if (!right) reading.doubt = "wrong sum: not everything was read";
  run.add(std::move(reading));
}

struct Rotation {
  double rate = 0;
  bool right = false;
  std::vector<double> samples;
};

Rotation rotate(CudaRun& run, const uint4* data, double bytes, uint32_t* checksum, int samples) {
  const unsigned chunks = static_cast<unsigned>(bytes / (kChunkVectors * 16));
  const int blocks = 2 * run.sms();
  // About 2 ms at 5 TB/s.
  const int passes = std::max(8, static_cast<int>(10e9 / (double{kChunkVectors} * 16 * blocks)));
  const std::vector<double> seconds = run.time(samples, 1, [&] {
    cudaMemsetAsync(checksum, 0, 4, run.stream);
    read_rotating<<<blocks, kThreads, 0, run.stream>>>(data, chunks, passes, checksum);
  });
  uint32_t sum = 0;
  check(cudaMemcpy(&sum, checksum, 4, cudaMemcpyDeviceToHost), "copying");
  const double moved = double{kChunkVectors} * 16 * blocks * passes;
  Rotation found;
  found.samples = rates(moved, seconds);
  found.rate = median(found.samples);
  found.right = sum == static_cast<uint32_t>(static_cast<uint64_t>(moved / 4));
  return found;
}

}  // namespace

void measure_caches(CudaRun& run) {
  size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total), "asking for free memory");
  const double limit = std::min(1e9, 0.4 * static_cast<double>(available));
  DeviceArray<uint4> data(static_cast<size_t>(limit) / 16);
  DeviceArray<uint32_t> checksum(1);
  fill_ones<<<run.sms() * 4, 512, 0, run.stream>>>(reinterpret_cast<uint32_t*>(data.data()),
                                                   data.size() * 4);
  check(cudaStreamSynchronize(run.stream), "filling");

  own_bandwidth<true>(run, data.data(), "shared.read", "levels.L1.read_bandwidth",
                      "16-byte loads from shared memory, no bank conflicts");
  own_bandwidth<false>(run, data.data(), "L1.read", "", "16-byte loads of 64 KB a SM through L1");

  fill_pairs<<<run.sms() * 4, 512, 0, run.stream>>>(reinterpret_cast<uint32_t*>(data.data()),
                                                    data.size() * 4);
  check(cudaStreamSynchronize(run.stream), "filling");
  // At most a third of the L2, since its two halves may each hold a copy of what both sides read;
  // in whole rounds of the grid, so that each SM has a chunk of its own at any time.
  const double round = double{kChunkVectors} * 16 * 2 * run.sms();
  const double l2 = std::max(1.0, std::floor(run.properties.l2CacheSize / 3.0 / round)) * round;
  run.progress("L2 read");
  Rotation found = rotate(run, data.data(), l2, checksum.data(), run.full() ? 15 : 7);
  Reading reading = summarize(
      "L2.read", "levels.L2.read_bandwidth", Dimension::bandwidth, found.samples,
      fmt::format("{} in chunks of 64 KB, each read by one SM at a time, past L1: {:.0f} bytes a "
                  "clock",
                  pretty_binary(l2), run.clock > 0 ? found.rate / run.clock : 0));
  if (!found.right) reading.doubt = "checksum wrong: not everything was read";
  run.add(std::move(reading));

  Curve curve{"read.all", "read past L1, all SMs", Dimension::bandwidth, {}, {}};
  const double step = run.full() ? 1.4142135623730951 : 2;
  // From where each block has a chunk of its own.
  for (double bytes = round; bytes <= limit; bytes *= step) {
    run.progress(fmt::format("read over {}", pretty_binary(bytes)));
    curve.x.push_back(bytes);
    curve.y.push_back(rotate(run, data.data(), bytes, checksum.data(), 3).rate);
  }
  run.report.curves.push_back(std::move(curve));
}

}  // namespace ridge
