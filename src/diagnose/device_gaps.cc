#include "diagnose/device_gaps.h"

#include <algorithm>

namespace ridge {
namespace {

constexpr int64_t kMicrosecond = 1000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;
// Shorter gaps are the device's own: the time between two kernels of a full queue or of a graph.
constexpr int64_t kShortestGap = 5 * kMicrosecond;
// The host wakes up within this time after the device is done. A longer wait beside an idle device
// is for work that the trace does not have.
constexpr int64_t kLongestWakeUp = kMillisecond;
// The host does not need longer between two steps, or, where none are marked, between two launches:
// there was no work.
constexpr int64_t kNoWorkBetweenSteps = 100 * kMillisecond, kNoWork = kSecond;
// Damaged clocks, or two recordings in one file.
constexpr int64_t kLongestGap = 600 * kSecond;

std::vector<TimeSpan> spans_of(const std::vector<CallInterval>& calls, bool waits) {
  std::vector<TimeSpan> spans;
  for (const CallInterval& call : calls)
    if (waits || call.kind != HostCall::wait) spans.push_back(call.span);
  return spans;
}

// Splits a gap before `next` by what the host did in it.
void attribute_gap(TimeSpan gap, const DeviceInterval& next, const HostCalls& calls,
                   const SpanUnion& steps, bool marked, DeviceTimes& times) {
  const auto add = [&](GapCause cause, int64_t ns) { times.gap_ns[size_t(cause)] += ns; };
  // From its launch on, a kernel waits for the device: for the launch's latency, or for an event
  // of another device or process.
  TimeSpan queued{gap.end, gap.end};
  if (const std::optional<int64_t> launch = calls.launched_at(next.correlation))
    if (*launch < gap.end) queued.start = std::max(gap.start, *launch);
  const int64_t issuing = calls.launches().overlap(queued);
  const int64_t latency = queued.end - queued.start - issuing;
  add(GapCause::launch, issuing);
  add(latency > kLongestWakeUp ? GapCause::outside : GapCause::launch, latency);

  const TimeSpan before{gap.start, queued.start};
  const int64_t launching = calls.launches().overlap(before);
  const int64_t waiting = calls.launches_and_waits().overlap(before) - launching;
  const int64_t rest = before.end - before.start - launching - waiting;
  add(GapCause::launch, launching);
  add(waiting > kLongestWakeUp ? GapCause::outside : GapCause::synchronize, waiting);
  const bool in_step = marked && 2 * steps.overlap(before) > before.end - before.start;
  const bool no_work = !in_step && rest > (marked ? kNoWorkBetweenSteps : kNoWork);
  add(no_work ? GapCause::outside : GapCause::host, rest);
}

}  // namespace

SpanUnion::SpanUnion(std::vector<TimeSpan> spans) {
  std::sort(spans.begin(), spans.end(),
            [](const TimeSpan& a, const TimeSpan& b) { return a.start < b.start; });
  int64_t covered = 0;
  for (const TimeSpan& span : spans) {
    if (!spans_.empty() && span.start <= spans_.back().end) {
      const int64_t longer = std::max<int64_t>(0, span.end - spans_.back().end);
      spans_.back().end += longer;
      covered += longer;
    } else {
      spans_.push_back(span);
      before_.push_back(covered);
      covered += span.end - span.start;
    }
  }
}

int64_t SpanUnion::covered_until(int64_t time) const {
  const auto after =
      std::upper_bound(spans_.begin(), spans_.end(), time,
                       [](int64_t t, const TimeSpan& span) { return t < span.start; });
  if (after == spans_.begin()) return 0;
  const size_t last = size_t(after - spans_.begin()) - 1;
  return before_[last] + std::min(time, spans_[last].end) - spans_[last].start;
}

int64_t SpanUnion::overlap(TimeSpan span) const {
  return span.end <= span.start ? 0 : covered_until(span.end) - covered_until(span.start);
}

HostCalls::HostCalls(const std::vector<CallInterval>& calls)
    : launches_(spans_of(calls, false)), all_(spans_of(calls, true)) {
  for (const CallInterval& call : calls) {
    if (call.kind == HostCall::wait || call.correlation == 0) continue;
    starts_.emplace_back(call.correlation, call.span.start);
    if (call.kind == HostCall::graph_launch) graphs_.push_back(call.correlation);
  }
  std::sort(starts_.begin(), starts_.end());
  std::sort(graphs_.begin(), graphs_.end());
}

std::optional<int64_t> HostCalls::launched_at(uint32_t correlation) const {
  const auto place = std::lower_bound(starts_.begin(), starts_.end(),
                                      std::pair<uint32_t, int64_t>(correlation, INT64_MIN));
  if (correlation == 0 || place == starts_.end() || place->first != correlation) return {};
  return place->second;
}

bool HostCalls::is_graph(uint32_t correlation) const {
  return std::binary_search(graphs_.begin(), graphs_.end(), correlation);
}

DeviceTimes measure_device(const std::vector<DeviceInterval>& intervals, const HostCalls& calls,
                           const SpanUnion& steps, bool marked, const KernelTotals& names) {
  DeviceTimes times;
  if (intervals.empty()) return times;
  const int64_t first = intervals.front().span.start;
  int64_t end = first, compute_end = first;  // of all so far; of those that are no collectives
  int64_t compute_ns = 0, breaks_ns = 0;
  for (const DeviceInterval& interval : intervals) {
    const TimeSpan span = interval.span;
    const int64_t idle = std::max<int64_t>(0, span.start - end);
    if (&interval != &intervals.front())
      times.neighbour_gaps_s.push_back(float(double(idle) * 1e-9));
    if (idle > kLongestGap)
      breaks_ns += idle;
    else if (idle > kShortestGap)
      attribute_gap({end, span.start}, interval, calls, steps, marked, times);
    times.busy_ns += std::max<int64_t>(0, span.end - std::max(end, span.start));
    end = std::max(end, span.end);
    if (!names.is_collective(interval.name)) {
      compute_ns += std::max<int64_t>(0, span.end - std::max(compute_end, span.start));
      compute_end = std::max(compute_end, span.end);
    }
  }
  times.wall_ns = end - first - breaks_ns;
  times.exposed_collective_ns = times.busy_ns - compute_ns;
  return times;
}

}  // namespace ridge
