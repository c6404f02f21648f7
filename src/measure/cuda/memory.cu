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

// One 16-byte store, or two loads and stores, a thread in launches as large as the array. The
// hardware hands out blocks in order, so all SMs work on one narrow front; a grid that stays and
// strides loses 5 to 8 % here (write 4.71 against 4.33 TB/s, copy 4.25 against 3.96 on an H200), as
// does a ring of bulk copies (copy 3.92), while reads do not care.
constexpr int kFrontThreads = 128;

__global__ void write_front(uint4* data, uint4 value) {
  data[size_t{blockIdx.x} * blockDim.x + threadIdx.x] = value;
}

__global__ void copy_front(uint4* to, const uint4* __restrict__ from) {
  const size_t at = size_t{blockIdx.x} * (2 * kFrontThreads) + threadIdx.x;
  const uint4 first = from[at], second = from[at + kFrontThreads];
  to[at] = first;
  to[at + kFrontThreads] = second;
}

__global__ void triad_front(float4* a, const float4* __restrict__ b, const float4* __restrict__ c,
                            float factor) {
  const size_t at = size_t{blockIdx.x} * kFrontThreads + threadIdx.x;
  const float4 x = b[at], y = c[at];
  a[at] = float4{x.x + factor * y.x, x.y + factor * y.y, x.z + factor * y.z, x.w + factor * y.w};
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
  Reading reading =
      summarize(id, path, Dimension::bandwidth, rates(bytes, seconds), std::move(how));
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
  Curve curve{"HBM.in_flight", "HBM read over bytes in flight", Dimension::bandwidth, {}, {}};
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
    run.add("HBM.in_flight.90", "", Dimension::size, {enough},
            fmt::format("fewest bytes in flight, all SMs, that reach 90 % of the ring's rate: {} "
                        "a SM",
                        pretty_binary(enough / run.sms())));
  }
  run.report.curves.push_back(std::move(curve));
}

void copy_and_write(CudaRun& run, Arrays& arrays, uint32_t expected,
                    const std::function<void(const uint4*)>& read_of) {
  const double bytes = static_cast<double>(arrays.bytes);
  const unsigned vectors = static_cast<unsigned>(arrays.bytes / 16);
  const auto copy = [&] {
    copy_front<<<vectors / (2 * kFrontThreads), kFrontThreads, 0, run.stream>>>(arrays.b.data(),
                                                                                arrays.a.data());
  };
  const auto by_driver = [&] {
    cudaMemcpyAsync(arrays.b.data(), arrays.a.data(), arrays.bytes, cudaMemcpyDeviceToDevice,
                    run.stream);
  };
  const auto arrives = [&](const std::function<void()>& launch) {
    check(cudaMemsetAsync(arrays.b.data(), 0, arrays.bytes, run.stream), "clearing");
    launch();
    return checksum_of(run, arrays, [&] { read_of(arrays.b.data()); }) == expected;
  };
  run.progress("HBM copy");
  const bool copied = arrives(copy), driver_copied = arrives(by_driver);
  add_rate(run, "HBM.copy", "", 2 * bytes, run.time(samples_of(run), 2, copy),
           "two 16-byte loads and stores a thread; read + written", copied);
  add_rate(run, "HBM.copy.driver", "", 2 * bytes, run.time(samples_of(run), 2, by_driver),
           "cudaMemcpyAsync; read + written", driver_copied);
  run.progress("HBM triad, write");
  // a = b + factor c with b and c in the two halves of one array, so that two arrays do.
  const float4* halves = reinterpret_cast<const float4*>(arrays.a.data());
  add_rate(run, "HBM.triad", "", 1.5 * bytes,
           run.time(samples_of(run), 2,
                    [&] {
                      triad_front<<<vectors / 2 / kFrontThreads, kFrontThreads, 0, run.stream>>>(
                          reinterpret_cast<float4*>(arrays.b.data()), halves, halves + vectors / 2,
                          0.5f);
                    }),
           "one float4 of each array a thread; 2 read + 1 written", true);
  const auto write = [&] {
    write_front<<<vectors / 1024, 1024, 0, run.stream>>>(arrays.b.data(), uint4{1, 2, 3, 4});
  };
  const std::vector<double> seconds = run.time(samples_of(run), 2, write);
  const uint32_t sum = checksum_of(run, arrays, [&] { read_of(arrays.b.data()); });
  add_rate(run, "HBM.write", "", bytes, seconds,
           "one 16-byte store a thread; a GPU does not read the line first", sum == 10 * vectors);
}

}  // namespace

void measure_memory(CudaRun& run) {
  run.progress("filling device memory");
  Arrays arrays(run);
  const int blocks = run.sms() * 4;
  const double bytes = static_cast<double>(arrays.bytes);
  const auto read_of = [&](const uint4* data) {
    read_plain<<<blocks, kThreads, 0, run.stream>>>(data, arrays.tiles(), arrays.checksum.data());
  };
  const auto read = [&] { read_of(arrays.a.data()); };
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
  copy_and_write(run, arrays, expected, read_of);
  run.note_conditions("after HBM");
}

}  // namespace ridge
