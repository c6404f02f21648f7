// Any bytes as tables of Nsight Compute and Nsight Systems: an Error, nothing, or finite sums.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "diagnose/readers/reader.h"
#include "replay.h"

namespace {

void check(const std::optional<ridge::EvidenceFile>& file) {
  const auto require = [](bool holds) {
    if (!holds) std::abort();
  };
  if (!file || !file->profile) return;
  const ridge::KernelProfile& profile = *file->profile;
  require(std::isfinite(profile.kernel_s) && profile.kernel_s >= 0);
  require(std::isfinite(profile.launches) && profile.launches >= 0);
  require(profile.busy_s >= 0 && profile.busy_s <= profile.wall_s * (1 + 1e-9) + 1e-9);
  require(profile.kernels.size() <= 40);
  for (const ridge::KernelTime& kernel : profile.kernels) {
    require(std::isfinite(kernel.seconds) && kernel.seconds >= 0);
    require(std::isfinite(kernel.dram_bytes.value_or(0)) && kernel.dram_bytes.value_or(0) >= 0);
    require(kernel.memory_share.value_or(0) >= 0 && kernel.memory_share.value_or(0) <= 10);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    check(ridge::read_nsight_compute(text, "fuzz"));
  } catch (const ridge::Error&) {
  }
  try {
    ridge::ReadOptions options;
    options.wall_time_s = 1.5;
    check(ridge::read_nsight_systems_csv(text, "fuzz", options));
  } catch (const ridge::Error&) {
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      "==PROF== Connected\n\"ID\",\"Kernel Name\",\"Section Name\",\"Metric Name\","
      "\"Metric Unit\",\"Metric Value\"\n"
      "\"0\",\"void gemm<1>()\",\"S\",\"Duration\",\"us\",\"1,018.34\"\n"
      "\"0\",\"void gemm<1>()\",\"S\",\"Memory Throughput\",\"%\",\"54.36\"\n"
      "\"0\",\"void gemm<1>()\",\"M\",\"Memory Throughput\",\"Gbyte/s\",\"958.09\"\n",
      "\"ID\",\"Kernel Name\",\"dram__bytes.sum\",\"gpu__time_duration.sum\"\n\"\",\"\",\"Mbyte\","
      "\"us\"\n\"0\",\"gemv\",\"17,5\",\"18.340.000\"\n",
      "  gemv(int) (1024, 1, 1)x(128, 1, 1), Context 1, Stream 7, Device 0, CC 8.6\n"
      "    Section: GPU Speed Of Light Throughput\n    Duration    us    18.34\n"
      "    Memory Throughput    %    91.2\n",
      "NOTICE: x\nTime (%),Total Time (ns),Instances,Avg (ns),Med (ns),Name\n"
      "80.0,\"8,000,000\",1000,8000.0,7000.0,\"void gemm<int, 4>(int)\"\n\n"
      "Time (%),Total Time (us),Num Calls,Avg (us),Name\n1,2,3,4,cudaGraphLaunch\n\n"
      "Total (MB),Count,Operation\n1.5,3,[CUDA memcpy HtoD]\n\n"
      "Time (%),Total Time (ns),Instances,Style,Range\n1,2,3,PushPop,:step[DECODE bs=8]\n",
      "Start (ns),Duration (ns),CorrId,Bytes (MB),Device,Name\n10,50,1,,NVIDIA H100 (0),gemm\n"
      "90,5,2,2.5,NVIDIA H100 (0),[CUDA memcpy Host-to-Device]\n"
      "Start (ns),Duration (ns),Name,Result,CorrID\n60,20,cudaMemcpyAsync,0,2\n",
      " Time (%)  Total Time (ns)  Instances  Name\n --------  -----  ---  ----\n"
      "  75.0   3,000,000   30  void flash_fwd<int, 4>(int)\n",
  };
}
