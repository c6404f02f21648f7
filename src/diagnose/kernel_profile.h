// What kernels did in a profile or a trace, whichever tool wrote it.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace ridge {

// What a kernel computes. kernel_names.h finds it from the kernel's name.
enum class KernelFamily : uint8_t {
  collective,
  experts,
  routing,
  kv_write,
  attention,
  gemm,
  norm,
  rope,
  activation,
  quantize,
  sampling,
  embedding,
  elementwise,  // unfused arithmetic, casts, concatenation, reductions
  copy,         // copies and fills by the driver
  other,
  count_
};
inline constexpr size_t kKernelFamilies = static_cast<size_t>(KernelFamily::count_);
const char* kernel_family_name(KernelFamily family);

// Why the device had nothing to run.
enum class GapCause : uint8_t {
  launch,       // the host was inside a launch call
  synchronize,  // the host waited for the device, a copy or an event
  host,         // the host ran neither: Python, scheduling, sampling on the CPU
  outside,      // the trace begins or ends there, or the work that is waited for is not in it
  count_
};
inline constexpr size_t kGapCauses = static_cast<size_t>(GapCause::count_);
const char* gap_cause_name(GapCause cause);

struct FamilyTime {
  double seconds = 0;
  double launches = 0;
};

// All launches of one kernel. Shares are of the device's peak, 0 to 1.
struct KernelTime {
  std::string name;  // demangled, shortened
  KernelFamily family = KernelFamily::other;
  double seconds = 0;
  double launches = 0;
  // Counters, where the tool has them (Nsight Compute).
  std::optional<double> dram_bytes, flops;  // of all launches
  std::optional<double> memory_share;       // memory throughput (DRAM, else the busiest level)
  std::optional<double> dram_share;
  std::optional<double> compute_share;  // SM throughput
  std::optional<double> tensor_share;   // tensor pipe busy
  std::optional<double> occupancy;      // warps active
  std::optional<double> waves;          // of blocks per SM
};

struct KernelProfile {
  std::string tool;           // "PyTorch trace", "Nsight Systems", "Nsight Compute"
  int devices = 1;            // devices or ranks in the file; times are means over them
  double wall_s = 0;          // first start to last end, or as stated; 0: the file has no time line
  double busy_s = 0;          // union of the kernels' intervals; 0: no time line
  double kernel_s = 0;        // sum of the kernels' durations
  double launches = 0;        // kernels
  double graph_launches = 0;  // launches of CUDA graphs
  double graph_kernels = 0;   // of `launches`, those that a graph started
  double median_kernel_s = 0;
  double median_gap_s = 0;  // between neighbouring kernels; 0: no time line
  std::array<double, kGapCauses> gap_s{};
  double exposed_collective_s = 0;  // collectives while nothing else ran
  double host_to_device_s = 0, host_to_device_bytes = 0;
  std::array<FamilyTime, kKernelFamilies> families{};
  std::vector<KernelTime> kernels;  // longest first, at most 40
  bool serialized = false;  // the tool ran one kernel at a time (ncu): times are not the run's
  bool with_stack = false;  // Python stacks were recorded: host gaps are upper bounds
  // Steps, where the file marks them.
  double steps = 0;
  double prefill_tokens = 0;  // prompt tokens of all marked steps
  double decode_tokens = 0;   // output tokens of all marked steps

  double family_s(KernelFamily f) const { return families[static_cast<size_t>(f)].seconds; }
  double gap(GapCause c) const { return gap_s[static_cast<size_t>(c)]; }
};

}  // namespace ridge
