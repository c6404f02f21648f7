// When one device of a trace was idle, and why: its kernels and copies against the host's calls.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "diagnose/kernel_profile.h"
#include "diagnose/kernel_totals.h"

namespace ridge {

// A call of the CUDA or HIP runtime, as far as it explains a gap.
enum class HostCall : uint8_t {
  launch,        // of a kernel, a copy or a fill, without waiting
  graph_launch,  // of a CUDA graph
  wait,          // synchronisation, or a copy that blocks
  other,         // allocation, queries, attributes: explains nothing
};

struct TimeSpan {
  int64_t start, end;  // nanoseconds
};

struct DeviceInterval {
  TimeSpan span;
  uint32_t name;         // of the timeline that has it
  uint32_t correlation;  // of the call that launched it; 0: not known
};

struct CallInterval {
  TimeSpan span;
  HostCall kind;
  uint32_t correlation;
};

// The union of spans, in order.
class SpanUnion {
 public:
  explicit SpanUnion(std::vector<TimeSpan> spans);
  int64_t overlap(TimeSpan span) const;  // nanoseconds of `span` that the union covers

 private:
  std::vector<TimeSpan> spans_;  // in order, without overlap
  std::vector<int64_t> before_;  // before_[i]: covered by all spans before the i-th
  int64_t covered_until(int64_t time) const;
};

// The calls of one process.
class HostCalls {
 public:
  explicit HostCalls(const std::vector<CallInterval>& calls);
  const SpanUnion& launches() const { return launches_; }
  const SpanUnion& launches_and_waits() const { return all_; }
  std::optional<int64_t> launched_at(uint32_t correlation) const;
  bool is_graph(uint32_t correlation) const;

 private:
  SpanUnion launches_, all_;
  std::vector<std::pair<uint32_t, int64_t>> starts_;  // correlation, start; sorted
  std::vector<uint32_t> graphs_;                      // sorted
};

struct DeviceTimes {
  int64_t wall_ns = 0, busy_ns = 0;
  int64_t exposed_collective_ns = 0;  // collectives while nothing else ran
  std::array<int64_t, kGapCauses> gap_ns{};
  std::vector<float> neighbour_gaps_s;  // before each kernel but the first; 0: they overlap
};

// `intervals` are sorted by start. `steps` covers the marked steps of the engine; `marked`: there
// are such. `names` says which are collectives.
DeviceTimes measure_device(const std::vector<DeviceInterval>& intervals, const HostCalls& calls,
                           const SpanUnion& steps, bool marked, const KernelTotals& names);

}  // namespace ridge
