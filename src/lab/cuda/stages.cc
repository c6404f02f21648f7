// Tiles fetched ahead of their use: a ring of 1 to 8 buffers that bulk copies fill.
#ifdef RIDGE_HAS_CUDA

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/units.h"
#include "lab/cuda/gpu_point.h"
#include "lab/cuda/on_cuda.h"
#include "lab/cuda/ring.h"
#include "lab/lab_curves.h"

namespace ridge {

LabResult stages_on_cuda(Lab& lab) {
  LabGpu gpu;
  const double bandwidth = gpu_bandwidth(lab), latency = lab.machine().memory().latency.value_or(0);
  const Maybe clock = lab.machine().clock;
  if (latency <= 0 || !clock) throw Error("the latency of memory or the clock is unknown");
  lab.step("filling memory");
  LabRing ring(gpu, lab.quick() ? 256e6 : 2e9);
  LabResult result;
  result.x = {"buffers of each SM", false, 0, 0};
  result.y = {"GB/s", true, 0, 0};
  bool right = true;
  double one = 0, best = 0, enough_bytes = 0;
  for (const int chunk : {4096, 8192, 16384}) {
    LabSeries series{fmt::format("buffers of {}", pretty_binary(chunk)), {}};
    // A copy of kilobytes takes about two single loads' latency from its issue to its barrier. It
    // is used at the shared memory's 128 B a clock, and the two barriers of a buffer take about 0.1
    // us.
    const double use = chunk / (128 * *clock) + 1e-7, trip = 2 * latency;
    const double transfer = chunk * gpu.sms() / (0.95 * bandwidth);
    for (const int stages :
         lab.quick() ? std::vector<int>{1, 4, 8} : std::vector<int>{1, 2, 3, 4, 6, 8}) {
      lab.step(fmt::format("{} {}", stages, series.name));
      right = ring.is_right(stages, chunk) && right;
      const double seconds = std::max({use, transfer, (use + trip) / stages});
      const double rate = chunk * gpu.sms() / seconds / 1e9;
      const LabBand band{0.6 * rate, rate, std::min(1.35 * rate, 1.05 * bandwidth / 1e9)};
      series.points.push_back(measure_on_gpu(
          lab, gpu, stages, band, [&] { ring.read(stages, chunk); },
          [&](double took) { return ring.bytes() / took / 1e9; }));
      const double measured = series.points.back().measured;
      if (chunk == 8192 && stages == 1) one = measured;
      best = std::max(best, measured);
    }
    result.series.push_back(std::move(series));
  }
  const int chunks[] = {4096, 8192, 16384};
  for (size_t s = 0; s < result.series.size(); ++s) {
    for (const LabPoint& p : result.series[s].points) {
      const double held = p.x * chunks[s];
      if (p.measured >= 0.8 * best && (enough_bytes == 0 || held < enough_bytes)) {
        enough_bytes = held;
      }
    }
  }
  result.checks.push_back({"every byte was read with every number of buffers (sums)", right});
  LabPoints deciding{&result.series[1].points.front()};  // one buffer of 8 KiB
  for (const LabSeries& series : result.series) {
    if (largest_of(series).measured == best) deciding.push_back(&largest_of(series));
  }
  decide(result, best > 2 * one, deciding);
  result.sentence = fmt::format(
      "One buffer of 8 KiB on each SM reads {}; {} in buffers on each SM give 80 % of the best, {} "
      "({:.1f}x). Latency x bandwidth asks for {} on each SM at the latency of a single load.",
      pretty_rate(1e9 * one), pretty_binary(enough_bytes), pretty_rate(1e9 * best), best / one,
      pretty_bytes(latency * bandwidth / gpu.sms()));
  result.notes.push_back(fmt::format(
      "One block on each SM: a warp fills the ring by bulk copies (TMA), 8 warps add up what "
      "arrives; {} in all. Expected: a copy takes 2 x {}.",
      pretty_bytes(ring.bytes()), pretty_time(latency)));
  result.notes.push_back(gpu.conditions());
  return result;
}

}  // namespace ridge

#endif
