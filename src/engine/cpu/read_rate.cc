#include "engine/cpu/read_rate.h"

#include <atomic>
#include <chrono>
#include <cstdint>

#include "measure/cpu/kernels.h"

namespace ridge::cpu {

double read_rate(ThreadTeam& team, std::span<const std::span<const std::byte>> parts) {
  // The kernels read whole steps from a cache line on. Partial steps at the ends of a part are
  // skipped.
  constexpr size_t kLine = 64, kUnit = kStep * sizeof(float);
  const KernelSet& kernels = kernel_sets().front();
  const auto threads = static_cast<size_t>(team.size());
  std::atomic<uint32_t> sink = 0;
  std::atomic<uint64_t> bytes = 0;
  const auto read_share = [&](int index) {
    const auto thread = static_cast<size_t>(index);
    for (const std::span<const std::byte> part : parts) {
      const size_t skip = (kLine - reinterpret_cast<uintptr_t>(part.data()) % kLine) % kLine;
      if (part.size() < skip + kUnit) continue;
      const size_t units = (part.size() - skip) / kUnit;
      const size_t from = units * thread / threads, to = units * (thread + 1) / threads;
      const auto* floats = reinterpret_cast<const float*>(part.data() + skip + from * kUnit);
      sink += kernels.read(floats, (to - from) * kStep, 1);
      bytes += (to - from) * kUnit;
    }
  };
  const auto start = std::chrono::steady_clock::now();
  team.run(read_share);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  return double(bytes.load()) / took.count();
}

}  // namespace ridge::cpu
