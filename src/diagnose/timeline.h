// Intervals of kernels, copies and the host's calls, collected from a trace in any order, and the
// profile that they make: busy time, gaps by cause, exposed collectives, families.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "diagnose/device_gaps.h"
#include "diagnose/kernel_profile.h"
#include "diagnose/kernel_totals.h"

namespace ridge {

// By the function's name and duration: an asynchronous copy that takes long was made to wait.
HostCall host_call_kind(std::string_view function, int64_t duration_ns);

// A step of the engine, as an annotation of the trace names it.
struct StepAnnotation {
  enum class Source : uint8_t { none, profiler, forward, engine, execute } source = Source::none;
  double prefill_tokens = 0, decode_tokens = 0;
};
// Source::none where the text does not mark a step. "ProfilerStep#6"; SGLang: "step[DECODE bs=32]",
// "step[EXTEND bs=2 toks=512]"; vLLM: "execute_context_1(512)_generation_8(8)", also with sums of
// squares as profilers of attention write them, and the forward pass alone; TensorRT-LLM:
// "[Executor] _forward_step 25: 1 ctx reqs, 8 gen reqs".
StepAnnotation parse_step_annotation(std::string_view text);

// Times are nanoseconds of any clock that all intervals share. The memory is bounded: 24 bytes per
// kernel, copy and call, at most `most_intervals` of them; later ones are counted and left out.
class Timeline {
 public:
  explicit Timeline(size_t most_intervals = 12'000'000) : most_(most_intervals) {}

  // The number of a kernel's or copy's name.
  uint32_t intern(std::string_view name) { return totals_.intern(name); }
  uint32_t intern(std::string_view name, KernelFamily family) {
    return totals_.intern(name, family);
  }

  // `device` is any number; `process` is the one whose calls explain this device's gaps. The
  // correlation is that of the call that launched it, 0: not known. Negative durations, and times
  // that no trace can have, are left out and counted.
  void add_kernel(int64_t device, uint32_t process, int64_t start_ns, int64_t duration_ns,
                  uint32_t name, uint32_t correlation, bool in_graph = false);
  enum class Copy : uint8_t { host_to_device, device_to_host, other };
  void add_copy(int64_t device, uint32_t process, int64_t start_ns, int64_t duration_ns,
                uint32_t name, uint32_t correlation, Copy direction, double bytes);
  void add_call(uint32_t process, int64_t start_ns, int64_t duration_ns, HostCall kind,
                uint32_t correlation);
  // A step without a time (a table's row) has a duration of 0.
  void add_step(const StepAnnotation& step, int64_t start_ns, int64_t duration_ns,
                double count = 1);

  size_t kernels() const { return kernels_; }
  size_t impossible() const { return impossible_; }  // intervals with times that cannot be
  size_t left_out() const { return left_out_; }      // intervals beyond the limit
  bool has_calls() const { return !calls_.empty(); }

  // Means over the devices. wall_s runs from the first to the last kernel or copy of a device;
  // waits before and after are not in it. busy_s, kernel_s and the families include copies;
  // `launches` are kernels. gap_s has the gaps above 5 us, so busy_s and gap_s add up to less than
  // wall_s. Waits for work that the file does not have are GapCause::outside: wall_s less these is
  // what shares refer to.
  KernelProfile profile(std::string tool);

 private:
  struct Device {
    int64_t id;
    uint32_t process;
    std::vector<DeviceInterval> intervals;
  };
  struct StepSums {
    double steps = 0, prefill = 0, decode = 0;
  };

  bool accept(int64_t start_ns, int64_t duration_ns);
  void add_interval(int64_t device, uint32_t process, const DeviceInterval& interval);
  void fill_steps(KernelProfile& profile) const;
  void fill_times(KernelProfile& profile);

  size_t most_, kept_ = 0, kernels_ = 0, impossible_ = 0, left_out_ = 0;
  KernelTotals totals_;
  std::vector<Device> devices_;
  std::unordered_map<uint32_t, std::vector<CallInterval>> calls_;  // of each process
  std::vector<TimeSpan> step_spans_;
  StepSums steps_[5];  // by StepAnnotation::Source
  double graph_kernels_ = 0, graph_launches_ = 0;
  double host_to_device_ns_ = 0, host_to_device_bytes_ = 0;
};

}  // namespace ridge
