// Any bytes as a PyTorch trace: an Error, or a profile whose parts fit into each other.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "base/error.h"
#include "diagnose/readers/pytorch_trace.h"
#include "diagnose/readers/reader.h"
#include "replay.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto require = [](bool holds) {
    if (!holds) std::abort();
  };
  std::string_view text(reinterpret_cast<const char*>(data), size);
  ridge::is_pytorch_trace(text);
  // Pieces and a buffer so small that values cross their ends.
  ridge::JsonStream stream(
      [&](char* into, size_t room) {
        const size_t count = std::min<size_t>({room, 100, text.size()});
        std::memcpy(into, text.data(), count);
        text.remove_prefix(count);
        return count;
      },
      1000);
  try {
    const ridge::EvidenceFile file = ridge::read_pytorch_trace_events(stream, "fuzz");
    if (!file.profile) return 0;
    const ridge::KernelProfile& profile = *file.profile;
    double gaps = 0, families = 0;
    for (double gap : profile.gap_s) {
      require(gap >= 0);
      gaps += gap;
    }
    for (const ridge::FamilyTime& family : profile.families) families += family.seconds;
    require(profile.devices >= 1 && profile.launches > 0);
    require(std::isfinite(profile.wall_s) && std::isfinite(profile.kernel_s));
    require(profile.busy_s + gaps <= profile.wall_s * (1 + 1e-9) + 1e-9);
    require(profile.exposed_collective_s <= profile.busy_s * (1 + 1e-9));
    require(std::abs(families - profile.kernel_s) <= 1e-9 * (1 + families));
    require(profile.kernels.size() <= 40);
  } catch (const ridge::Error&) {
  }
  return 0;
}

std::vector<std::string> fuzz_seeds() {
  return {
      "{\"deviceProperties\": [{\"id\": 0, \"name\": \"NVIDIA H100\"}], \"with_stack\": 1, "
      "\"distributedInfo\": {\"world_size\": 2}, \"traceEvents\": ["
      "{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"step[DECODE bs=8]\", \"ts\": 1, "
      "\"dur\": 90}, {\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernel\", "
      "\"ts\": 2.5, \"dur\": 5, \"args\": {\"correlation\": 1}}, "
      "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"void gemm<1>()\", \"pid\": 0, "
      "\"ts\": 10.125, \"dur\": 30, \"args\": {\"device\": 0, \"correlation\": 1}}, "
      "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"nccl\", \"ts\": 60.5, \"dur\": 3, "
      "\"args\": {\"device\": 1, \"correlation\": 2}}, "
      "{\"ph\": \"X\", \"cat\": \"gpu_memcpy\", \"name\": \"Memcpy HtoD\", \"ts\": 70, \"dur\": 1, "
      "\"args\": {\"device\": 0, \"bytes\": 4096}}], \"traceName\": \"x\"}",
      "[{\"cat\": \"Kernel\", \"name\": \"_ZN5aiter4normE\", \"ts\": \"1600000000000001\", "
      "\"dur\": \"7\"}, {\"cat\": \"Runtime\", \"name\": \"cudaStreamSynchronize\", \"ts\": "
      "1.6e15, "
      "\"dur\": 2e3}]",
  };
}
