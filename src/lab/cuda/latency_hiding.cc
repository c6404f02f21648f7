// Bandwidth against the loads that are under way: more warps, or more loads of each thread.
#ifdef RIDGE_HAS_CUDA

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"
#include "lab/cuda/gpu_point.h"
#include "lab/cuda/on_cuda.h"
#include "lab/cuda/reads.h"

namespace ridge {

LabResult latency_hiding_on_cuda(Lab& lab) {
  LabGpu gpu;
  const double bandwidth = gpu_bandwidth(lab), latency = lab.machine().memory().latency.value_or(0);
  if (latency <= 0) throw Error("the latency of memory is unknown: ridge measure stores it");
  lab.step("filling memory");
  LabReads reads(gpu, lab.quick() ? 27 : 30);  // 4 GiB, 70 times the L2
  LabResult result;
  result.x = {"kB in flight on each SM", true, 0, 0};
  result.y = {"GB/s", true, 0, 0};
  bool right = true;
  double least = 0, best = 0;
  LabPoint enough;  // the fewest bytes that read 80 % of the best
  const std::vector<int> warps =
      lab.quick() ? std::vector<int>{2, 32} : std::vector<int>{1, 2, 4, 8, 16, 32, 64};
  for (const int loads : {1, 2, 4}) {
    LabSeries series{fmt::format("{} loads of 16 B a thread", loads), {}};
    if (loads == 1) series.name = "1 load of 16 B a thread";
    for (const int count : warps) {
      const InFlight shape{count, loads};
      lab.step(fmt::format("{} warps a SM, {}", count, series.name));
      // Little: bytes in flight / latency, up to the bandwidth. Near it the loads queue, so that
      // the latency rises; between two waits a thread adds up and starts again, a tenth of it.
      const double in_flight = shape.bytes() * gpu.sms();
      const double law = in_flight / (1.1 * latency), expected = std::min(law, 0.95 * bandwidth);
      const LabBand band{0.6 * expected / 1e9, expected / 1e9,
                         std::min(1.3 * expected, 1.1 * bandwidth) / 1e9};
      const int steps =
          std::clamp(int(5e-4 * expected / in_flight), 8, std::max(8, reads.most_steps(shape)));
      right = reads.in_flight_is_right(shape, steps) && right;
      const double bytes = in_flight * steps;
      LabPoint point = measure_on_gpu(
          lab, gpu, shape.bytes() / 1e3, band, [&] { reads.read_in_flight(shape, steps); },
          [&](double seconds) { return bytes / seconds / 1e9; });
      point.label = fmt::format("{} warps x {} B", count, 512 * loads);
      least = least > 0 ? std::min(least, point.measured) : point.measured;
      best = std::max(best, point.measured);
      series.points.push_back(std::move(point));
    }
    result.series.push_back(std::move(series));
  }
  for (const LabSeries& series : result.series) {
    for (const LabPoint& p : series.points) {
      if (p.measured >= 0.8 * best && (enough.x == 0 || p.x < enough.x)) enough = p;
    }
  }
  const double needed = latency * bandwidth / gpu.sms();
  const Agreement agreement = agreement_of({&result, 1});
  const LabPoint& fewest = result.series.front().points.front();
  decide(result, agreement.share() >= 0.8 && best > 3 * least, {&fewest, &enough});
  result.checks.push_back({"every byte was read (sums)", right});
  result.sentence = fmt::format(
      "{} in flight on each SM read {}, {} read {}; the best rate is {}. Latency x bandwidth = {} "
      "x "
      "{} asks for {} on each of {} SMs, whether they come from more warps or from more loads of a "
      "thread.",
      pretty_bytes(1e3 * fewest.x), pretty_rate(1e9 * fewest.measured),
      pretty_bytes(1e3 * enough.x), pretty_rate(1e9 * enough.measured), pretty_rate(1e9 * best),
      pretty_time(latency), pretty_rate(bandwidth), pretty_bytes(needed), gpu.sms());
  result.notes.push_back(
      "Each thread waits for its loads before it issues the next. The latency is that of a single "
      "chain of loads on an idle GPU.");
  result.notes.push_back(gpu.conditions());
  return result;
}

}  // namespace ridge

#endif
