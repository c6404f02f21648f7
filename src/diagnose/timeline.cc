#include "diagnose/timeline.h"

#include <algorithm>
#include <utility>

namespace ridge {
namespace {

constexpr double kNanosecond = 1e-9;

double median_of(std::vector<float>& values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool contains_text(std::string_view text, std::string_view part) {
  return text.find(part) != text.npos;
}

}  // namespace

HostCall host_call_kind(std::string_view function, int64_t duration_ns) {
  if (contains_text(function, "GraphLaunch")) return HostCall::graph_launch;
  if (contains_text(function, "Launch")) return HostCall::launch;
  // The names of waits: cudaStreamSynchronize, cudaEventSynchronize, cuCtxSynchronize, ...
  // cudaStreamWaitEvent does not block the host.
  if (contains_text(function, "Synchronize")) return HostCall::wait;
  const bool copy = contains_text(function, "Memcpy");
  if (!copy && !contains_text(function, "Memset")) return HostCall::other;
  // A copy from pageable memory returns when it is done, whatever its name says.
  constexpr int64_t kLongestIssue = 50'000;
  const bool blocks = (copy && !contains_text(function, "Async")) || duration_ns > kLongestIssue;
  return blocks ? HostCall::wait : HostCall::launch;
}

bool Timeline::accept(int64_t start_ns, int64_t duration_ns) {
  // Seconds since 1970 in nanoseconds are 1.8e18; no kernel runs for a day.
  constexpr int64_t kLatest = 4'000'000'000'000'000'000, kLongest = 86'400'000'000'000;
  if (start_ns < -kLatest || start_ns > kLatest || duration_ns < 0 || duration_ns > kLongest) {
    ++impossible_;
    return false;
  }
  if (kept_ == most_) {
    ++left_out_;
    return false;
  }
  ++kept_;
  return true;
}

void Timeline::add_interval(int64_t device, uint32_t process, const DeviceInterval& interval) {
  const auto same = [&](const Device& d) { return d.id == device && d.process == process; };
  // Events of one device follow each other: the last one used is the likeliest.
  auto place = std::find_if(devices_.begin(), devices_.end(), same);
  if (place == devices_.end()) {
    // More devices than any host has are damage; their kernels are one device's.
    constexpr size_t kMostDevices = 1024;
    if (devices_.size() == kMostDevices)
      place = devices_.begin();
    else
      place = devices_.insert(devices_.end(), Device{device, process, {}});
  }
  place->intervals.push_back(interval);
  totals_.add(interval.name, double(interval.span.end - interval.span.start) * kNanosecond, 1);
}

void Timeline::add_kernel(int64_t device, uint32_t process, int64_t start_ns, int64_t duration_ns,
                          uint32_t name, uint32_t correlation, bool in_graph) {
  if (!accept(start_ns, duration_ns)) return;
  add_interval(device, process, {{start_ns, start_ns + duration_ns}, name, correlation});
  ++kernels_;
  if (in_graph) ++graph_kernels_;
}

void Timeline::add_copy(int64_t device, uint32_t process, int64_t start_ns, int64_t duration_ns,
                        uint32_t name, uint32_t correlation, Copy direction, double bytes) {
  if (!accept(start_ns, duration_ns)) return;
  add_interval(device, process, {{start_ns, start_ns + duration_ns}, name, correlation});
  if (direction != Copy::host_to_device) return;
  host_to_device_ns_ += double(duration_ns);
  if (bytes > 0 && bytes < 1e18) host_to_device_bytes_ += bytes;
}

void Timeline::add_call(uint32_t process, int64_t start_ns, int64_t duration_ns, HostCall kind,
                        uint32_t correlation) {
  if (kind == HostCall::other || !accept(start_ns, duration_ns)) return;
  calls_[process].push_back({{start_ns, start_ns + duration_ns}, kind, correlation});
  if (kind == HostCall::graph_launch) ++graph_launches_;
}

void Timeline::add_step(const StepAnnotation& step, int64_t start_ns, int64_t duration_ns,
                        double count) {
  if (step.source == StepAnnotation::Source::none || !accept(start_ns, duration_ns)) return;
  StepSums& sums = steps_[size_t(step.source)];
  sums.steps += count;
  sums.prefill += count * step.prefill_tokens;
  sums.decode += count * step.decode_tokens;
  if (duration_ns > 0) step_spans_.push_back({start_ns, start_ns + duration_ns});
}

void Timeline::fill_steps(KernelProfile& profile) const {
  for (size_t source = std::size(steps_); source-- > 0;) {
    if (steps_[source].steps == 0) continue;
    profile.steps = steps_[source].steps;
    profile.prefill_tokens = steps_[source].prefill;
    profile.decode_tokens = steps_[source].decode;
    return;
  }
}

void Timeline::fill_times(KernelProfile& profile) {
  const SpanUnion steps(step_spans_);
  std::vector<float> gaps, durations;
  double graph_kernels = 0;
  for (Device& device : devices_) {
    std::sort(device.intervals.begin(), device.intervals.end(),
              [](const DeviceInterval& a, const DeviceInterval& b) {
                return a.span.start < b.span.start;
              });
    const HostCalls calls(calls_[device.process]);
    const DeviceTimes times =
        measure_device(device.intervals, calls, steps, !step_spans_.empty(), totals_);
    const double share = kNanosecond / profile.devices;
    profile.wall_s += double(times.wall_ns) * share;
    profile.busy_s += double(times.busy_ns) * share;
    profile.exposed_collective_s += double(times.exposed_collective_ns) * share;
    for (size_t cause = 0; cause < kGapCauses; ++cause)
      profile.gap_s[cause] += double(times.gap_ns[cause]) * share;
    gaps.insert(gaps.end(), times.neighbour_gaps_s.begin(), times.neighbour_gaps_s.end());
    for (const DeviceInterval& interval : device.intervals) {
      if (totals_.is_copy(interval.name)) continue;
      durations.push_back(float(double(interval.span.end - interval.span.start) * kNanosecond));
      graph_kernels += calls.is_graph(interval.correlation);
    }
  }
  profile.median_gap_s = median_of(gaps);
  profile.median_kernel_s = median_of(durations);
  profile.graph_kernels = std::max(graph_kernels, graph_kernels_) / profile.devices;
}

KernelProfile Timeline::profile(std::string tool) {
  KernelProfile profile;
  profile.tool = std::move(tool);
  profile.devices = std::max(1, int(devices_.size()));
  profile.launches = double(kernels_) / profile.devices;
  profile.graph_launches = graph_launches_ / profile.devices;
  profile.host_to_device_s = host_to_device_ns_ * kNanosecond / profile.devices;
  profile.host_to_device_bytes = host_to_device_bytes_ / profile.devices;
  totals_.fill(profile);
  fill_steps(profile);
  fill_times(profile);
  return profile;
}

}  // namespace ridge
