#ifdef RIDGE_HAS_CUDA

#include "lab/cuda/gpu_point.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/units.h"

namespace ridge {
namespace {

constexpr double kSampleSeconds = 1e-3;
constexpr int kMostLaunches = 48;       // with up to 20 kernels each they fit the launch queue
constexpr double kWideGpuSpread = 0.1;  // kernels that repeat differ by far less

double quantile_of(const std::vector<double>& sorted, double share) {
  return sorted[size_t(std::lround(share * double(sorted.size() - 1)))];
}

}  // namespace

LabPoint measure_on_gpu(Lab& lab, LabGpu& gpu, double x, const LabBand& band,
                        const std::function<void()>& launch,
                        const std::function<double(double)>& value) {
  LabPoint point;
  point.x = x;
  point.band = band;
  lab.announce(band);
  const double once = gpu.time(1, 1, launch).front();
  const int repeats = int(std::clamp(kSampleSeconds / once, 1.0, double(kMostLaunches)));
  std::vector<double> seconds;
  for (int attempt = 0; attempt < (lab.quick() ? 1 : 2); ++attempt) {
    lab.check_interrupt();
    seconds = gpu.time(lab.quick() ? 3 : 9, repeats, launch);
    std::sort(seconds.begin(), seconds.end());
    point.spread =
        (quantile_of(seconds, 0.9) - quantile_of(seconds, 0.1)) / quantile_of(seconds, 0.5);
    point.doubt = point.spread > kWideGpuSpread ? "the repeats differ widely" : "";
    if (point.doubt.empty()) break;
  }
  point.measured = value(quantile_of(seconds, 0.5));
  return point;
}

LabBand gpu_pass_seconds(Lab& lab, double bytes, double flops) {
  const Level* l2 = lab.machine().cache();
  const bool cached = l2 != nullptr && l2->read_bandwidth && cached_share(lab.machine(), bytes) > 0;
  const double rate = cached ? *l2->read_bandwidth : gpu_bandwidth(lab);
  constexpr double kStart = 2e-6;  // of a kernel: its first loads, and its last block's end
  const LabBand pass = overlapped(bytes / rate, flops / gpu_peak(lab, DType::fp32));
  return {pass.low, pass.expected + kStart, pass.high + 2 * kStart};
}

double gpu_bandwidth(const Lab& lab) {
  const Maybe rate = lab.machine().memory().read_bandwidth;
  if (!rate) throw Error("the memory bandwidth of {} is unknown", lab.machine().title);
  return *rate;
}

double gpu_peak(const Lab& lab, DType math) {
  const Maybe peak = lab.machine().peak_of(math);
  if (!peak) throw Error("a peak of {} is unknown", lab.machine().title);
  return *peak;
}

}  // namespace ridge

#endif
