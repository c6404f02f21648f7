#include "engine/cuda/ranks/measure_sums.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/units.h"
#include "machine/atlas.h"
#include "machine/nvml.h"
#include "measure/cuda/measure_cuda.h"
#include "measure/ranks/measure_ranks.h"

#ifdef RIDGE_HAS_CUDA
#include <cuda_runtime.h>
#include <unistd.h>

#include "engine/cuda/ranks/device_all_reduce.h"
#include "engine/cuda/ranks/linked_exchange.h"
#endif

namespace ridge {

#ifdef RIDGE_HAS_CUDA
namespace {

using cuda::DeviceAllReduce;

constexpr double kLargestSum = 16 << 20;  // bytes

void check_cuda(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw Error("CUDA, {}: {}", what, cudaGetErrorString(status));
}

// Sums of the same floats, queued one after the other: zeros, which stay so.
class GpuSumCalls final : public TimedCalls {
 public:
  GpuSumCalls(DeviceAllReduce& sums, Communicator::Deadline deadline)
      : sums_(sums), deadline_(deadline) {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
    check_cuda(cudaMalloc(&values_, size_t(kLargestSum)), "allocating");
    check_cuda(cudaMemset(values_, 0, size_t(kLargestSum)), "clearing");
    check_cuda(cudaDeviceSynchronize(), "clearing");
  }
  ~GpuSumCalls() override {
    cudaFree(values_);
    cudaStreamDestroy(stream_);
  }
  GpuSumCalls(const GpuSumCalls&) = delete;
  GpuSumCalls& operator=(const GpuSumCalls&) = delete;

  void set_bytes(double bytes) { count_ = size_t(bytes) / sizeof(float); }
  void run(int calls) override {
    for (int call = 0; call < calls; ++call) sums_.queue(stream_, values_, count_);
    wait();
    if (const std::string why = sums_.failure(); !why.empty()) throw Error("{}", why);
  }

 private:
  // A rank that is missing must not hold the others for ever: NCCL's kernels have no deadline.
  void wait() {
    const auto end = std::chrono::steady_clock::now() + deadline_;
    cudaError_t status = cudaErrorNotReady;
    while ((status = cudaStreamQuery(stream_)) == cudaErrorNotReady) {
      if (std::chrono::steady_clock::now() < end) continue;
      sums_.stop();
      cudaStreamSynchronize(stream_);
      throw Error("sums of GPU ranks did not end within {} s", deadline_.count() / 1000);
    }
    check_cuda(status, "adding up");
  }

