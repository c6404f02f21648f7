// The driver's utilisation is the share of time with a kernel on the device, whatever the kernel
// does: one thread that waits keeps it at 100 %.
#ifdef RIDGE_HAS_CUDA

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/units.h"
#include "lab/cuda/gpu_load.h"
#include "lab/cuda/gpu_point.h"
#include "lab/cuda/on_cuda.h"
#include "lab/dcgm.h"

namespace ridge {
namespace {

using UtilClock = std::chrono::steady_clock;

double seconds_since(UtilClock::time_point start) {
  return std::chrono::duration<double>(UtilClock::now() - start).count();
}

// What NVML shows at the end of a load, the median of samples, and the bytes/s that were read.
struct LoadSeen {
  double utilisation = 0, memory_use = 0, power = 0, rate = 0;
  std::optional<DcgmActivity> dcgm;
  std::string no_dcgm;  // why not
};

// Runs work() again and again; the counter covers up to a second, so the last third counts.
LoadSeen watch_load(Lab& lab, LabGpu& gpu, double seconds, const std::function<double()>& work) {
  std::vector<double> utilisation, memory_use, power;
  double bytes = 0;
  LoadSeen seen;
  std::future<std::optional<DcgmActivity>> dcgm;
  const auto start = UtilClock::now();
  for (double now = 0; now < seconds; now = seconds_since(start)) {
    lab.check_interrupt();
    bytes += work();
    if (now < seconds / 3) continue;
    if (!dcgm.valid()) dcgm = std::async(std::launch::async, read_dcgm, std::ref(seen.no_dcgm));
    if (now < 2 * seconds / 3) continue;
    const LabGpu::Use use = gpu.use();
    if (!use.utilisation) throw Error("NVML does not tell the utilisation of this GPU");
    utilisation.push_back(*use.utilisation);
    memory_use.push_back(use.memory_use.value_or(0));
    power.push_back(use.power.value_or(0));
  }
  const auto median_of = [](std::vector<double> values) {
    if (values.empty()) return 0.0;
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  seen.utilisation = median_of(utilisation);
  seen.memory_use = median_of(memory_use);
  seen.power = median_of(power);
  seen.rate = bytes / seconds_since(start);
  if (dcgm.valid()) seen.dcgm = dcgm.get();
  return seen;
}

LabPoint seen_point(double x, const char* label, const LabBand& band, double value) {
  LabPoint point;
  point.x = x;
  point.label = label;
  point.band = band;
  point.measured = value;
  return point;
}

}  // namespace

LabResult gpu_util_on_cuda(Lab& lab) {
  LabGpu gpu;
  const double bandwidth = gpu_bandwidth(lab), seconds = lab.quick() ? 0.6 : 2.4;
  if (!gpu.use().utilisation) throw Error("NVML does not tell the utilisation of this GPU");
  lab.step("filling memory");
  GpuLoad load(gpu, lab.quick() ? 256e6 : 8e9);
  const auto rest = [] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return 0.0;
  };
  lab.step("idle");
  const LoadSeen idle = watch_load(lab, gpu, seconds, rest);
  const LabBand busy{95, 100, 100.5};
  lab.step("one thread that waits");
  lab.announce(busy, "% utilisation");
  load.start_waiting(4 * seconds);
  const LoadSeen waiting = watch_load(lab, gpu, seconds, rest);
  load.stop();
  lab.step("reads that stream");
  lab.announce(busy, "% utilisation");
  lab.announce(rate_under(100), "% of the bandwidth");
  const LoadSeen streaming = watch_load(lab, gpu, seconds, [&] {
    load.stream_once();
    return load.bytes();
  });
  LabResult result;
  result.x = {"load", false, 0, 0};
  result.y = {"%", false, 0, 100};
  result.categories = true;
  LabSeries shown{"utilisation", {}}, used{"bandwidth used", {}};
  shown.points = {seen_point(1, "idle", {}, 100 * idle.utilisation),
                  seen_point(2, "one thread waits", busy, 100 * waiting.utilisation),
                  seen_point(3, "reads stream", busy, 100 * streaming.utilisation)};
  used.points = {seen_point(1, "idle", {}, 0), seen_point(2, "one thread waits", {}, 0),
                 seen_point(3, "reads stream", rate_under(100), 100 * streaming.rate / bandwidth)};
  result.series = {shown, used};
  result.timed = false;  // the counter has no resolution that a disturbance would change
  decide(result, waiting.utilisation > 0.9 && streaming.utilisation > 0.9, points_of(shown));
  result.sentence = fmt::format(
      "One thread that waits shows {} utilisation at {:.0f} W and reads nothing; a kernel that "
      "streams shows {} at {:.0f} W and reads {}. Idle: {} and {:.0f} W.",
      pretty_percent(waiting.utilisation), waiting.power, pretty_percent(streaming.utilisation),
      streaming.power, pretty_rate(streaming.rate), pretty_percent(idle.utilisation), idle.power);
  result.notes.push_back(fmt::format(
      "What tells them apart in NVML: power ({:.0f} against {:.0f} W) and memory utilisation ({} "
      "against {}).",
      waiting.power, streaming.power, pretty_percent(waiting.memory_use),
      pretty_percent(streaming.memory_use)));
  if (waiting.dcgm && streaming.dcgm) {
    const auto active = [](const DcgmActivity& a) {
      return fmt::format("SMs {}, tensor cores {}, DRAM {}", pretty_percent(a.sm),
                         pretty_percent(a.tensor), pretty_percent(a.dram));
    };
    result.notes.push_back(
        fmt::format("DCGM shows as active: {} while one thread waits, {} while "
                    "reads stream.",
                    active(*waiting.dcgm), active(*streaming.dcgm)));
  } else {
    result.notes.push_back((waiting.dcgm ? streaming : waiting).no_dcgm + ".");
  }
  result.notes.push_back(gpu.conditions());
  return result;
}

}  // namespace ridge

#endif
