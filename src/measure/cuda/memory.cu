// Device memory: read, write, copy, triad; by plain loads and by a ring of bulk copies.
#include <fmt/format.h>

#include <algorithm>

#include "base/units.h"
#include "measure/cuda/bulk.cuh"
#include "measure/cuda/run.cuh"

namespace ridge {
namespace {

constexpr int kThreads = 512;
constexpr int kLoads = 8;  // 16-byte loads in flight a thread

__device__ uint32_t sum_of(const uint4& v) { return v.x + v.y + v.z + v.w; }

// Adds a thread's sum to the launch's checksum: proves that every byte arrived.
__device__ void add_to_checksum(uint32_t sum, uint32_t* checksum) {
  sum = __reduce_add_sync(0xffffffffu, sum);
  if (threadIdx.x % 32 == 0) atomicAdd(checksum, sum);
}

__global__ void fill_random(uint4* data, size_t count) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    uint32_t x = static_cast<uint32_t>(i) * 2654435761u + 12345u;
    uint4 v;
    for (uint32_t* word : {&v.x, &v.y, &v.z, &v.w}) {
      x ^= x << 13, x ^= x >> 17, x ^= x << 5;
      *word = x & 0xbfffffffu;  // no NaN or infinity as a float
    }
    data[i] = v;
  }
}

// A block goes over consecutive tiles of kThreads x kLoads x 16 bytes = 64 KB.
__global__ void read_plain(const uint4* __restrict__ data, size_t tiles, uint32_t* checksum) {
  uint32_t sum = 0;
  for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const uint4* at = data + tile * kThreads * kLoads + threadIdx.x;
    uint4 v[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) v[i] = __ldcs(at + i * kThreads);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) sum += sum_of(v[i]);
  }
  add_to_checksum(sum, checksum);
}

__global__ void write_plain(uint4* data, size_t tiles, uint4 value) {
  for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    uint4* at = data + tile * kThreads * kLoads + threadIdx.x;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) __stcs(at + i * kThreads, value);
  }
}

__global__ void copy_plain(uint4* to, const uint4* __restrict__ from, size_t tiles) {
  for (size_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const size_t at = tile * kThreads * kLoads + threadIdx.x;
    uint4 v[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) v[i] = __ldcs(from + at + i * kThreads);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) __stcs(to + at + i * kThreads, v[i]);
  }
}

__global__ void triad_plain(float4* a, const float4* __restrict__ b, const float4* __restrict__ c,
                            size_t tiles, float factor) {
  constexpr int kHalf = kLoads / 2;
  for (size_t tile = blockIdx.x; tile < 2 * tiles; tile += gridDim.x) {
    const size_t at = tile * kThreads * kHalf + threadIdx.x;
    float4 x[kHalf], y[kHalf];
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      x[i] = __ldcs(b + at + i * kThreads);
      y[i] = __ldcs(c + at + i * kThreads);
    }
#pragma unroll
    for (int i = 0; i < kHalf; ++i) {
      __stcs(a + at + i * kThreads, float4{x[i].x + factor * y[i].x, x[i].y + factor * y[i].y,
                                           x[i].z + factor * y[i].z, x[i].w + factor * y[i].w});
    }
  }
}

constexpr size_t kTileBytes = size_t{kThreads} * kLoads * sizeof(uint4);

// Bytes that two arrays may take each.
size_t array_bytes(const CudaRun& run) {
  size_t available = 0, total = 0;
  check(cudaMemGetInfo(&available, &total), "asking for free memory");
  const double wanted = run.full() ? 16e9 : 8e9;
  const double least = 4.0 * run.properties.l2CacheSize;
  const double bytes = std::min(wanted, 0.3 * static_cast<double>(available));
  if (bytes < least) throw Error("only {} of device memory is free", pretty_bytes(bytes));
  return static_cast<size_t>(bytes) / kTileBytes * kTileBytes;
}

struct Arrays {
  explicit Arrays(CudaRun& run)
      : bytes(array_bytes(run)), a(bytes / 16), b(bytes / 16), checksum(1) {
    fill_random<<<run.sms() * 4, kThreads, 0, run.stream>>>(a.data(), a.size());
    fill_random<<<run.sms() * 4, kThreads, 0, run.stream>>>(b.data(), b.size());
    check(cudaStreamSynchronize(run.stream), "filling device memory");
  }
  size_t tiles() const { return bytes / kTileBytes; }

  size_t bytes;
  DeviceArray<uint4> a, b;
  DeviceArray<uint32_t> checksum;
};

int samples_of(const CudaRun& run) { return run.full() ? 21 : 9; }

// The sum that a read must come to, once for all variants; launched fresh each time.
uint32_t checksum_of(CudaRun& run, Arrays& arrays, const std::function<void()>& launch) {
  check(cudaMemsetAsync(arrays.checksum.data(), 0, 4, run.stream), "clearing");
  launch();
  check(cudaStreamSynchronize(run.stream), "reading");
  return arrays.checksum.host()[0];
}

void add_rate(CudaRun& run, const char* id, const char* path, double bytes,
              const std::vector<double>& seconds, std::string how, bool right) {
  Reading reading = summarize(id, path, Quantity::bandwidth, rates(bytes, seconds), std::move(how));
  if (!right) reading.doubt = "checksum wrong: not every byte was moved";
  run.add(std::move(reading));
}