  DeviceAllReduce& sums_;
  Communicator::Deadline deadline_;
  cudaStream_t stream_ = nullptr;
  float* values_ = nullptr;
  size_t count_ = 0;
};

// Every rank measures; all get the same times.
void measure_backend(const MeasuringRank& rank, DeviceAllReduce& sums,
                     const CollectiveOptions& options, GpuSumsReport& found) {
  GpuSumCalls calls(sums, 2 * rank.ranks.deadline());
  for (const double bytes : options.sizes) {
    if (rank.progress) {
      rank.progress(fmt::format("{} sums, {}", sums.name(), pretty_binary(bytes)));
    }
    calls.set_bytes(bytes);
    CollectiveTime time = measure_calls(rank.ranks, calls, options);
    time.kind = Collective::all_reduce;
    time.bytes = bytes;
    found.times.push_back({sums.name(), time});
  }
  rank.ranks.barrier();  // nobody ends its backend while another still adds up
  sums.leave();
}

std::string device_identity() {
  int device = 0;
  char bus[32] = {}, host[128] = {};
  check_cuda(cudaGetDevice(&device), "looking at a device");
  check_cuda(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "looking at a device");
  gethostname(host, sizeof host - 1);
  return fmt::format("{} {}", host, bus);
}

GpuSumsReport measure_sums_on(const MeasuringRank& rank, Effort effort) {
  constexpr size_t kLongest = size_t(kLargestSum) / sizeof(float);
  Communicator& ranks = rank.ranks;
  cuda::use_device_of(ranks.rank());
  GpuSumsReport found;
  found.ranks = ranks.size();
  found.devices = count_different(ranks, device_identity());
  CollectiveOptions options;
  options.seconds_each = effort == Effort::quick ? 0.08 : 0.4;
  options.oversubscribed = found.ranks_share_a_device();
  for (double bytes = 1024; bytes <= kLargestSum; bytes *= 4) options.sizes.push_back(bytes);

  std::string why;
  if (const auto direct = cuda::make_direct_all_reduce(ranks, kLongest, ranks.deadline(), why)) {
    measure_backend(rank, *direct, options, found);
  } else {
    found.missing.push_back("direct: " + why);
  }
  if (found.ranks_share_a_device()) {
    found.missing.push_back("NCCL: takes one GPU for each rank");
  } else if (const auto nccl = cuda::make_nccl_all_reduce(ranks, ranks.deadline(), why)) {
    measure_backend(rank, *nccl, options, found);
  } else {
    found.missing.push_back("NCCL: " + why);
  }
  measure_backend(rank, *cuda::make_host_all_reduce(ranks, kLongest), options, found);
  return found;
}

}  // namespace

GpuSumsReport measure_gpu_sums(int ranks, Effort effort, const StepProgress& progress) {
  GpuSumsReport found;
  on_every_rank(ranks, progress,
                [&](const MeasuringRank& rank) { found = measure_sums_on(rank, effort); });
  found.device = cuda_devices().names.at(0);
  return found;
}

#else

GpuSumsReport measure_gpu_sums(int, Effort, const StepProgress&) {
  throw Error("{}", cuda_devices().why_none);
}

#endif

std::optional<RankLink> GpuSumsReport::link() const {
  const GpuSumTime *smallest = nullptr, *largest = nullptr;
  for (const GpuSumTime& sum : times) {
    if (sum.backend != "direct") continue;
    if (!smallest || sum.time.bytes < smallest->time.bytes) smallest = &sum;
    if (!largest || sum.time.bytes > largest->time.bytes) largest = &sum;
  }
  if (smallest == largest || ranks_share_a_device()) return std::nullopt;
  // The smallest is one-shot, with next to no bytes; the largest two-shot, but between two ranks,
  // which move as many bytes either way.
  const double bytes = largest->time.bytes;
  const Traffic traffic = ranks == 2 ? one_shot_traffic(bytes, 2) : two_shot_traffic(bytes, ranks);
  RankLink found;
  found.latency = smallest->time.seconds;
  found.per_byte =
      std::max((largest->time.seconds - traffic.steps * found.latency) / traffic.bytes, 1e-15);
  return found;
}

std::optional<double> GpuSumsReport::predicted_s(const GpuSumTime& sum) const {
  const std::optional<RankLink> by = link();
  if (!by || sum.backend == "host") return std::nullopt;
  return collective_seconds(Collective::all_reduce, sum.time.bytes, ranks, by->per_byte,
                            by->latency, sum.backend == "direct");
}

nlohmann::json gpu_sums_to_json(const GpuSumsReport& found, const std::string& date,
                                Effort effort) {
  Report report;
  const std::optional<std::string> known = machine_of_device_name(found.device);
  const std::optional<RankLink> link = found.link();
  if (known) report.base = find_machine(*known);
  report.base.name = known.value_or(found.device);
  if (known && link && !report.base.links.empty()) {
    const std::string path = "links." + report.base.links.front().name;
    const std::string how = fmt::format("direct sums of {} ranks", found.ranks);
    report.readings = {summarize("ranks.latency", path + ".latency", Dimension::time,
                                 {link->latency}, how + ", the smallest"),
                       summarize("ranks.bandwidth", path + ".bandwidth", Dimension::bandwidth,
                                 {1 / link->per_byte}, how + ", the largest less its latencies")};
  }
  nlohmann::json file = report_to_json(report, date, effort);
  nlohmann::json& ranks = file["measurement"]["gpu_ranks"];
  ranks = {{"ranks", found.ranks},
           {"devices", found.devices},
           {"device", found.device},
           {"missing", found.missing},
           {"sums", nlohmann::json::array()}};
  for (const GpuSumTime& sum : found.times) {
    const CollectiveTime& time = sum.time;
    nlohmann::json item = {{"backend", sum.backend},
                           {"bytes", time.bytes},
                           {"seconds", time.seconds},
                           {"p10", time.low},
                           {"p90", time.high},
                           {"samples", time.samples},
                           {"bytes_per_s", time.bytes / time.seconds}};
    if (const auto predicted = found.predicted_s(sum)) item["predicted_s"] = *predicted;
    if (!time.doubt.empty()) item["doubt"] = time.doubt;
    ranks["sums"].push_back(std::move(item));
  }
  return file;
}

}  // namespace ridge
