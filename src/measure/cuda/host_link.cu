// Between the host's memory and the device's.
#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <memory>

#include "measure/cuda/run.cuh"

namespace ridge {
namespace {

constexpr size_t kBytes = size_t{256} << 20;

struct FreeHost {
  void operator()(void* memory) const { cudaFreeHost(memory); }
};
using Pinned = std::unique_ptr<char, FreeHost>;

Pinned pinned(size_t bytes) {
  void* memory = nullptr;
  check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "pinning host memory");
  std::memset(memory, 1, bytes);
  return Pinned(static_cast<char*>(memory));
}

class SecondStream {
 public:
  SecondStream() { check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "a stream"); }
  ~SecondStream() { cudaStreamDestroy(stream); }
  SecondStream(const SecondStream&) = delete;
  SecondStream& operator=(const SecondStream&) = delete;
  cudaStream_t stream = nullptr;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

void measure_host_link(CudaRun& run) {
  run.progress("host link");
  const int samples = run.full() ? 9 : 5;
  const Pinned in = pinned(kBytes), out = pinned(kBytes);
  DeviceArray<char> up(kBytes), down(kBytes);
  down.fill_bytes(2);
  const double bytes = static_cast<double>(kBytes);
  const auto to_device = [&](cudaStream_t stream) {
    cudaMemcpyAsync(up.data(), in.get(), kBytes, cudaMemcpyHostToDevice, stream);
  };
  const auto to_host = [&](cudaStream_t stream) {
    cudaMemcpyAsync(out.get(), down.data(), kBytes, cudaMemcpyDeviceToHost, stream);
  };
  run.add("host.to_device", "levels.host.read_bandwidth", Dimension::bandwidth,
          rates(bytes, run.time(samples, 4, [&] { to_device(run.stream); })),
          "256 MiB pinned, copy engine");
  run.add("host.from_device", "", Dimension::bandwidth,
          rates(bytes, run.time(samples, 4, [&] { to_host(run.stream); })),
          "256 MiB pinned, copy engine");
  const SecondStream other;
  std::vector<double> both, pageable_up, pageable_down;
  const std::vector<char> pages(kBytes, 3);
  std::vector<char> landing(kBytes, 0);
  for (int sample = 0; sample <= samples; ++sample) {
    double start = now();
    for (int i = 0; i < 4; ++i) {
      to_device(run.stream);
      to_host(other.stream);
    }
    check(cudaStreamSynchronize(run.stream), "copying");
    check(cudaStreamSynchronize(other.stream), "copying");
    const double two_ways = 8 * bytes / (now() - start);
    start = now();
    check(cudaMemcpy(up.data(), pages.data(), kBytes, cudaMemcpyHostToDevice), "copying");
    const double paged_up = bytes / (now() - start);
    start = now();
    check(cudaMemcpy(landing.data(), down.data(), kBytes, cudaMemcpyDeviceToHost), "copying");
    const double paged_down = bytes / (now() - start);
    if (sample == 0) continue;  // warm-up
    both.push_back(two_ways);
    pageable_up.push_back(paged_up);
    pageable_down.push_back(paged_down);
  }
  run.add("link.both_ways", "", Dimension::bandwidth, both, "pinned, both directions added");
  run.add("link.pageable.to_device", "", Dimension::bandwidth, pageable_up,
          "256 MiB of ordinary memory, through the driver's staging");
  run.add("link.pageable.from_device", "", Dimension::bandwidth, pageable_down,
          "256 MiB into ordinary memory");
  if (out.get()[kBytes - 1] != 2 || landing.back() != 2) {
    run.report.readings.back().doubt = "wrong bytes arrived";
  }
}

}  // namespace ridge