// The ring of bulk copies, at several depths: how many bytes must be in flight for the full rate.
void read_by_ring(CudaRun& run, Arrays& arrays, uint32_t expected) {
  const auto launch = [&](int stages, int chunk) {
    return [&run, &arrays, stages, chunk] {
      launch_bulk_read(run.stream, run.sms(), arrays.a.data(), arrays.bytes, stages, chunk,
                       arrays.checksum.data());
    };
  };
  constexpr int kStages = 6, kChunk = 32768;
  run.progress("HBM read, bulk-copy ring");
  const bool right = checksum_of(run, arrays, launch(kStages, kChunk)) == expected;
  const std::vector<double> seconds = run.time(samples_of(run), 2, launch(kStages, kChunk));
  const double bytes = static_cast<double>(arrays.bytes);
  add_rate(run, "HBM.read", "levels.HBM.read_bandwidth", bytes, seconds,
           fmt::format("ring of {} bulk copies of {} a SM over {}, each byte summed", kStages,
                       pretty_binary(kChunk), pretty_bytes(bytes)),
           right);
  const double best = bytes / median(seconds);
  Curve curve{"HBM.in_flight", "HBM read over bytes in flight", Quantity::bandwidth, {}, {}};
  double enough = 0;
  for (const int chunk : {2048, 4096, 8192, 16384, 32768}) {
    for (const int stages : {2, 4, 6}) {
      if (stages != 4 && chunk != 32768) continue;
      run.progress(fmt::format("HBM read with {} in flight a SM", pretty_binary(chunk * stages)));
      const double rate = bytes / median(run.time(3, 1, launch(stages, chunk)));
      curve.x.push_back(static_cast<double>(chunk) * stages * run.sms());
      curve.y.push_back(rate);
      if (enough == 0 && rate >= 0.9 * best) enough = curve.x.back();
    }
  }
  if (enough > 0) {
    run.add("HBM.in_flight.90", "", Quantity::size, {enough},
            fmt::format("fewest bytes in flight, all SMs, that reach 90 % of the ring's rate: {} "
                        "a SM",
                        pretty_binary(enough / run.sms())));
  }
  run.report.curves.push_back(std::move(curve));
}

}  // namespace

void measure_memory(CudaRun& run) {
  run.progress("filling device memory");
  Arrays arrays(run);
  const int blocks = run.sms() * 4;
  const double bytes = static_cast<double>(arrays.bytes);
  const auto read = [&] {
    read_plain<<<blocks, kThreads, 0, run.stream>>>(arrays.a.data(), arrays.tiles(),
                                                    arrays.checksum.data());
  };
  // The first sum is the reference of the others; a and b hold the same numbers.
  const uint32_t expected = checksum_of(run, arrays, read);
  const bool ring = run.hopper() && bulk_available();
  if (ring) read_by_ring(run, arrays, expected);
  run.progress("HBM read, plain");
  add_rate(
      run, ring ? "HBM.read.plain" : "HBM.read", ring ? "" : "levels.HBM.read_bandwidth", bytes,
      run.time(samples_of(run), 2, read),
      fmt::format("16-byte loads, {} in flight a thread, over {}", kLoads, pretty_bytes(bytes)),
      true);
  run.progress("HBM copy");
  const auto copied = [&](const std::function<void()>& launch) {
    check(cudaMemsetAsync(arrays.b.data(), 0, arrays.bytes, run.stream), "clearing");
    launch();
    return checksum_of(run, arrays, [&] {
             read_plain<<<blocks, kThreads, 0, run.stream>>>(arrays.b.data(), arrays.tiles(),
                                                             arrays.checksum.data());
           }) == expected;
  };
  if (ring) {
    const auto launch = [&] {
      launch_bulk_copy(run.stream, run.sms(), arrays.b.data(), arrays.a.data(), arrays.bytes);
    };
    const bool right = copied(launch);
    add_rate(run, "HBM.copy", "", 2 * bytes, run.time(samples_of(run), 2, launch),
             "ring of bulk copies in and out; read + written", right);
  }
  const auto copy = [&] {
    copy_plain<<<blocks, kThreads, 0, run.stream>>>(arrays.b.data(), arrays.a.data(),
                                                    arrays.tiles());
  };
  const bool right = copied(copy);
  add_rate(run, ring ? "HBM.copy.plain" : "HBM.copy", "", 2 * bytes,
           run.time(samples_of(run), 2, copy), "16-byte loads and stores; read + written", right);
  run.progress("HBM triad, write");
  // a = b + factor c with b and c in the two halves of one array, so that both arrays do.
  const size_t half_tiles = arrays.tiles() / 2;
  const float4* halves = reinterpret_cast<const float4*>(arrays.a.data());
  add_rate(run, "HBM.triad", "", 1.5 * static_cast<double>(half_tiles * 2 * kTileBytes),
           run.time(samples_of(run), 2,
                    [&] {
                      triad_plain<<<blocks, kThreads, 0, run.stream>>>(
                          reinterpret_cast<float4*>(arrays.b.data()), halves,
                          halves + half_tiles * kThreads * kLoads, half_tiles, 0.5f);
                    }),
           "16-byte loads and stores; 2 read + 1 written", true);
  add_rate(run, "HBM.write", "", bytes,
           run.time(samples_of(run), 2,
                    [&] {
                      write_plain<<<blocks, kThreads, 0, run.stream>>>(
                          arrays.b.data(), arrays.tiles(), uint4{1, 2, 3, 4});
                    }),
           "16-byte streaming stores; a GPU does not read the line first", true);
  run.note_conditions("after HBM");
}

}  // namespace ridge
